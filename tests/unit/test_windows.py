"""Window metrics against the same counted window by window, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core import quality
from unskew.core.errors import ConfigError
from unskew.core.quality import windows
from unskew.core.quality.windows import window_imbalance, window_replication

N = 3
Routed = tuple[np.ndarray, np.ndarray]


@st.composite
def routed(draw: st.DrawFn) -> Routed:
    """Keys of a small set, and a partition for each row."""
    keys = draw(st.lists(st.integers(0, 5), max_size=60))
    at = draw(st.lists(st.integers(0, N - 1), min_size=len(keys), max_size=len(keys)))
    return np.array(keys, np.uint64), np.array(at, np.int32)


@st.composite
def lengths(draw: st.DrawFn) -> tuple[int, int]:
    """A window and a slide that need not divide it."""
    slide = draw(st.integers(1, 12))
    return draw(st.integers(slide, 30)), slide


def by_hand(rows: int, window: int, slide: int) -> list[slice]:
    """The rows of every whole window at the end of every slide."""
    reach = slide * -(-window // slide)
    return [slice(end - reach, end) for end in range(slide, rows + 1, slide) if end >= reach]


def by_clock(times: np.ndarray, window: float, slide: float) -> list[slice]:
    """The same by time: for each slide that ended and has rows, those of its number and the ones before it."""
    number = np.floor_divide(times, slide)  # a quotient that is rounded up to a whole number is not one
    reach = int(np.ceil(window / slide))
    ended = [k for k in sorted(set(number.tolist())) if len(number) and k < number[-1] and k - number[0] >= reach - 1]
    inside = [np.flatnonzero((number > k - reach) & (number <= k)) for k in ended]
    return [slice(rows[0], rows[-1] + 1) for rows in inside]


@given(routed(), lengths())
def test_imbalance_is_that_of_the_rows_in_each_window(stream: Routed, length: tuple[int, int]) -> None:
    """One value a slide end once a whole window has passed, the bits of ``quality.imbalance``; capacities count."""
    _, at = stream
    parts = by_hand(len(at), *length)
    assert window_imbalance(at, N, *length).tolist() == [quality.imbalance(at[part], N) for part in parts]
    relative = [2.0, 1.0, 0.3]
    expected = [quality.imbalance(at[part], N, relative) for part in parts]
    assert window_imbalance(at, N, *length, relative).tolist() == expected


@given(routed(), lengths())
def test_replication_is_that_of_the_rows_in_each_window(stream: Routed, length: tuple[int, int]) -> None:
    """At the end of every so many rows, or of each whole window."""
    keys, at = stream
    for every, step in ((length[1], length[1]), (None, length[0])):
        expected = [quality.replication(keys[part], at[part]) for part in by_hand(len(at), length[0], step)]
        assert window_replication(keys, at, length[0], every).tolist() == expected


@given(routed(), st.floats(0.5, 9.0), st.floats(1.0, 4.0), st.data())
def test_windows_by_time_hold_the_rows_of_their_slides(
    stream: Routed, slide: float, many: float, data: st.DataObject
) -> None:
    """Slides without rows are not looked at, gaps longer than a window or times before 0 included."""
    keys, at = stream
    gaps = data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 40.0]), min_size=len(at), max_size=len(at)))
    times = np.cumsum(np.array(gaps)) - 20
    parts = by_clock(times, slide * many, slide)
    told = window_imbalance(at, N, slide * many, slide, times=times)
    assert told.tolist() == [quality.imbalance(at[part], N) for part in parts]
    pairs = window_replication(keys, at, slide * many, slide, times=times)
    assert pairs.tolist() == [quality.replication(keys[part], at[part]) for part in parts]


@given(routed(), lengths())
def test_whatever_is_held_at_one_time_the_result_is_the_same(stream: Routed, length: tuple[int, int]) -> None:
    """In blocks of one window, and with values too wide to be packed with their row: as in one go."""
    keys, at = stream
    whole = window_imbalance(at, N, *length).tolist(), window_replication(keys, at, *length).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_CELLS", 1)
        patch.setattr(windows, "_ROWS", 1)
        assert (window_imbalance(at, N, *length).tolist(), window_replication(keys, at, *length).tolist()) == whole
    wide = np.array([1 << 60, 3, 1 << 60, 3, 0])
    order, values = windows._by_value(wide)
    assert (order.tolist(), values.tolist()) == ([4, 1, 3, 0, 2], np.sort(wide).tolist())


def test_slides_show_what_a_window_hides() -> None:
    """All rows of a slide on one partition, in turn: even per window, as bad as can be per slide."""
    at = np.repeat([0, 1, 2, 0, 1, 2], 10)
    assert window_imbalance(at, N, 30, 10).tolist() == [1.0] * 4
    assert window_imbalance(at, N, 10, 10).tolist() == [3.0] * 6
    assert window_imbalance(at, N, 10, 10, relative=[1, 1, 2]).tolist() == [4.0, 4.0, 2.0] * 2


def test_a_long_stream_agrees_with_window_by_window() -> None:
    """More windows and rows than are held at one time, many partitions."""
    rng = np.random.default_rng(5)
    keys, at = rng.zipf(1.2, 600_000).astype(np.uint64), rng.integers(0, 500, 600_000).astype(np.int16)
    told = window_imbalance(at, 500, 20_000, 100)
    assert len(told) == 5_801
    assert told[::500].tolist() == [quality.imbalance(at[i : i + 20_000], 500) for i in range(0, 580_001, 50_000)]
    pairs = window_replication(keys, at, 20_000)
    assert pairs[::10].tolist() == [
        quality.replication(keys[i : i + 20_000], at[i : i + 20_000]) for i in range(0, 600_000, 200_000)
    ]


def test_less_than_a_window_has_no_values() -> None:
    """No rows, or too few of them: nothing to tell, and no error."""
    for rows in (0, 9):
        at, keys = np.zeros(rows, np.int32), np.zeros(rows, np.uint64)
        assert window_imbalance(at, N, 10, 5).shape == window_replication(keys, at, 10).shape == (0,)
        assert window_imbalance(at, N, 10, 5, times=np.arange(rows)).shape == (0,)


ROWS = np.zeros(8, np.int32)
BAD = {
    "window": lambda: window_imbalance(ROWS, N, 0, 1),
    "slide": lambda: window_imbalance(ROWS, N, 4, 5),
    "a fraction": lambda: window_imbalance(ROWS, N, 4, 1.5),
    "endless": lambda: window_imbalance(ROWS, N, float("inf"), 1, times=ROWS),
    "partitions": lambda: window_imbalance(ROWS + N, N, 4, 1),
    "relative": lambda: window_imbalance(ROWS, N, 4, 1, relative=[1, 2]),
    "lengths": lambda: window_replication(np.zeros(7, np.uint64), ROWS, 4),
    "times short": lambda: window_imbalance(ROWS, N, 4, 1, times=[1.0]),
    "times falling": lambda: window_imbalance(ROWS, N, 4, 1, times=[2.0] + [1.0] * 7),
    "times nowhere": lambda: window_imbalance(ROWS, N, 4, 1, times=[float("nan")] * 8),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_window_is_refused(case: str) -> None:
    """By name, with what is allowed, before anything is counted."""
    with pytest.raises(ConfigError, match=r"; use "):
        BAD[case]()
