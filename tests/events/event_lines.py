"""Lines of an event log, made by hand: one application with one skewed stage, to be spoilt in tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

Event = dict[str, Any]
HERE = Path(__file__).parent
LOGS = sorted((HERE / "logs").glob("*.zstd"))
SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQL"


def task(index: int, seconds: float, records: int, *, stage: int = 0, attempt: int = 0, **others: Any) -> Event:
    """The end of a task. ``others``: ``host``, ``reason``, ``gc`` in seconds."""
    ended, host = 2_000 + int(seconds * 1e3), others.get("host", "h")
    info = {"Index": index, "Launch Time": 2_000, "Finish Time": ended, "Host": host}
    metrics = {
        "Executor Run Time": int(seconds * 1e3),
        "JVM GC Time": int(others.get("gc", 0) * 1e3),
        "Memory Bytes Spilled": 0,
        "Shuffle Read Metrics": {"Total Records Read": records, "Local Bytes Read": 10 * records},
    }
    return {
        "Event": "SparkListenerTaskEnd", "Stage ID": stage, "Stage Attempt ID": attempt,
        "Task End Reason": {"Reason": others.get("reason", "Success")}, "Task Info": info, "Task Metrics": metrics,
    }  # fmt: skip


def stage_info(kind: str, *, stage: int = 0, tasks: int = 16, name: str = "collect at job.py:3") -> Event:
    info: Event = {"Stage ID": stage, "Stage Name": name, "Number of Tasks": tasks, "Parent IDs": [9]}
    info["Submission Time"] = 2_000
    if kind == "Completed":
        info |= {"Completion Time": 40_000, "Accumulables": [{"ID": 5, "Name": "records read"}]}
    return {"Event": f"SparkListenerStage{kind}", "Stage Info": info}


def plan(key: str = "user#1L") -> Event:
    reads = [{"name": "records read", "accumulatorId": 5}]
    text = f"Exchange hashpartitioning({key}, 16), ENSURE_REQUIREMENTS"
    exchange = {"nodeName": "Exchange", "simpleString": text, "metrics": reads, "children": []}
    groups = f"FlatMapGroupsInPandas [{key}], f()"
    return {"nodeName": "FlatMapGroupsInPandas", "simpleString": groups, "metrics": [], "children": [exchange]}


def events(name: str = "nightly", key: str = "user#1L") -> list[Event]:
    """One hot task of thirty seconds beside fifteen of one."""
    seconds = [30.0, *[1.0] * 15]
    query = {"executionId": 0, "description": "save at job.py:9", "sparkPlanInfo": plan(key)}
    return [
        {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
        {"Event": "SparkListenerApplicationStart", "App Name": name, "App ID": "app-1", "Timestamp": 1_000},
        {"Event": "SparkListenerExecutorAdded", "Executor ID": "1", "Executor Info": {"Host": "h", "Total Cores": 4}},
        {"Event": f"{SQL}ExecutionStart", **query},
        {"Event": "SparkListenerJobStart", "Stage IDs": [0], "Properties": {"spark.sql.execution.id": "0"}},
        stage_info("Submitted"),
        *[task(index, each, int(100 * each)) for index, each in enumerate(seconds)],
        stage_info("Completed"),
        {"Event": f"{SQL}ExecutionEnd", "executionId": 0},
        {"Event": "SparkListenerApplicationEnd", "Timestamp": 101_000},
    ]


def text(lines: Iterable[Event]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def lz4(data: bytes, block: int = 1 << 12) -> bytes:
    """As Java's LZ4BlockOutputStream writes it, a block that does not shrink as it is."""
    codec, parts = pa.Codec("lz4_raw"), []
    for at in range(0, len(data), block):
        raw = data[at : at + block]
        packed = codec.compress(raw, asbytes=True)
        token, kept = (0x20, packed) if len(packed) < len(raw) else (0x10, raw)
        check = xxhash.xxh32(raw, seed=0x9747B28C).intdigest() & 0x0FFFFFFF
        parts.append(struct.pack("<8sBiiI", b"LZ4Block", token | 6, len(kept), len(raw), check) + kept)
    return b"".join(parts) + struct.pack("<8sBiiI", b"LZ4Block", 0x16, 0, 0, 0)


def write(path: Path, lines: Sequence[Event]) -> Path:
    path.write_bytes(text(lines))
    return path
