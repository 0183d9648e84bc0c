"""A body for each operation that takes one, in an order in which all of them are answered. A test sends them."""

from __future__ import annotations

from typing import Any

__all__ = ["BODIES"]

_HOT = "-6602768230544660556"

BODIES: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {
    ("PutStream", "PUT"): ({"partitions": 4, "policy": "balanced", "key_types": ["long"]},),
    ("ReportHistogram", "POST"): (
        {"source": "app/query", "batch": 1, "hashes": [_HOT, "42", "7"], "counts": [900, 60, 40]},
    ),
    ("BuildPlan", "POST"): ({"batch": 2},),
    ("Sync", "POST"): (
        {
            "report": {
                "agent": "executor-3",
                "session": 1,
                "seq": 1,
                "table": {
                    "workers": 4,
                    "hashes": ["42"],
                    "values": [[0.5, -2, -2, 0.1]],
                    "rows": [60],
                    "held": [[0, 3]],
                },
                "records": 100,
                "frequent": {"capacity": 16, "hashes": ["42"], "counts": [60], "total": 100},
                "loads": [40, 20, 20, 20],
                "dsync_seconds": 20,
            },
            "wait_seconds": 0,
        },
    ),
    ("ReportBatch", "POST"): (
        {
            "source": "app/query",
            "batch": 2,
            "partitions": [
                {"partition": 0, "rows": 250, "seconds": 1.5},
                {"partition": 1, "rows": 240, "seconds": 1.4},
            ],
            "interval_seconds": 10,
            "processing_seconds": 4.2,
            "map_seconds": 1.1,
            "reduce_seconds": 3.0,
        },
    ),
    ("Explain", "POST"): ({"key": [42]}, {"hash": _HOT}),
}
