"""A replay as one JSON document: everything that was measured."""

from __future__ import annotations

import json
from typing import Any

from unskew.cli.whatif.key_file import Keys
from unskew.cli.whatif.measure import RoutedBatch, WindowFigures
from unskew.cli.whatif.report import recommended, verdict
from unskew.cli.whatif.results import BatchResult, PlannedBatch, PolicyResult, Replay

__all__ = ["as_json", "document"]


def as_json(keys: Keys, result: Replay) -> str:
    """One JSON document, with its line end."""
    return json.dumps(document(keys, result), indent=2) + "\n"


def document(keys: Keys, result: Replay) -> dict[str, Any]:
    """Everything that was measured. ``plain_hash`` is always in it, also if hash was not among the policies."""
    job, rule = result.job, recommended(result) if result.job.routers else None
    return {
        "file": keys.name,
        "columns": list(keys.columns),
        "key_types": list(keys.types),
        "rows": result.rows,
        "keys": result.keys,
        "heaviest_key_share": result.heaviest,
        "heaviest_key_share_in_batch": result.heaviest_in_batch,
        "partitions": job.partitions,
        "weights": None if job.weights is None else list(job.weights),
        "batch": job.batch,
        "batch_rows": list(result.batch_rows),
        "counted_batches": list(result.counted),
        "window_batches": job.record.depth,
        "sliding_window": _sliding(result),
        "agents": job.agents,
        "dsync": job.dsync,
        "seed": job.seed,
        "fresh": result.fresh,
        "fresh_asked": job.fresh,
        "count_cost": job.count_cost,
        "plain_hash": [{"imbalance": r.imbalance, "loads": list(r.loads)} for r in result.hash],
        "policies": [_policy(p) for p in result.policies],
        "routers": [_router(p) for p in result.routers],
        "verdict": verdict(result),
        "selection_rule": None if rule is None else {"router": rule.router, "reason": rule.reason},
    }


def _sliding(result: Replay) -> dict[str, Any] | None:
    sliding = result.job.sliding
    if sliding is None:
        return None
    return {"window": sliding.whole, "slide": sliding.slide, "unit": "seconds" if result.timed else "rows"}


def _figures(p: PolicyResult, **planned: float) -> dict[str, Any]:
    """What planners and routers have in common."""
    return {
        "policy": p.policy,
        "splits": p.splits,
        "imbalance": {"median": p.imbalance, "mean": p.mean_imbalance, "worst": p.worst_imbalance, **planned},
        "replication": p.replication,
        "mean_replication": p.mean_replication,
    }


def _policy(p: PolicyResult) -> dict[str, Any]:
    assert p.plan is not None
    return {
        **_figures(p, planned=p.planned_imbalance),
        "ksr": p.replication,
        "bsi": p.bsi,
        "bci": p.bci,
        "moved_share": p.moved_share,
        "plans": p.plans,
        "makespan_relative_to_hash": p.relative_makespan,
        "cost": p.cost,
        "ways": dict(p.ways),
        "taken": list(p.taken),
        "build_ms": p.build_ms,
        "windows": _windows(p.windows),
        "last_plan": {"version": str(p.plan.version), "digest": p.plan.digest, "reason": p.plan.info.reason},
        "batches": [_batch(*pair) for pair in zip(p.batches, p.planned, strict=True)],
    }


def _router(p: PolicyResult) -> dict[str, Any]:
    return {
        **_figures(p),
        "makespan_relative_to_hash": p.relative_makespan,
        "ns_per_tuple": p.ns_per_tuple,
        "windows": _windows(p.windows),
        "batches": [{"batch": b.number, "rows": b.rows, **_routed(b.routed)} for b in p.batches],
    }


def _windows(figures: WindowFigures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {
        "windows": figures.windows,
        "imbalance": {"mean": figures.imbalance, "worst": figures.worst_imbalance},
        "mean_replication": figures.replication,
    }


def _batch(b: BatchResult, planned: PlannedBatch) -> dict[str, Any]:
    return {
        "batch": b.number,
        "rows": b.rows,
        "planned_imbalance": planned.imbalance,
        "moved_share": planned.moved,
        "new_plan": planned.new_plan,
        "build_ms": 1000 * planned.build_seconds,
        **_routed(b.routed),
    }


def _routed(routed: RoutedBatch) -> dict[str, Any]:
    return {
        "imbalance": routed.imbalance,
        "replication": routed.ksr,
        "bsi": routed.bsi,
        "bci": routed.bci,
        "makespan": routed.makespan,
        "loads": list(routed.loads),
    }
