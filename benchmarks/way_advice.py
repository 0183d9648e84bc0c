"""What it costs a service to advise, with each batch's plan, how fresh the counts of the batch should be.

``draft``, which replicas run off their loop, makes the plans of one stream batch by batch (policy ``auto``, Zipf 1.5,
other heavy keys every third batch), once with the advice and once without, in turns. Printed for each cell, as medians:
both in milliseconds, their ratio (mark: at most 2, as much as another plan), the whole ``BuildPlan`` on the memory
store with the advice, and the bytes that are stored beside the latest plan over those of the plan.

Run: ``python -m benchmarks.way_advice`` (1 minute)
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter

import numpy as np

from unskew.core.freshness.stream_planner import StreamPlanner
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Version
from unskew.core.planners import Feedback
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.engine.batches import Evidence
from unskew.service.engine.engine import Engine
from unskew.service.engine.planning import Draft, PlanRequest, draft
from unskew.service.engine.way_advice import Batch, WayAdvice
from unskew.service.stores.memory import MemoryStore
from unskew.simulate.key_streams import zipf_keys
from unskew.wire import plan_from_bytes
from unskew.wire.ways import ways_from_bytes

CELLS = ((10_000, 16), (60_000, 64), (1_000_000, 64))
MOST = 2.0


@dataclass
class Cell:
    """Milliseconds, and bytes over bytes, of each batch."""

    advised: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(self.advised) / median(self.bare)


def histograms(rows: int, batches: int) -> Iterator[Histogram]:
    for number in range(batches):
        keys = zipf_keys(np.random.default_rng(number), rows, rows, 1.5).astype(np.uint64)
        shift = np.uint64(1_000_003 * (number // 3))
        yield Histogram.from_hashes((keys + shift) * np.uint64(0x9E3779B97F4A7C15))


def timed(request: PlanRequest, into: list[float]) -> Draft:
    began = perf_counter()
    made = draft(request)
    into.append((perf_counter() - began) * 1e3)
    return made


def drafts(batches: list[Histogram], spec: StreamSpec, cell: Cell) -> None:
    record, numbered = StreamPlanner("s", spec).record, list[Batch]()
    request = PlanRequest("s", spec, 0, Evidence(None, ""), Feedback(), "", Version(1, 0))
    for number, histogram in enumerate(batches):
        record, numbered = record.add(histogram), [*numbered, (number, histogram)][-spec.history :]
        evidence, version = Evidence(record.merged(), "from batches", numbered), Version(1, number + 1)
        request = replace(request, evidence=evidence, purpose=f"batch:{number + 1}:previous", version=version)
        bare = replace(request, evidence=replace(evidence, batches=None))
        first, second = (bare, request) if number % 2 else (request, bare)
        made = {each: timed(each, cell.advised if each is request else cell.bare) for each in (first, second)}[request]
        plan, stored = plan_from_bytes(made.data), ways_from_bytes(made.ways)
        cell.stored.append(len(made.ways) / len(made.data))
        request = replace(request, previous=plan, ways=WayAdvice(made.advice, stored, plan))


async def whole(batches: list[Histogram], spec: StreamSpec, cell: Cell) -> None:
    engine = Engine(MemoryStore(lambda: 1.0))
    await engine.put_stream("s", spec)
    for number, histogram in enumerate(batches):
        await engine.report_histogram("s", Part("app", number), histogram)
        began = perf_counter()
        await engine.build_plan("s", number + 1)
        cell.whole.append((perf_counter() - began) * 1e3)
    await engine.close()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batches", type=int, default=24)
    args = options.parse_args()
    worst = 0.0
    print("      rows    n     keys   with ms  without ms  ratio  BuildPlan ms  stored / plan")
    for rows, n in CELLS:
        batches, cell, spec = list(histograms(rows, args.batches)), Cell(), StreamSpec(n)
        drafts(batches, spec, cell)
        asyncio.run(whole(batches, spec, cell))
        worst = max(worst, cell.ratio)
        print(
            f"{rows:10,} {n:4} {batches[0].keys:8,} {median(cell.advised):9.1f} {median(cell.bare):11.1f}"
            f" {cell.ratio:6.2f} {median(cell.whole):13.1f} {median(cell.stored):14.2f}"
        )
    print(f"worst ratio {worst:.2f} (mark {MOST:.1f}): {'held' if worst <= MOST else 'missed'}")
    return int(worst > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
