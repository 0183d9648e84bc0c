"""The table: each figure, its mark, and the function that takes it."""

from __future__ import annotations

from benchmarks.reliability.attacks import attacked
from benchmarks.reliability.fuzz import fuzzed
from benchmarks.reliability.network import faults_by_verbs
from benchmarks.reliability.overload import overloaded
from benchmarks.reliability.rolling import rolling_restarts
from benchmarks.reliability.rounds import failed_over, walked
from benchmarks.reliability.soak import soaked
from benchmarks.reliability.spark_jobs import rows_lost, service_killed
from benchmarks.reliability.states import damaged_states
from benchmarks.reliability.store_outage import store_away
from benchmarks.reliability.suites import command, count
from benchmarks.reliability.taken import Figure

__all__ = ["FIGURES"]

_ROTATION = ("tests/attack/test_tls.py",)
_ACCESS = ("tests/service/test_access.py", "tests/service/test_cross_site.py")
_TABLE = (
    Figure(
        1,
        "executor killed, stage retried, speculation, driver restarted: rows lost or doubled",
        "0, N of N",
        rows_lost,
    ),
    Figure(2, "service killed in mid-job: batches failed", "0", service_killed),
    Figure(
        3,
        "store down, stopped, black-holed: added p99 of GetPlan; p99 of BuildPlan from the last plan",
        "<= 50 ms; <= 100 ms, marked stale",
        store_away,
    ),
    Figure(
        4,
        "100 Sentinel failovers and 100 cluster failovers under load: rounds lost without a new incarnation, doubled",
        "0",
        failed_over,
    ),
    Figure(5, "state-machine steps with a broken invariant", "0 of 1 M", walked),
    Figure(
        6,
        "rolling restart of three replicas under load, old and new release mixed: calls failed",
        "0",
        rolling_restarts,
    ),
    Figure(7, "1,000 chaos rounds: imbalance p95, p99", "<= 4 %, <= 10 %", command("benchmarks.chaos_rounds")),
    Figure(8, "network faults x RPCs: hangs past the deadline", "0", faults_by_verbs),
    Figure(9, "fuzz, 1 M inputs over both faces: 5xx, INTERNAL, crash, growth", "0", fuzzed),
    Figure(10, "5x overload: goodput of those within their limits; their p99", ">= 90 %; <= 5x", overloaded),
    Figure(11, "access matrix: bypasses", "0", count("checks failed", _ACCESS)),
    Figure(12, "corrupted or older state, release before and after: wrong routes", "0", damaged_states),
    Figure(13, "soak at 200 calls/s: growth of memory, descriptors, threads", "< 5 %, 0, 0", soaked),
    Figure(
        14,
        "certificates and tokens rotated under load: calls failed",
        "0",
        count("rotations failed a call", _ROTATION, "-k", "rotated_under_load"),
    ),
    Figure(
        15,
        "attacks with and without a credential: peak memory of a replica; the others' p99, and 5 s later",
        "< 1.5 GiB; <= 3x",
        attacked,
    ),
)
FIGURES = {one.number: one for one in _TABLE}
