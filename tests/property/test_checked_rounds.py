"""The rounds as the service runs them, model-checked: a million steps of replicas, agents, a network and a store that
crash, hang, lose, double, reorder and fail over (``checked_rounds``). The promises:

- an acknowledged report is in exactly one merged round, or the stream has begun a newer incarnation;
- epochs follow one another, and agents never see an incarnation or an epoch go back;
- no two agents are told different things of one round, unless a newer incarnation follows;
- from wherever the run is: once all goes well again every agent is answered.

The store is the memory store, which ``tests/contract`` holds to the Lua scripts on a real Redis.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.doses import some_of
from tests.property.checked_rounds.mutants import MUTANTS, broken
from tests.property.checked_rounds.walks import Walk, random_walk, with_one_fault

STEPS = 600
SEEDS = 1_700  # a million steps and more
QUICK = (
    "a_report_that_is_repeated_counts_again",
    "a_commit_is_taken_whatever_is_there",
    "a_round_is_sealed_without_waiting_for_leases",
    "a_lost_round_is_not_noticed",
)
"""Mutants that are found within half a second."""


def count(walks: Iterable[Walk]) -> int:
    """Steps of walks on which nothing is broken."""
    steps = 0
    for walk in walks:
        assert not walk.broken, "\n".join([walk.broken, "after:", *walk.moves])
        steps += walk.steps
    return steps


def test_the_rounds_keep_their_promises_on_random_walks() -> None:
    """A small dose."""
    assert count(random_walk(seed, STEPS) for seed in range(6)) >= 6 * STEPS


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_the_rounds_keep_their_promises_for_a_million_steps(first: int) -> None:
    """The full one, in parts."""
    assert count(random_walk(seed, STEPS) for seed in range(first, first + 100)) >= 100 * STEPS


@pytest.mark.parametrize("place", some_of(range(60), 24))
def test_one_fault_breaks_nothing_wherever_it_comes(place: int) -> None:
    """Every fault at every place of the good way, which has some rounds in it, and every failover between two."""
    assert count(with_one_fault(place)) > place


@pytest.mark.parametrize("name", some_of(MUTANTS, *QUICK))
def test_broken_rounds_are_found_out(name: str) -> None:
    """A checker that finds none of these would find nothing."""
    with broken(name):
        walks = (random_walk(seed, STEPS) for seed in range(400))
        found = next((walk for walk in walks if walk.broken), None)
    assert found is not None
