"""What leaves the process: bytes that are kept or sent, the command line, the service."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import xxhash
from dalton import report
from digest import Results
from inputs import histograms, zipf
from names import named
from plans import without_words

from unskew import wire
from unskew.core import Plan, make_planner
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1 import pins_pb2, state_pb2

__all__ = ["command_line", "kept", "service"]


def kept() -> Results:
    """Pins, manifests, specs and reports of work: bytes made from messages, read and written again."""
    plans = [make_planner(policy, 8).plan(h) for policy in ("kip", "balanced") for h in histograms().values()]
    tables = [None, pb.SyncReport.FromString(wire.report_to_bytes(report("a", 20, 8, 3))).table]
    for at, plan in enumerate(plans):
        pin = pins_pb2.Pin(first_batch=at, stream="s", name="n", partitions=8, key=["k", "j"], spread=["v"], seed=-at)
        pin.MergeFrom(
            pins_pb2.Pin(records=at, incarnation=9, epoch=at, began=5, reason="r", told=["v"], kinds=["k int"])
        )
        pin.MergeFrom(pins_pb2.Pin(table=tables[at % 2], plan=b"" if at % 2 else wire.plan_to_bytes(plan)))
        data = _summed(pin)
        yield f"pin {at}", [data, named("pin_to_bytes")(named("pin_from_bytes")(data))]
    yield from manifests(plans)
    spec = pb.StreamSpec(partitions=8, policy="kip", weights=[1.0, 0.5] * 4, seed=3, key_types=["int"], history=4)
    spec.parameters.update({"slack": 0.25, "factor": 2.0})
    yield "spec", [wire.spec_to_bytes(wire.spec_from_message(spec)), wire.spec_from_message(spec)]
    work = [pb.PartitionWork(partition=i, rows=9 * i, keys=i, fragments=i, seconds=i / 7, queue=i) for i in range(8)]
    batch = pb.ReportBatchRequest(partitions=work, interval_seconds=1.0, processing_seconds=0.7, map_seconds=0.2)
    yield "work", wire.work_to_bytes(wire.work_from_message(batch), 12.5)


def manifests(plans: list[Plan]) -> Results:
    from unskew.wire import manifests as pages

    part = state_pb2.StatePart(files=[state_pb2.StateFile(name="f", size=9, live=4)], index_bytes=3, index_digest=7)
    counts = state_pb2.StateCounts(hash=[3, 9], rows=[5, 1], host=[1], host_rows=[8], host_keys=[2])
    figures = state_pb2.StateFigures(rows=14, keys=4, created=2, moved=1, bytes_read=99)
    for at, plan in enumerate(plans[:6]):
        whole = state_pb2.StateManifest(batch=at, plan=wire.plan_to_bytes(plan), reason="r", parts=[part] * 8)
        whole.MergeFrom(state_pb2.StateManifest(figures=figures, host_keys=[1] * 4096, history=[counts] * at, latest=4))
        yield f"manifest {at}", pages.manifest_to_bytes(pages.manifest_from_bytes(_summed(whole)))
    done = state_pb2.StateDone(partition=3, part=part, output="o", figures=figures, rows=counts, host=[4], grown=[-2])
    read = getattr(pages, "task_result_from_bytes", None) or pages.done_from_bytes
    write = getattr(pages, "task_result_to_bytes", None) or pages.done_to_bytes
    yield "done", write(read(_summed(done)))
    owner = state_pb2.StateIdentity(format=1, query="q", stream="s", name="n", key_names=["k"], key_types=["int"])
    yield "identity", pages.identity_to_bytes(pages.identity_from_bytes(_summed(owner)))


def _summed(message: Any) -> bytes:
    body = message.SerializeToString(deterministic=True)
    return xxhash.xxh64_digest(body) + body


TIMES = ("build_ms", "ns_per_tuple")


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in TIMES}
    return list(map(without_times, value)) if isinstance(value, list) else value


def command_line() -> Results:
    """``policies``, ``whatif`` and ``explain``, as documents; the files of plans that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        file, plans = Path(folder) / "keys.csv", Path(folder) / "plans"
        with file.open("w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([["key"], *([f"user-{one % 3000}"] for one in zipf(30_000, 3_000, 1.2).tolist())])
        replay = ("whatif", str(file), "--column", "key", "--batch", "6000", "--json")
        names = ",".join([*PLANNERS, *(name for name in ROUTERS if name not in PLANNERS)])
        yield "policies", _json("policies", "--json")
        yield "whatif", _json(*replay, "--policies", names, "--window", "12000", "--save-plans", str(plans))
        yield "whatif --fresh same", _json(*replay, "--fresh", "same", "--weights", ",".join("1248" * 4))
        yield "whatif --agents", _json(*replay, "--policies", "dalton,pk2,cg", "--agents", "5", "--dsync", "2000")
        for file in sorted(plans.glob("*.plan")):
            yield f"file {file.name}", [file.read_bytes(), without_words(file.read_bytes())]
            yield f"explain {file.name}", [_json("explain", str(file), f"user-{i}", "--json") for i in (1, 7)]


def _json(*arguments: str) -> Any:
    run = "import sys; from unskew.cli.entry import main; sys.argv[0] = 'unskew'; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", run, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"unskew {' '.join(arguments)}: {done.stderr[-300:]}")
    return without_times(json.loads(done.stdout))


def service() -> Results:
    """Plans of the service, fetched by the client."""
    from unskew.client.testing import embedded

    made = histograms()
    with embedded() as server, server.client() as client:
        for policy, name in product(PLANNERS, ("zipf 1.5", "sampled 12 bits", "merged")):
            stream = f"{policy}-{name.replace(' ', '-')}"
            client.put_stream(stream, partitions=16, policy=policy)
            built = client.build_plan(stream, histogram=made[name])
            fetched = wire.plan_to_bytes(client.get_plan(stream).plan)
            yield (
                f"{policy}, {name}",
                [built.plan.digest, str(built.outcome), without_words(fetched, "version")],
            )
