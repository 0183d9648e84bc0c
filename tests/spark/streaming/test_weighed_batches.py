"""A stream's batches planned by what rows weigh: ``for_each_batch(weight=)``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.spark.streaming.job import PARTITIONS
from tests.spark.streaming.lives import ids_of, users_of
from tests.spark.streaming.queries import Notes, batches, firsts, run, settled
from unskew.core import hash_keys
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.sampling import sample_histogram
from unskew.core.planners import make_planner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unskew.core.freshness.ways import Fresh
    from unskew.spark import Unskew

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

HEAVY, WEIGHT = 25, 40


def heavy_keys(seed: int) -> list[str]:
    """Keys of some three rows each that plain hash gives to one partition."""
    users = np.char.add("u", np.arange(300).astype(str))
    homes = make_planner("hash", PARTITIONS, seed).plan(Histogram.empty()).place(hash_keys(users.tolist()))
    return users[homes == 1][:HEAVY].tolist()  # type: ignore[no-any-return]  # of numpy's


def uneven(where: NDArray[np.int64], batch: int, heavy: list[str]) -> float:
    """The weight of the fullest partition over the mean."""
    weights = np.where(np.isin(users_of(batch), heavy), WEIGHT, 1)
    loads = np.bincount(where, weights, PARTITIONS)
    return float(loads.max() / loads.mean())


@pytest.mark.parametrize(("fresh", "batch"), [("same", 1), ("auto", 0), ("previous", 1)])
def test_few_heavy_rows_are_evened_out(spark: SparkSession, sk: Unskew, short: Path, fresh: Fresh, batch: int) -> None:
    """Counted or sampled, from the first batch that can know of them; every row is there once. (Which way the second
    batch of "auto" goes is up to the seconds that so few rows take; three rows a key are not three in each batch.)"""
    heavy = heavy_keys(sk.plans.stream.spec.seed)
    listed = ", ".join(f"'{user}'" for user in heavy)
    notes = Notes()
    run(spark, short, settled(batches(sk, notes, short, fresh=fresh, weight=f"if(user in ({listed}), {WEIGHT}, 1)")))
    assert uneven(notes.runs[batch][0], batch, heavy) < (1.1 if fresh != "previous" else 1.25)
    assert (notes.wrong(2), notes.strayed(short / "cp")) == (0, 0)


def test_by_rows_and_by_hash_they_are_uneven(sk: Unskew) -> None:
    """So the test above can fail."""
    seed = sk.plans.stream.spec.seed
    heavy, balanced, hashed = heavy_keys(seed), *(make_planner(name, PARTITIONS, seed) for name in ("balanced", "hash"))
    for batch in range(2):
        keys, rows = hash_keys(users_of(batch).tolist()), hash_keys(ids_of(batch))
        by_rows = balanced.plan(sample_histogram(keys, rows, len(keys), PARTITIONS)).route(keys, rows)
        by_hash = hashed.plan(Histogram.empty()).route(keys, rows)
        assert uneven(by_rows, batch, heavy) > 1.2
        assert uneven(by_hash, batch, heavy) > 3.0


@pytest.mark.parametrize("fresh", ["same", "previous"])
def test_batches_whose_weights_say_nothing_go_by_rows(
    spark: SparkSession, sk: Unskew, short: Path, caplog: pytest.LogCaptureFixture, fresh: Fresh
) -> None:
    """A query does not end for it."""
    notes = Notes()
    run(spark, short, settled(batches(sk, notes, short, fresh=fresh, weight="double('nan')")))
    assert (notes.wrong(2), notes.strayed(short / "cp"), firsts(short / "cp")) == (0, 0, [0, 1])
    assert "counted by rows" in caplog.text
