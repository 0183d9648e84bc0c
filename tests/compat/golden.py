"""Files that outlive a release: plans, pins and manifests, written and read again by whichever release runs this.

    python tests/compat/golden.py write FOLDER     # what this release writes, and told.json: what a reader must find
    python tests/compat/golden.py check FOLDER

Each release's files are kept in `tests/compat/golden/<release>` and read by all later ones (docs/releasing.md). It
imports what the first release with such files has too, under either name (``either.py``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.core import Histogram, make_planner
from unskew.core.planners import Origin
from unskew.wire import manifests, pinned_from_bytes, pinned_to_bytes, plan_from_bytes, plan_to_bytes

if TYPE_CHECKING:
    from unskew.core.dalton.qtable import QTable
    from unskew.core.operators.keyed_plan import HOSTS, KIP, first_plan, history_of, next_plan, shortened, with_batch
    from unskew.core.operators.keyed_state import StateFile, StatePart
    from unskew.core.plan.plan import Plan, Version
    from unskew.core.rounds.partition_agent import RoutingChoice
    from unskew.wire.manifests import TaskResult, task_result_from_bytes, task_result_to_bytes
    from unskew.wire.pins import StoredPin
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from either import either

    QTable = either("core.dalton.qtable:QTable", "core.qtable:QTable")
    HOSTS = either("core.operators.keyed_plan:HOSTS", "core.keyed_plan:HOSTS")
    KIP = either("core.operators.keyed_plan:KIP", "core.keyed_plan:KIP")
    first_plan = either("core.operators.keyed_plan:first_plan", "core.keyed_plan:first_plan")
    history_of = either("core.operators.keyed_plan:history_of", "core.keyed_plan:record_of")
    next_plan = either("core.operators.keyed_plan:next_plan", "core.keyed_plan:next_plan")
    shortened = either("core.operators.keyed_plan:shortened", "core.keyed_plan:brief")
    with_batch = either("core.operators.keyed_plan:with_batch", "core.keyed_plan:lengthened")
    StateFile = either("core.operators.keyed_state:StateFile", "core.keyed_state:StateFile")
    StatePart = either("core.operators.keyed_state:StatePart", "core.keyed_state:StatePart")
    Plan = either("core.plan.plan:Plan", "core.plan:Plan")
    Version = either("core.plan.plan:Version", "core.plan:Version")
    RoutingChoice = either("core.rounds.partition_agent:RoutingChoice", "core.partition_agent:Bound")
    StoredPin = either("wire.pins:StoredPin", "wire.pins:Pinned")
    TaskResult = either("wire.manifests:TaskResult", "wire.manifests:Done")
    task_result_to_bytes = either("wire.manifests:task_result_to_bytes", "wire.manifests:done_to_bytes")
    task_result_from_bytes = either("wire.manifests:task_result_from_bytes", "wire.manifests:done_from_bytes")

__all__ = ["check", "write"]

# Named, not listed by reflection: a later release may add some.
FIGURES = ("rows", "keys", "created", "forgotten", "expired", "moved", "bytes_read", "bytes_written", "bytes_output")

HASHES = np.arange(1, 201, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
COUNTS = (20_000 / np.arange(1, 201) ** 1.3).astype(np.int64)
SPREAD = np.arange(200, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
ORIGIN = Origin(stream="clicks", batch=3, key_types=("string",), version=Version(1_700_000_000_000_000, 1))


def plan_of(policy: str) -> Plan:
    return make_planner(policy, 6).plan(Histogram.from_counts(HASHES, COUNTS), origin=ORIGIN)


def pin_of(bound: RoutingChoice) -> StoredPin:
    return StoredPin(bound, "clicks", "q", ("user",), ("auto",), 1_700_000_000_000, "because", ("id",))


def learned() -> QTable:
    held = np.zeros((3, 6), np.bool_)
    held[0, :4] = held[1, 5] = held[2, 0] = True
    return QTable(np.sort(HASHES[:3]), np.linspace(-1, 1, 18).reshape(3, 6), np.array([900, 60, 40]), held)


def manifest() -> manifests.Manifest:
    planner = make_planner("kip", 6, **KIP)
    plan = first_plan(planner, ORIGIN)
    record = with_batch(history_of(), [shortened(Histogram.from_counts(HASHES, COUNTS), 50)], 6)
    keys = np.arange(HOSTS) % 9
    decided = next_plan(planner, plan, record, keys, ORIGIN)
    part = StatePart((StateFile("3-0-ab.state", 900, 0), StateFile("4-0-cd.state", 500, 420)), 77, 2**63 + 5, -12)
    figures = manifests.Figures(*range(1, 11))
    parts, outputs = (part, StatePart()), ("a.parquet",)
    return manifests.Manifest(
        7, plan, decided.plan, decided.reason, parts, outputs, figures, keys, record, 1_700_000_000_000_000
    )


def done() -> TaskResult:
    change = np.zeros(HOSTS, np.int64)
    change[[0, 17, 4095]] = [3, -4, 1]
    rows = shortened(Histogram.from_counts(HASHES, COUNTS), 10)
    return TaskResult(3, manifest().parts[0], "out", manifests.Figures(rows=9), rows, change, None)


IDENTITY = manifests.Identity("6e0a", "clicks", "q", ("user",), ("string",), "struct<n:bigint>", "at")

WRITTEN: dict[str, Callable[[], bytes]] = {
    "plan-balanced.pb": lambda: plan_to_bytes(plan_of("balanced")),
    "plan-kip.pb": lambda: plan_to_bytes(plan_of("kip")),
    "pin-plan.pb": lambda: pinned_to_bytes(pin_of(RoutingChoice(6, plan_of("balanced"), batch=3))),
    "pin-table.pb": lambda: pinned_to_bytes(
        pin_of(RoutingChoice(6, table=learned(), records=1000, version=(1_700_000_000_000_000, 4), batch=5, seed=-3))
    ),
    "identity.pb": lambda: manifests.identity_to_bytes(IDENTITY),
    "manifest.pb": lambda: manifests.manifest_to_bytes(manifest()),
    "done.pb": lambda: task_result_to_bytes(done()),
}


def told_of_plan(plan: Plan | None) -> object:
    return None if plan is None else {"digest": plan.digest, "routes": plan.route(HASHES, SPREAD).tolist()}


def told_of_pin(data: bytes) -> object:
    pin = pinned_from_bytes(data)
    bound, table = pin.bound, pin.bound.table
    columns = pin.spread_columns if hasattr(pin, "spread_columns") else pin.told
    return {
        "plan": told_of_plan(bound.plan),
        "table": None if table is None else [table.hashes.tolist(), table.values.tolist(), table.rows.tolist()],
        "bound": [bound.partitions, bound.records, list(bound.version), bound.batch, bound.seed],
        "about": [pin.stream, pin.name, list(pin.key), list(pin.spread), pin.began, pin.reason, list(columns)],
    }


def told_of_identity(data: bytes) -> object:
    found = manifests.identity_from_bytes(data)
    return [found.query, found.stream, found.name, found.key_names, found.key_types, found.state, found.time]


def told_of_part(part: StatePart) -> object:
    files = [[file.name, file.size, file.live] for file in part.files]
    return [files, part.index_bytes, part.index_digest, part.least]


def told_of_manifest(data: bytes) -> object:
    found = manifests.manifest_from_bytes(data)
    return {
        "plans": [told_of_plan(found.plan), told_of_plan(found.next_plan)],
        "about": [found.batch, found.reason, sorted(found.files), list(found.outputs), found.keys, found.latest],
        "parts": [told_of_part(part) for part in found.parts],
        "figures": [getattr(found.figures, name) for name in FIGURES],
        "history": [int(found.history.merged().total), len(found.history.batches)],
    }


def told_of_done(data: bytes) -> object:
    found = task_result_from_bytes(data)
    figures = [getattr(found.figures, name) for name in FIGURES]
    about = [found.partition, found.output, told_of_part(found.part), figures, found.latest]
    added = found.keys_added if hasattr(found, "keys_added") else found.grown
    return {"about": about, "rows": int(found.rows.total), "grown": np.flatnonzero(added).tolist()}


READ: dict[str, Callable[[bytes], object]] = {
    "plan": lambda data: told_of_plan(plan_from_bytes(data)),
    "pin": told_of_pin,
    "identity": told_of_identity,
    "manifest": told_of_manifest,
    "done": told_of_done,
}


def read(file: Path) -> object:
    return json.loads(json.dumps(READ[file.stem.partition("-")[0]](file.read_bytes())))


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in WRITTEN.items():
        (folder / name).write_bytes(make())
    told: dict[str, Any] = {name: read(folder / name) for name in WRITTEN}
    (folder / "told.json").write_text(json.dumps(told) + "\n")


def check(folder: Path) -> list[str]:
    """The files in which this release finds something else than was told by the one that wrote them."""
    told = json.loads((folder / "told.json").read_text())
    return [name for name, wanted in told.items() if read(folder / name) != wanted]


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "write":
        write(where)
    elif other := check(where):
        sys.exit(f"read otherwise than they were written: {', '.join(other)}")
