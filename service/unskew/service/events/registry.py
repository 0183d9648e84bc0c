"""A Prometheus registry as this service fills it: a quick histogram of seconds, and no series that nobody reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["Registry", "SecondsHistogram"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class SecondsHistogram(Collector):
    """Of every call and every store operation. The library's own histogram looks at one bucket after another and takes
    two locks: 4 us each time, in place of 0.5. Filled on the loop only."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._rows: dict[tuple[str, ...], list[float]] = {}  # a count for each bucket, one for more, and the sum

    def observe(self, seconds: float, *labels: str) -> None:
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = [0.0] * (len(_SECONDS) + 2)
        row[bisect_left(_SECONDS, seconds)] += 1.0
        row[-1] += seconds

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, row in list(self._rows.items()):
            *counts, total = row.copy()
            below = zip([*map(floatToGoString, _SECONDS), "+Inf"], accumulate(counts), strict=True)
            family.add_metric(labels, list(below), total)
        yield family


class Registry(CollectorRegistry):
    """Without the time of creation that the library adds to every counter: it doubles the series for no reader."""

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
