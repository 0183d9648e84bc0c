"""Keys, histograms, planners, routers and operators."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from dalton import learned_table
from digest import Results, answer
from inputs import conformance_hashes, histograms, sampled, streams, zipf
from names import named

from tests.conformance.vectors import HERE, column, load
from unskew import wire
from unskew.core import Histogram, Plan, hash_keys, make_planner, make_router, quality
from unskew.core.planners import PLANNERS, Feedback, Origin
from unskew.core.routers import ROUTERS
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1 import plan_pb2

__all__ = ["counted", "keys", "operators", "planned", "routed", "without_words"]


def keys() -> Results:
    """Hashes of every key type of Spark, casts and composites, by both hashes."""
    vectors, spark_hash = load("hashes.json"), named("spark_hash")
    for file in sorted(HERE.glob("*.json")):
        if file.name == "reports.json":
            continue  # cases of rounds, which came with the rebuilt house: nothing is computed from keys
        yield f"file {file.name}", file.read_bytes()
    for part in vectors["columns"]:
        values = column(part["type"], part["values"])
        yield f"xxhash64 {part['type']}", hash_keys(values)
        yield f"hash {part['type']}", spark_hash(values)
    for part in vectors["casts"]:
        values = column(part["type"], part["values"])
        yield f"cast {part['type']} to {part['to']}", [f(values, types=[part["to"]]) for f in (hash_keys, spark_hash)]
    for part in vectors["composites"]:
        columns = [
            column(kind, list(v)) for kind, v in zip(part["types"], zip(*part["rows"], strict=True), strict=True)
        ]
        yield f"composite {part['types']}", [hash_keys(*columns), spark_hash(*columns)]
    for values in (["a", None, "é" * 40], [1, 2, None], [1.5, -0.0, float("nan")], np.arange(5), [b"x", b""], [True]):
        yield f"python {values!s:.30}", hash_keys(values)
    seeds = np.random.default_rng(1).integers(-(2**31), 2**31, 500).astype(np.int32)
    yield "placement salt", named("placement_salt")(seeds, np.arange(500, dtype=np.int32) % 64, 64)
    types = list(load("common_types.json")["left_right_common"])
    yield "common types", [answer(lambda a=a, b=b: str(named("common_type")(a, b))) for a, b in product(types, types)]


def counted() -> Results:
    """Histograms and sketches, and both as bytes."""
    part = wire.part_from_message(pb.Part(source="app", batch=3, run=1, part=0, parts=2))
    for name, one in histograms().items():
        yield f"values {name}", [one, one.total, one.keys, one.top(50)]
        data = wire.histogram_to_bytes(one)
        yield f"bytes {name}", [data, wire.histogram_from_bytes(data)]
        yield f"chunks {name}", [c.SerializeToString(deterministic=True) for c in wire.chunks(one, "s", part, 1000)]
    for name, stream in streams().items():
        yield f"frequent items {name}", named("FrequentItems")(64).update(stream)
        sketch = named("HyperLogLog")()
        sketch.update(stream)
        yield f"hyperloglog {name}", [sketch.estimate(), sketch.contains(stream[:99])]


def without_words(data: bytes, *more: str) -> bytes:
    """A plan's bytes without its reasons, which are text for people, and without these fields."""
    plan = plan_pb2.Plan.FromString(plan_pb2.PlanFile.FromString(data).body)
    for field in ("reason", "reasons", *more):
        plan.ClearField(field)
    return plan.SerializeToString(deterministic=True)


def of_plan(name: str, plan: Plan, histogram: Histogram, rows: np.ndarray, *, changed: bool = True) -> Results:
    data = wire.plan_to_bytes(plan)
    spread = np.random.default_rng(11).integers(0, 2**64, len(rows), np.uint64)
    hashes = [int(one) for one in (*histogram.top(4)[0], *rows[:3])]
    explained = [(e.kind, e.partitions, e.shares, e.rows) for e in map(plan.explain, hashes)]
    yield f"digest {name}", [plan.digest, changed]
    yield f"routes {name}", [plan.route(rows, spread), [plan.route_one(key, 1 << 63) for key in hashes], explained]
    yield f"loads {name}", [plan.loads(histogram), plan.cardinalities(histogram)]
    yield f"bytes {name}", without_words(data)
    yield f"bytes with reasons {name}", [data, wire.plan_to_bytes(wire.plan_from_bytes(data))]


