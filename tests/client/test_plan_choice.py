"""Which plan a ``PlanAgent`` routes by, from what it has fetched."""

from __future__ import annotations

from tests.client.service_in_test import plan_of
from unskew.client import Fetched
from unskew.client.plan_choice import HASH, LAST, NEWEST, PlanChoice, choose_plan
from unskew.core.plan.plan import Plan

PLAIN = plan_of(0, incarnation=0)


def choose(plan: Plan, last: Plan | None = None, *, stale: bool = False, key_types: tuple[str, ...] = ()) -> PlanChoice:
    return choose_plan(Fetched(plan, stale=stale), last, PLAIN, key_types)


def test_the_newest_plan_is_taken() -> None:
    """Also the first one, and where the service could not ask its store: the reason says that."""
    assert (choose(plan_of(3)).plan, choose(plan_of(3)).rung) == (plan_of(3), NEWEST)
    stale = choose(plan_of(3), plan_of(2), stale=True)
    assert stale.rung == NEWEST
    assert "could not ask its store" in stale.reason


def test_an_older_plan_is_not_taken() -> None:
    """A service may be behind for a while. A plan of a newer incarnation is newer."""
    behind = choose(plan_of(2), plan_of(5))
    assert (behind.plan, behind.rung) == (plan_of(5), LAST)
    assert behind.reason == "the service has version 1.2, older than 1.5; version 1.5 stays in force"
    assert choose(plan_of(1, incarnation=2), plan_of(5)).rung == NEWEST


def test_a_plan_that_does_not_fit_is_never_used() -> None:
    """Another number of partitions, or keys of other types."""
    other = plan_of(9, partitions=8)
    assert choose(other, plan_of(2)).rung == LAST
    plain = choose(other)
    assert (plain.plan, plain.rung) == (PLAIN, HASH)
    assert "8 partitions, not for 4" in plain.reason
    typed = Plan(4, plan_of(3).tail, plan_of(3).hot, ("string",), plan_of(3).info)
    assert choose(typed, key_types=("string",)).rung == NEWEST
    assert "keys of string, not of bigint" in choose(typed, key_types=("bigint",)).reason
