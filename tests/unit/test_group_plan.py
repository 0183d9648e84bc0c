"""Plans for opaque groups: whole, heavy ones alone and first, three partitions a slot."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.histogram.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.operators.group_plan import group_partitions, group_plan


@pytest.mark.parametrize(
    ("partitions", "slots", "wanted"), [(16, 2, 16), (16, 8, 24), (16, 0, 16), (16, 100_000, MAX_PARTITIONS)]
)
def test_three_partitions_a_slot_within_what_a_plan_may_have(partitions: int, slots: int, wanted: int) -> None:
    assert group_partitions(partitions, slots) == wanted


def test_the_heaviest_group_is_alone_in_the_first_partition() -> None:
    hashes = np.sort(np.random.default_rng(2).integers(0, 2**64, 500, dtype=np.uint64))
    counts = np.full(500, 10)
    counts[321] = 4_000
    plan = group_plan(Histogram(hashes, counts), 12)
    assert not plan.splits
    where = plan.route(hashes)
    assert hashes[where == 0].tolist() == [hashes[321]]
    assert list(plan.info.loads) == sorted(plan.info.loads, reverse=True)
