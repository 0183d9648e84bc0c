"""Write tests/conformance/plan_v1.json: a small plan as format 1 writes it, and routes to check a reader with.

Run it only when a new format is introduced; format 1 never changes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from unskew.core import Histogram, hash_keys, make_planner
from unskew.core.plan.plan import Version
from unskew.core.planners import Origin
from unskew.wire import plan_to_bytes

OUT = Path(__file__).parent.parent / "tests" / "conformance" / "plan_v1.json"


def main() -> None:
    words = [f"word-{i}" for i in range(200)]
    hashes = hash_keys(words)
    counts = (20_000 / np.arange(1, 201) ** 1.3).astype(np.int64)
    origin = Origin(stream="golden", batch=3, key_types=("string",), version=Version(1_700_000_000_000_000, 1))
    plan = make_planner("balanced", 6).plan(Histogram.from_counts(hashes, counts), origin=origin)
    spreads = [0, 1, 2**62, 2**63 - 1, 2**63, 2**63 + 12345, 3 * 2**62, 2**64 - 1]
    keys = [int(h) for h in hashes[:12]] + [0, 42, 2**64 - 1]
    routes = [[str(k), str(s), plan.route_one(k, s)] for k in keys for s in spreads]
    golden = {
        "about": "unskew plan, format 1: bytes in hex; routes are [key hash, spread hash, partition]",
        "digest": plan.digest,
        "routes": routes,
        "bytes": plan_to_bytes(plan).hex(),
    }
    OUT.write_text(json.dumps(golden, indent=0) + "\n")
    print(f"wrote {OUT}: {len(routes)} routes")


if __name__ == "__main__":
    main()
