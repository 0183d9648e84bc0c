"""Reports, answers and histograms that the tests of the wire share."""

from __future__ import annotations

import numpy as np

from tests.planning import key_hashes
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems

__all__ = ["a_report", "a_table", "an_answer", "same_answer", "same_report", "with_everything"]


def a_table(keys: int = 5, workers: int = 11, seed: int = 1) -> QTable:
    """Some of it never tried; 11 workers leave bits of a byte unused."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((keys, workers)) < 0.4, UNTRIED, rng.uniform(-1.5, 1.0, (keys, workers)))
    return QTable.of(key_hashes(keys, seed), values, rng.integers(0, 500, keys), values != UNTRIED)


def a_report(workers: int = 11, keys: int = 5) -> Report:
    rng = np.random.default_rng(2)
    frequent = FrequentItems(8).update(rng.integers(0, 30, 4000).astype(np.uint64))
    return Report(
        agent="spark-app:7/task-3",
        session=1_700_000_000,
        seq=4,
        table=a_table(keys, workers),
        records=frequent.total,
        frequent=frequent,
        loads=rng.integers(0, 999, workers),
        dsync=12.5,
        longer=True,
        guest=True,
    )


def an_answer(workers: int = 11, keys: int = 5) -> Answer:
    return Answer(
        epoch=6,
        merged=(("spark-app:7/task-3", 1_700_000_000, 4),),
        table=a_table(keys, workers, seed=3),
        records=123_456,
        unsure=frozenset({3, 2**64 - 1, 17}),
        loads=np.arange(workers),
        dsync=25.0,
        split=np.array([1, 2, 2**63 + 5], np.uint64),
        incarnation=1_700_000_000_000_000,
    )


def with_everything(keys: int = 1000) -> Histogram:
    """A histogram that has a tail and spread values."""
    rng = np.random.default_rng(4)
    rows = rng.integers(1, 10_000, keys)
    bare = Histogram.from_counts(key_hashes(keys), rows)
    tail = Tail(rng.integers(50, 90, 64), rng.integers(0, 50, 64))
    return Histogram(bare.hashes, bare.counts, tail, np.minimum(bare.counts, 40))


def same_report(one: Report, other: Report) -> bool:
    """Equal to the bit."""
    plain = all(
        getattr(one, name) == getattr(other, name)
        for name in ("name", "table", "records", "frequent", "dsync", "longer", "guest")
    )
    return plain and np.array_equal(one.loads, other.loads)


def same_answer(one: Answer, other: Answer) -> bool:
    """Equal to the bit."""
    plain = all(
        getattr(one, name) == getattr(other, name)
        for name in ("version", "merged", "table", "records", "unsure", "dsync")
    )
    return plain and np.array_equal(one.loads, other.loads) and np.array_equal(one.split, other.split)