def planned() -> Results:
    """Every planner on every histogram: numbers of partitions, weights, previous plans, what was observed."""
    made, rows = histograms(), np.concatenate([zipf(4_000, 3_000, 1.0), conformance_hashes()[:2_000]])
    table = learned_table(16)
    observed = Feedback(busy=(3, 1), idle=(5, 0), loads=np.arange(16), table=table, state=made["zipf 0.5"])
    for policy, (name, histogram) in product(PLANNERS, made.items()):
        for n in (1, 2, 16, 64):
            plan = make_planner(policy, n).plan(histogram)
            yield from of_plan(f"{policy}, {name}, n {n}", plan, histogram, rows)
        earlier = make_planner(policy, 16).plan(made["drifting 1.5"])
        fewer = make_planner(policy, 12).plan(made["zipf 1.0"])
        weights = np.linspace(0.5, 2.0, 16)
        for case, arguments in {
            "weights": ({"weights": weights, "seed": 3}, {}),
            "previous": ({}, {"previous": earlier}),
            "previous of 12": ({}, {"previous": fewer}),
            "observed": ({}, {"feedback": observed}),
            "all": ({"weights": weights}, {"previous": earlier, "feedback": observed}),
        }.items():
            ours = answer(lambda a=arguments, p=policy, h=histogram: make_planner(p, 16, **a[0]).decide(h, **a[1]))
            if isinstance(ours, str):
                yield f"digest {policy}, {name}, {case}", ours
            else:
                yield from of_plan(f"{policy}, {name}, {case}", ours.plan, histogram, rows, changed=ours.changed)
    for policy in PLANNERS:
        yield from of_plan(f"{policy}, n 2048", make_planner(policy, 2048).plan(made["merged"]), made["merged"], rows)


def routed() -> Results:
    """Every router on every stream, fed in two pieces, with and without windows and times; and how good it was."""
    windows = ({}, {"window": 3_000, "slide": 100}, {"window": 20.0, "slide": 2.5})
    for router, (name, stream), n, window in product(ROUTERS, streams().items(), (1, 7, 64), windows):
        half, times = len(stream) // 3, np.arange(len(stream)) / 97.0
        machine = make_router(router, n, seed=9, **window)
        when = (times[:half], times[half:]) if isinstance(window.get("window"), float) else (None, None)
        out = np.concatenate([machine.route(stream[:half], when[0]), machine.route(stream[half:], when[1])])
        yield f"{router}, {name}, n {n}, window {window.get('window')}", out
        if n == 7 and not window:
            measured = [quality.loads(out, n), quality.imbalance(out, n), quality.replication(stream, out)]
            measured += [quality.block_metrics(stream, out, n), quality.holistic(stream, out, n)]
            yield f"quality of {router}, {name}", measured


def operators() -> Results:
    """Joins, groups, keyed state, Prompt's allocation, and the number of tasks."""
    made, rng = histograms(), np.random.default_rng(8)
    rows, names = zipf(3_000, 3_000, 1.0), ("zipf 1.5", "zipf 0.5", "one key", "drifting 1.0")
    for how, left, right in product(("inner", "left", "right", "full", "left_semi"), names, names):
        sides = sampled(made[left], 150, 12), sampled(made[right], 90, 12)
        both = np.union1d(sides[0].hashes, sides[1].hashes)
        spread = {side: rng.integers(1, 50, len(both)) for side in ("left", "right")}
        for side in ("left", "right"):
            found = answer(lambda s=sides, h=how, b=both, p=spread, o=side: _join(h, *s, b, p, o))
            yield f"join {how}, {left} with {right}, {side}", found
    for name, histogram in made.items():
        plan = named("group_plan")(histogram, 24)
        yield from of_plan(f"group {name}", plan, histogram, rows)
        blocks = named("allocate")(histogram.hashes, histogram.counts // 2**10 + 1, histogram.counts > 9, 7, task=3)
        yield f"allocate {name}", blocks
    planner, placed = make_planner("kip", 16), make_planner("kip", 12).plan(made["zipf 1.5"])
    for name, histogram in made.items():
        history = named("History")(3).add(histogram)
        decided = named("next_plan")(planner, placed, history, rng.integers(0, 9, 4096), Origin(stream="s"))
        yield f"keyed state {name}", [decided.plan.digest, decided.changed]
    scaler = named("AutoScaler")(named("ScaleState")(p=4, r=8))
    stats = [(1.0, w, w / 3, w / 2, int(9e5 * w), 500 + i) for i, w in enumerate(rng.uniform(0.3, 1.4, 400))]
    decided = [scaler.handle(named("BatchStats")(*one)) for one in stats]
    yield "autoscaler", [(one.p, one.r, one.zone, one.action) for one in decided]


def _join(how: str, left: Histogram, right: Histogram, both: np.ndarray, spread: Any, side: str) -> Any:
    rows = named("JoinRows")(how, left, right, both, spread)
    found = named("join_plan")(rows, side, 16, named("JoinBounds")())
    return [found.plan.digest, found.side, found.left, found.right, found.output, found.replicated, found.whole]
