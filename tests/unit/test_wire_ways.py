"""Advised ways, and what they were learned from, in bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.errors import WireError
from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.plan.plan import Version
from unskew.v1.kept_pb2 import KeptWays
from unskew.wire.ways import StoredWays, choice_from_bytes, choice_to_bytes, ways_from_bytes, ways_to_bytes

COSTS = st.floats(0.0, 1e12)


@given(st.lists(st.tuples(COSTS, COSTS, COSTS), max_size=20), st.lists(st.integers(-1, 2**62), max_size=5))
def test_scores_go_on_in_another_process_to_the_last_digit(costs: list[tuple[float, ...]], numbers: list[int]) -> None:
    """Stored after each batch or not at all: the same sums in the same order, which is how equal costs rank."""
    kept = scores = WayScores()
    for of in costs:
        batch = dict(zip(("hash", "previous", "same"), of, strict=True))
        scores = scores.after(batch)
        kept = ways_from_bytes(ways_to_bytes(StoredWays(kept.after(batch), (), Version(0, 0), b""))).scores
    found = ways_from_bytes(ways_to_bytes(StoredWays(kept, tuple(numbers), Version(2**60, 7), b"plan")))
    assert found.scores == scores
    assert list(found.scores.sums) == list(scores.sums)
    assert (found.numbers, found.previous, found.counted) == (tuple(numbers), Version(2**60, 7), b"plan")


def test_an_advised_way_comes_back_and_none_is_no_bytes() -> None:
    choice = WayChoice("same", "hash", "same would have cost 1.1 a batch")
    assert choice_from_bytes(choice_to_bytes(choice)) == choice
    assert choice_to_bytes(None) == b""
    assert choice_from_bytes(b"") is None


def test_bytes_that_are_neither_are_refused_and_fields_of_a_release_to_come_passed_over() -> None:
    for read in (choice_from_bytes, ways_from_bytes):
        with pytest.raises(WireError, match="these bytes are no"):
            read(b"\xff\xff")
    newer = ways_to_bytes(StoredWays(WayScores().after({"inflight": 1.0}), (3,), Version(1, 2), b"")) + b"\xf8\x3e\x01"
    assert ways_from_bytes(newer).scores.sums == {"inflight": 1.0}
    assert KeptWays.FromString(newer).numbers == [3]
