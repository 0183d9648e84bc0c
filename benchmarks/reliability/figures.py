"""The table: each figure, its mark, and the function that takes it. A figure that comes later adds one line."""

from __future__ import annotations

from benchmarks.reliability.network import faults_by_verbs
from benchmarks.reliability.store_outage import store_away
from benchmarks.reliability.taken import Figure

__all__ = ["FIGURES"]

FIGURES = {
    one.number: one
    for one in (
        Figure(3, "store down", "<= 50 ms", store_away),
        Figure(8, "network", "0", faults_by_verbs),
    )
}
