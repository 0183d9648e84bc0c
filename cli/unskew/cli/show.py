"""Shows a replay: a table with a verdict for people, one JSON document for programs. docs/whatif.md explains both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unskew.cli.read import Keys
from unskew.cli.replay import BatchResult, PolicyResult, Replay

__all__ = ["as_json", "as_table", "document", "table", "verdict"]

LEAVE_IT = 1.10  # DESIGN, promise 6: within 10 % of even there is nothing to gain (the bound of policy auto)
_WIDTH = 118
_HEADINGS = (
    "policy", "imbalance\nmedian", "imbalance\nworst", "planned", "replication\n(KSR)", "BSI\nrows", "BCI\nkeys",
    "moved\na plan", "plans", "makespan\n/ hash", "build\nms",
)  # fmt: skip


def as_table(keys: Keys, result: Replay, written: Iterable[Path] = ()) -> str:
    """The table for stdout, as wide as it needs to be where stdout is no terminal."""
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDTH)
    with console.capture() as shown:
        for line in heading(keys, result):
            console.print(Text(line), soft_wrap=True)
        console.print(table(result))
        for line in [*verdict(result), *(f"wrote {path}" for path in written)]:
            console.print(Text(line), soft_wrap=True)
    return shown.get()


def heading(keys: Keys, result: Replay) -> list[str]:
    """What was replayed, and how."""
    job, sizes = result.job, result.batch_rows
    key = ", ".join(f"{c} {t}" for c, t in zip(keys.columns, keys.types, strict=True))
    partitions = "1 partition" if job.partitions == 1 else f"{job.partitions} partitions"
    many = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches of {sizes[0]:,} rows"
    batch = "" if len(sizes) == 1 else f", the heaviest of a batch {result.heaviest_in_batch:.1%} (median)"
    return [
        f"{keys.name}: {result.rows:,} rows, {result.keys:,} distinct keys ({key}), {many}, {partitions}",
        f"The heaviest key has {result.heaviest:.1%} of all rows{batch}; "
        f"an even share of a partition is {1 / job.partitions:.1%}.",
        _how(result),
    ]


def _how(result: Replay) -> str:
    seen = "" if result.job.window == 1 else f" over {result.job.window} batches"
    if result.fresh == "previous":
        return (
            f"Each batch goes by the plan made from the batches before it{seen} (--fresh previous). "
            "The first finds none, goes by plain hash, and is not counted."
        )
    if result.job.fresh == "previous":
        return "There is one batch only, so it goes by a plan made from itself, as with --fresh same."
    return f"Each batch goes by a plan made from itself{seen} (--fresh same)."


def table(result: Replay) -> Table:
    """One line a policy; the shortest makespan stands out."""
    out = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(_HEADINGS):
        out.add_column(name, justify="right" if number else "left", no_wrap=True, vertical="bottom")
    best = min(p.relative_makespan for p in result.policies)
    for policy in result.policies:
        style = "bold green" if policy.relative_makespan == best < 1 else None
        out.add_row(*_cells(policy), style=style)
    return out


def _cells(p: PolicyResult) -> tuple[str, ...]:
    return (
        p.policy,
        f"{p.imbalance:.2f}",
        f"{p.worst_imbalance:.2f}",
        f"{p.planned_imbalance:.2f}",
        f"{p.replication:.3f}",
        f"{p.bsi:,.0f}",
        f"{p.bci:,.0f}",
        f"{p.moved_share:.1%}",
        f"{p.plans}",
        f"{p.relative_makespan:.2f}",
        f"{p.build_ms:.1f}",
    )


def verdict(result: Replay) -> list[str]:
    """What to do, in a sentence or two. Where hashing is even enough: nothing."""
    hashed = median(result.hash[number].imbalance for number in result.counted)
    if hashed <= LEAVE_IT:
        return [f"Do nothing: with plain hash the fullest partition is within {hashed - 1:.0%} of the mean."]
    tried = [p for p in result.policies if p.policy != "hash"]
    if not tried:
        return [f"Plain hash gives the fullest partition {hashed:.1f} times the mean. Try other policies: --policies."]
    best = min(tried, key=lambda p: p.relative_makespan)
    if best.relative_makespan > 0.95:
        return ["Leave it at plain hash: none of these policies would make a batch more than 5 % shorter."]
    lines = [f"Best here: {_praise(best, hashed)}."]
    whole = [p for p in tried if not p.splits]
    if best.splits and whole:
        kept = min(whole, key=lambda p: p.relative_makespan)
        if kept.relative_makespan <= 0.95:
            lines.append(f"Where a key may not be split: {_praise(kept, hashed)}.")
    return lines


def _praise(p: PolicyResult, hashed: float) -> str:
    return (
        f"{p.policy}, with batches in {p.relative_makespan:.2f} of the time that plain hash is predicted to take "
        f"(fullest partition {p.imbalance:.2f} times the mean instead of {hashed:.2f})"
    )


def as_json(keys: Keys, result: Replay) -> str:
    """One JSON document, with its line end."""
    return json.dumps(document(keys, result), indent=2) + "\n"


def document(keys: Keys, result: Replay) -> dict[str, Any]:
    """Everything that was measured. ``plain_hash`` is there whether or not hash was among the policies."""
    job = result.job
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
        "window_batches": job.window,
        "seed": job.seed,
        "fresh": result.fresh,
        "fresh_asked": job.fresh,
        "plain_hash": [{"imbalance": r.imbalance, "loads": list(r.loads)} for r in result.hash],
        "policies": [_policy(p) for p in result.policies],
        "verdict": verdict(result),
    }


def _policy(p: PolicyResult) -> dict[str, Any]:
    return {
        "policy": p.policy,
        "splits": p.splits,
        "imbalance": {"median": p.imbalance, "worst": p.worst_imbalance, "planned": p.planned_imbalance},
        "replication": p.replication,
        "ksr": p.replication,
        "bsi": p.bsi,
        "bci": p.bci,
        "moved_share": p.moved_share,
        "plans": p.plans,
        "makespan_relative_to_hash": p.relative_makespan,
        "build_ms": p.build_ms,
        "last_plan": {"version": str(p.plan.version), "digest": p.plan.digest, "reason": p.plan.info.reason},
        "batches": [_batch(b) for b in p.batches],
    }


def _batch(b: BatchResult) -> dict[str, Any]:
    return {
        "batch": b.number,
        "rows": b.rows,
        "imbalance": b.routed.imbalance,
        "planned_imbalance": b.planned,
        "replication": b.routed.ksr,
        "bsi": b.routed.bsi,
        "bci": b.routed.bci,
        "makespan": b.routed.makespan,
        "moved_share": b.moved,
        "new_plan": b.new_plan,
        "build_ms": 1000 * b.build_seconds,
        "loads": list(b.routed.loads),
    }
