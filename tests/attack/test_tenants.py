"""One tenant does what it can; another, within its limits, is served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.attack.measure import tenants
from tests.attack.tenants import beside, flood_of, get_plan, large_plans, small_plan
from tests.attack.victim import ATTACKER, victim
from tests.doses import some_of

pytestmark = pytest.mark.xdist_group("attack")

GOODPUT = 0.9


@pytest.mark.long
def test_small_plans_beside_large_ones_of_another_tenant(tmp_path: Path) -> None:
    """None waits for a large one: those of the light dose take half a second each, on one thread for large ones."""
    prepare, plan = large_plans(4, 1_000_000, 4)
    with victim(tmp_path) as on:
        prepare(on)
        found = beside(on, small_plan, plan, rate=10.0, alone=2.0)
    assert found.goodput == 1.0, found
    assert found.during[0] < 0.5, found


@pytest.mark.parametrize("token", some_of(["wrong", ATTACKER], ATTACKER))
def test_a_flood_with_a_wrong_token_or_over_the_limit_is_slowed_down(tmp_path: Path, token: str) -> None:
    flood = flood_of("GetPlan", token, 1, 100, 3)
    with victim(tmp_path, "--max-calls-per-second", "100") as on:
        found = beside(on, get_plan, flood, rate=10.0, alone=2.0)
    assert found.goodput >= GOODPUT, found
    refused = re.search(r"([\d,]+)/s (UNAUTHENTICATED|RESOURCE_EXHAUSTED)", found.more)
    assert refused is not None, found
    assert int(refused[1].replace(",", "")) < 300, found


@pytest.mark.long
@pytest.mark.parametrize("name", tenants())
def test_in_its_full_dose(tmp_path: Path, name: str) -> None:
    limits, measured = tenants()[name]
    with victim(tmp_path, *limits) as on:
        found = measured(on)
    assert found.goodput >= GOODPUT, found
