"""The record of past histograms."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History


def hist(**counts: int) -> Histogram:
    return Histogram.from_counts(np.array([ord(k) for k in counts], np.uint64), np.array(list(counts.values())))


def test_the_oldest_batch_falls_out() -> None:
    record = History(depth=2).add(hist(a=1)).add(hist(a=2, b=1)).add(hist(c=5))
    assert record.merged() == hist(a=2, b=1, c=5)


def test_older_batches_count_less() -> None:
    """Decay 0.5: 8 rows two batches ago count as 2, 4 rows one batch ago as 2."""
    record = History(depth=5, decay=0.5).add(hist(a=8)).add(hist(a=4, b=1)).add(hist(b=3))
    assert record.merged() == hist(a=4, b=4), "the half row of b is rounded up"


def test_an_empty_record_is_an_empty_histogram() -> None:
    assert History().merged() == Histogram.empty()


def test_adding_changes_nothing_that_exists() -> None:
    record = History()
    record.add(hist(a=1))
    assert record.batches == ()


@pytest.mark.parametrize(("depth", "decay"), [(0, 1.0), (2.5, 1.0), (True, 1.0), (1, 0.0), (1, 1.1), (1, float("nan"))])
def test_bad_settings_are_refused(depth: int, decay: float) -> None:
    with pytest.raises(ConfigError):
        History(depth, decay)
