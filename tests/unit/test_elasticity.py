"""Partitions by measured batch times: the two halves of what is known of a batch, in either order."""

from __future__ import annotations

import pytest

from unskew.core.errors import ConfigError
from unskew.core.scaling.elastic import Decider, Elastic, StageTimes
from unskew.spark.streaming.batch_times import ProgressListener

HELD = 1000, 1000  # rows and keys
STAGES = StageTimes(map_time=0.2, reduce_time=0.8, maps=2)


def fed(decider: Decider, seconds: list[float], first: int = 0) -> list[int]:
    """The number of partitions after each batch."""
    after = []
    for batch, took in enumerate(seconds, first):
        decider.add_rows(batch, decider.partitions, *HELD, STAGES)
        decider.add_seconds(batch, took)
        after.append(decider.partitions)
    return after


def test_batches_that_take_too_long_add_partitions_after_d_of_them() -> None:
    """As many as W asks for; these stages do not get shorter by it, so then one step at a time."""
    decider = Decider(Elastic(4, 16, d=2, increment=2), interval=1.0, partitions=4)

    assert fed(decider, [1.5, 1.5, 1.2, 1.2, 0.85, 0.85]) == [4, 8, 8, 10, 10, 10]


def test_idle_batches_take_partitions_away_but_not_below_the_least() -> None:
    decider = Decider(Elastic(4, 16, d=1, increment=4), interval=1.0, partitions=12)

    assert fed(decider, [0.1] * 8)[-1] == 4


def test_the_order_in_which_both_halves_come_does_not_matter() -> None:
    ahead, behind = (Decider(Elastic(1, 8, d=1), interval=1.0, partitions=2) for _ in range(2))
    assert ahead.add_seconds(0, 3.0) is None
    assert behind.add_rows(0, 2, *HELD, STAGES) is None

    assert ahead.add_rows(0, 2, *HELD, STAGES) == behind.add_seconds(0, 3.0)
    assert ahead.partitions == behind.partitions == 3


def test_a_batch_that_was_begun_before_the_last_change_says_nothing_of_it() -> None:
    decider = Decider(Elastic(4, 16, d=2), interval=1.0, partitions=4)
    fed(decider, [1.5, 1.5])
    assert decider.partitions == 8
    decider.add_rows(2, 4, *HELD, STAGES)

    assert decider.add_seconds(2, 9.0) is None
    assert fed(decider, [1.5], first=3) == [8], "the first of two in eight partitions"
    assert fed(decider, [1.5], first=4) == [9]


def test_sparks_own_part_of_a_batch_is_nobodys_and_no_partition_makes_it_shorter() -> None:
    """0.7 s of 0.78 are around the stages: with three partitions, and not two, it would not be longer by much."""
    decider = Decider(Elastic(2, 16, d=1, increment=1), interval=1.0, partitions=3)
    decider.add_rows(0, 3, *HELD, StageTimes(map_time=0.02, reduce_time=0.06, maps=2))

    decision = decider.add_seconds(0, 0.78)
    assert decision is not None
    assert (decision.action, decision.r) == ("in", 2)


def test_stages_that_overlap_are_no_longer_than_the_batch() -> None:
    decider = Decider(Elastic(1, 8, d=1), interval=1.0, partitions=2)
    decider.add_rows(0, 2, *HELD, StageTimes(map_time=6.0, reduce_time=6.0, maps=2))

    decision = decider.add_seconds(0, 1.5)
    assert decision is not None
    assert decision.action == "out"


def test_a_batch_of_which_one_half_is_missing_decides_nothing() -> None:
    decider = Decider(Elastic(1, 8, d=1), interval=1.0, partitions=2)
    for batch in range(300):
        assert decider.add_seconds(batch, 9.0) is None

    assert decider.partitions == 2
    assert len(decider._seconds) < 100


def test_map_tasks_are_the_sources_and_are_never_changed() -> None:
    decider = Decider(Elastic(1, 3, d=1), interval=1.0, partitions=3)
    decider.add_rows(0, 3, *HELD, StageTimes(map_time=5.0, reduce_time=0.1, maps=7))
    decision = decider.add_seconds(0, 6.0)

    assert decision is not None
    assert (decision.p, decision.r, decision.action) == (7, 3, "hold")
    assert "the map stage is what is slow" in decision.reason


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"least": 0}, "least"), ({"least": 9, "most": 8}, "least"), ({"most": 10**6}, "most"), ({"d": 0}, "d")],
)
def test_wrong_bounds_are_refused_by_name(wrong: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Elastic(**wrong)


def test_a_stream_outside_of_the_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="partitions"):
        Decider(Elastic(4, 8), interval=1.0, partitions=64)


def test_progress_and_end_of_another_query_are_not_ours() -> None:
    seen: list[tuple[int, float]] = []
    ended: list[bool] = []
    listener = ProgressListener(
        "this", lambda batch, seconds: seen.append((batch, seconds)), lambda: ended.append(True)
    )
    for query, batch, rows in (("this", 3, 10), ("that", 4, 10), ("this", 5, 0)):
        progress = type("P", (), {"runId": query, "batchId": batch, "numInputRows": rows})()
        progress.durationMs = {"triggerExecution": 1500}
        listener.onQueryProgress(type("E", (), {"progress": progress})())

    assert seen == [(3, 1.5)]
    for query, many in (("that", 0), ("this", 1)):
        listener.onQueryTerminated(type("E", (), {"runId": query})())
        assert len(ended) == many


def test_a_number_from_before_is_brought_within_new_bounds() -> None:
    assert [Elastic(4, 10).within(n) for n in (2, 4, 7, 12)] == [4, 4, 7, 10]
