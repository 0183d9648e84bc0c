"""Eight agents and three replicas through a killed replica and a stalled network: the small dose of ``test_faults``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.conftest import World
from tests.chaos.fleet import Fleet
from tests.chaos.proxy import HalfOpen
from tests.chaos.scenario import PATIENT, SMALL, check, kill_in_mid_round, stall, through

pytestmark = pytest.mark.xdist_group("chaos")


def test_a_replica_killed_in_mid_round_costs_no_round_and_no_report(world: World, tmp_path: Path) -> None:
    """It has sealed a round and merged nothing: another takes the round over, and its agents go to the others."""
    sealed: list[int] = []

    def fault(fleet: Fleet) -> None:
        sealed.append(kill_in_mid_round(fleet, world.replicas.all[0], world.redis))

    rounds = check(through(tmp_path, "small killed replica", SMALL, world.replicas, fault), world.redis.aof)
    assert sealed[0] in {one.epoch[1] for one in rounds}


@pytest.mark.long
def test_agents_leave_a_network_that_swallows_everything(world: World, tmp_path: Path) -> None:
    """Half-open connections towards two replicas: nobody is told, their agents find out and go on with the third."""

    def fault(fleet: Fleet) -> None:
        stall(fleet, HalfOpen(), world.replicas.fronts[:2], lambda: fleet.go_on(2, PATIENT))

    check(through(tmp_path, "small half-open", SMALL, world.replicas, fault), world.redis.aof)
