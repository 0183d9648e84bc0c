"""The service under fuzz: the real one in a process of its own, that tells what it holds when it is asked.

``python -m tests.fuzz.served STORE`` prints its ports as a line of JSON; each line that comes in is answered with a
look at itself. What is logged as an error or warned of is in the look too: no caller sees those, and they are faults.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from unskew.service.app.main import Running, build
from unskew.service.app.settings import Settings
from unskew.service.engine.engine import Engine
from unskew.service.events.metrics import Metrics
from unskew.service.lru_cache import LruCache

_DEEP = 6
_STATUS, _FILES = Path("/proc/self/status"), Path("/proc/self/fd")
_BY_CODE = {"unskew_rpc_seconds", "unskew_store_seconds"}  # a series for each that was seen: as many as there are codes


class _Complaints(logging.Handler):
    """What is logged as a warning or worse, in words."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.said) < 50:
            self.said.append(self.format(record)[-4000:])


def _only(kind: type[Any]) -> Any:
    return next(one for one in gc.get_objects() if type(one) is kind)


def _kept(of: Any, path: str, found: dict[str, int], seen: set[int], deep: int = 0) -> None:
    """How much is in each container that can be reached from here through objects of the service; caches left out whose
    size is bounded."""
    if id(of) in seen or deep > _DEEP:
        return
    seen.add(id(of))
    if isinstance(of, (dict, list, set, frozenset)):
        if not isinstance(of, LruCache):
            found[path] = found.get(path, 0) + len(of)
        values = list(of.values()) if isinstance(of, dict) else list(of)
        for value in values:
            _kept(value, f"{path}[]", found, seen, deep + 1)
    elif type(of).__module__.startswith("unskew.service"):
        slots = [name for name in getattr(type(of), "__slots__", ()) if hasattr(of, name)]
        members = {**getattr(of, "__dict__", {}), **{name: getattr(of, name) for name in slots}}
        for name, value in members.items():
            _kept(value, f"{path}.{name}", found, seen, deep + 1)


def _memory() -> int:
    """Resident bytes, after what is free was given back; 0 where the system does not say so."""
    gc.collect()
    if not _STATUS.exists():
        return 0
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    line = next(line for line in _STATUS.read_text("ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def _look(engine: Engine, complaints: _Complaints) -> dict[str, Any]:
    kept: dict[str, int] = {}
    _kept(engine, "engine", kept, set())
    metrics = _only(Metrics)
    series = sum(len(family.samples) for family in metrics.registry.collect() if family.name not in _BY_CODE)
    calls = sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "unskew_rpc_seconds_count"
    )
    said, complaints.said = complaints.said, []
    return {
        "memory": _memory(),
        "objects": len(gc.get_objects()),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "files": len(list(_FILES.iterdir())) if _FILES.exists() else 0,
        "kept": kept,
        "series": series,
        "calls": int(calls),
        "said": said,
    }


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _serve(store: str) -> None:
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    logging.captureWarnings(capture=True)
    running: Running = await build(Settings(http_port=0, grpc_port=0, metrics_port=0, store=store, drain=5.0))
    engine = _only(Engine)
    _tell(running.ports)
    try:
        while await asyncio.to_thread(sys.stdin.readline):
            _tell(_look(engine, complaints))
    finally:
        await running.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
