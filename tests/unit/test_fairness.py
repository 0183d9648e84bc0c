"""Token buckets and the fair queue, by examples."""

from __future__ import annotations

import pytest

from unskew.core.errors import ConfigError
from unskew.core.fairness.fair_queue import FairQueue
from unskew.core.fairness.token_bucket import TokenBuckets


def test_a_bucket_gives_its_burst_then_its_rate() -> None:
    buckets = TokenBuckets(rate=10.0, seconds=1.0)
    assert [buckets.take("etl", 5.0) for _ in range(10)] == [0.0] * 10
    assert buckets.take("etl", 5.0) == pytest.approx(0.1)
    assert buckets.take("web", 5.0) == 0.0
    assert buckets.take("etl", 5.1) == 0.0
    assert buckets.take("etl", 5.1) > 0.0


def test_with_debt_each_waits_behind_the_one_before() -> None:
    buckets = TokenBuckets(rate=10.0, seconds=0.1)
    waits = [buckets.take("etl", 0.0, debt=0.25) for _ in range(4)]
    assert waits == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert buckets.take("etl", 0.05, debt=0.25) == pytest.approx(0.25)


def test_a_name_may_have_a_rate_of_its_own() -> None:
    buckets = TokenBuckets(rate=1.0, seconds=1.0)
    assert [buckets.take("etl", 0.0, rate=3.0) == 0.0 for _ in range(4)] == [True, True, True, False]


def test_names_are_bounded_and_the_last_used_stay() -> None:
    buckets = TokenBuckets(rate=1.0, seconds=1.0, most=3)
    for name in "abacd":
        buckets.take(name, 0.0)
    assert len(buckets) == 3
    assert buckets.take("a", 0.0) > 0.0
    assert buckets.take("b", 0.0) == 0.0


@pytest.mark.parametrize(("rate", "seconds"), [(0.0, 1.0), (-1.0, 1.0), (float("inf"), 1.0), (1.0, -0.5)])
def test_a_rate_is_above_zero(rate: float, seconds: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        TokenBuckets(rate, seconds)


def queue(slots: int = 1, most: int = 100) -> FairQueue[str]:
    return FairQueue(slots, small=10.0, most=most)


def order(of: FairQueue[str]) -> list[str]:
    """All that wait, one at a time."""
    began = []
    while (job := of.begin()) is not None:
        began.append(job)
        of.end(job)
    return began


def test_identities_take_turns_by_cost() -> None:
    of = queue()
    for number in range(3):
        of.put("wide", 400.0, f"wide {number}")
    for number in range(6):
        of.put("narrow", 200.0, f"narrow {number}")
    assert order(of) == [
        "wide 0", "narrow 0", "narrow 1", "wide 1", "narrow 2", "narrow 3", "wide 2", "narrow 4", "narrow 5",
    ]  # fmt: skip


def test_nobody_saves_up_a_share_nor_loses_what_was_used() -> None:
    """One that comes late begins at the present share; one whose queue was empty for a moment has not less used."""
    of = queue()
    for number in range(4):
        of.put("old", 100.0, f"old {number}")
    for _ in range(3):
        of.end(of.begin() or "")
    for number in range(2):
        of.put("new", 100.0, f"new {number}")
    assert order(of) == ["new 0", "old 3", "new 1"]
    of.put("greedy", 1000.0, "greedy 0")
    of.put("other", 100.0, "other 0")
    assert of.begin() == "greedy 0"
    of.put("greedy", 1000.0, "greedy 1")
    for number in range(1, 5):
        of.put("other", 100.0, f"other {number}")
    of.end("greedy 0")
    assert order(of)[-1] == "greedy 1"


def test_who_leaves_gives_up_its_place_or_its_slot() -> None:
    of = queue()
    for job in ("a", "b", "c"):
        of.put("etl", 100.0, job)
    assert of.begin() == "a"
    of.end("b")
    of.end("a")
    assert order(of) == ["c"]
    assert len(of) == 0


def test_an_identity_has_no_more_waiting_than_there_is_room() -> None:
    of = queue(most=8)
    assert [of.put("greedy", 100.0, f"greedy {number}") for number in range(6)] == [True] * 4 + [False] * 2
    assert of.put("other", 100.0, "other")
