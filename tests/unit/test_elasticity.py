"""Partitions by measured batch times: the two halves of what is known of a batch, in either order."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.histogram import Histogram
from unskew.spark.streaming.elasticity import Elastic, Elasticity, Progress, Stages
from unskew.spark.streaming.observed import Found

STAGES = Stages(map_time=0.2, reduce_time=0.8, maps=2)


def found(rows: int = 1000) -> Found:
    return Found(rows, rows, Histogram.from_hashes(np.arange(rows, dtype=np.uint64)))


def fed(elasticity: Elasticity, seconds: list[float], first: int = 0) -> list[int]:
    """The number of partitions after each batch."""
    after = []
    for batch, took in enumerate(seconds, first):
        elasticity.seen(batch, found(), STAGES)
        elasticity.took(batch, took)
        after.append(elasticity.partitions)
    return after


def test_batches_that_take_too_long_add_partitions_after_d_of_them() -> None:
    elasticity = Elasticity(Elastic(4, 16, d=2, increment=2), interval=1.0, partitions=4)

    assert fed(elasticity, [1.5, 1.5, 1.2, 1.2, 0.85, 0.85]) == [4, 6, 6, 8, 8, 8]


def test_idle_batches_take_partitions_away_but_not_below_the_least() -> None:
    elasticity = Elasticity(Elastic(4, 16, d=1, increment=4), interval=1.0, partitions=12)

    assert fed(elasticity, [0.1] * 8)[-1] == 4


def test_the_order_in_which_both_halves_come_does_not_matter() -> None:
    ahead, behind = (Elasticity(Elastic(1, 8, d=1), interval=1.0, partitions=2) for _ in range(2))
    ahead.took(0, 3.0)
    ahead.seen(0, found(), STAGES)
    behind.seen(0, found(), STAGES)
    behind.took(0, 3.0)

    assert ahead.partitions == behind.partitions == 3
    assert ahead.last == behind.last


def test_a_batch_of_which_one_half_is_missing_decides_nothing() -> None:
    elasticity = Elasticity(Elastic(1, 8, d=1), interval=1.0, partitions=2)
    for batch in range(300):
        assert elasticity.took(batch, 9.0) is None

    assert elasticity.partitions == 2
    assert len(elasticity._took) < 100


def test_map_tasks_are_the_sources_and_are_never_changed() -> None:
    elasticity = Elasticity(Elastic(1, 3, d=1), interval=1.0, partitions=3)
    elasticity.seen(0, found(), Stages(map_time=5.0, reduce_time=0.1, maps=7))
    decision = elasticity.took(0, 6.0)

    assert decision is not None
    assert (decision.p, decision.r, decision.action) == (7, 3, "hold")
    assert "bounds" in decision.reason


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"least": 0}, "least"), ({"least": 9, "most": 8}, "least"), ({"most": 10**6}, "most"), ({"d": 0}, "d")],
)
def test_wrong_bounds_are_refused_by_name(wrong: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Elastic(**wrong)


def test_a_stream_outside_of_the_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="partitions"):
        Elasticity(Elastic(4, 8), interval=1.0, partitions=64)


def test_progress_of_another_query_is_not_ours() -> None:
    seen: list[tuple[int, float]] = []
    listener = Progress("this", lambda batch, seconds: seen.append((batch, seconds)))
    for query, batch, rows in (("this", 3, 10), ("that", 4, 10), ("this", 5, 0)):
        progress = type("P", (), {"id": query, "batchId": batch, "numInputRows": rows})()
        progress.durationMs = {"triggerExecution": 1500}
        listener.onQueryProgress(type("E", (), {"progress": progress})())

    assert seen == [(3, 1.5)]


def test_a_number_from_before_is_brought_within_new_bounds() -> None:
    assert [Elastic(4, 10).within(n) for n in (2, 4, 7, 12)] == [4, 4, 7, 10]
