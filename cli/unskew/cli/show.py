"""Shows a replay: a table with a verdict for people, one JSON document for programs. docs/whatif.md explains both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unskew.cli.read import Keys
from unskew.cli.replay import BatchResult, PolicyResult, Replay, equals
from unskew.core.planners import PLANNERS

__all__ = ["as_json", "as_table", "document", "table", "verdict"]

LEAVE_IT = 1.10  # DESIGN, promise 6: within 10 % of even there is nothing to gain (the bound of policy auto)
WORTH_IT = 0.95  # a shorter gain than 5 % is none
_WIDTH = 118
_HEADINGS = (
    "policy", "imbalance\nmedian", "imbalance\nworst", "planned", "replication\n(KSR)", "BSI\nrows", "BCI\nkeys",
    "moved\na plan", "plans", "makespan\n/ hash", "build\nms",
)  # fmt: skip
_ONLY_WHERE_WIDE = (5, 6, 8, 10)  # BSI, BCI, plans, build: left out where the terminal is too narrow for all


def as_table(keys: Keys, result: Replay, written: Iterable[Path] = ()) -> str:
    """The table for stdout, as wide as it needs to be where stdout is no terminal."""
    terminal = sys.stdout.isatty()
    console = Console(highlight=False) if terminal else Console(highlight=False, width=_WIDTH)
    with console.capture() as shown:
        for line in heading(keys, result):
            console.print(Text(line), soft_wrap=not terminal)
        _print_table(console, result)
        for line in verdict(result):
            console.print(Text(line), soft_wrap=not terminal)
        for path in written:
            console.print(Text(f"wrote {path}"), soft_wrap=True)
    return shown.get()


def _print_table(console: Console, result: Replay) -> None:
    """All columns where they fit, else the main ones. No cell is ever cut: a still narrower terminal breaks lines."""
    terminal = console.width
    shown = table(result)
    if _width(console, shown) > terminal:
        shown = table(result, without=_ONLY_WHERE_WIDE)
    console.width = max(terminal, _width(console, shown))
    console.print(shown)
    console.width = terminal


def _width(console: Console, shown: Table) -> int:
    return console.measure(shown, options=console.options.update(width=10_000)).maximum


def heading(keys: Keys, result: Replay) -> list[str]:
    """What was replayed, and how."""
    job, sizes = result.job, result.batch_rows
    key = ", ".join(f"{c} {t}" for c, t in zip(keys.columns, keys.types, strict=True))
    partitions = "1 partition" if job.partitions == 1 else f"{job.partitions} partitions"
    many = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches of {sizes[0]:,} rows"
    batch = "" if len(sizes) == 1 else f", the heaviest of a batch {result.heaviest_in_batch:.1%} (median)"
    return [
        f"{keys.name}: {result.rows:,} rows, {result.keys:,} distinct keys ({key}), {many}, {partitions}",
        f"The heaviest key has {result.heaviest:.1%} of all rows{batch}; {_fair(result)}.",
        _how(result),
    ]


def _fair(result: Replay) -> str:
    weights = result.job.weights
    if weights is None:
        return f"an even share of a partition is {1 / result.job.partitions:.1%}"
    least, most = min(weights) / sum(weights), max(weights) / sum(weights)
    if least == most:
        return f"the fair share of a partition is {least:.1%} (the weights are equal)"
    return f"the fair share of a partition is {least:.1%} to {most:.1%}, by its weight"


def _mean(result: Replay) -> str:
    return "the mean" if result.job.weights is None else "its fair share"


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


def table(result: Replay, without: Sequence[int] = ()) -> Table:
    """One line a policy; the best one of those that beat hash stands out."""
    out = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    kept = [number for number in range(len(_HEADINGS)) if number not in without]
    for number in kept:
        out.add_column(_HEADINGS[number], justify="right" if number else "left", no_wrap=True, vertical="bottom")
    best = equals(result.policies)[0]
    for policy in result.policies:
        cells = _cells(policy)
        style = "bold green" if policy is best and best.relative_makespan < 1 else None
        out.add_row(*(cells[number] for number in kept), style=style)
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
        return [f"Do nothing: with plain hash the fullest partition is within {hashed - 1:.0%} of {_mean(result)}."]
    tried = [p for p in result.policies if p.policy != "hash"]
    if not tried:
        return [
            f"Plain hash gives the fullest partition {hashed:.1f} times {_mean(result)}. "
            "Try other policies: --policies."
        ]
    best = equals(tried)
    if min(p.relative_makespan for p in best) > WORTH_IT:
        return ["Leave it at plain hash: none of these policies would make a batch more than 5 % shorter."]
    lines = [f"Best here: {_praise(best, hashed, result)}."]
    if PLANNERS[best[0].policy].splits:
        lines.append(f"Where a key may not be split: {_unsplit(tried, hashed, result)}.")
    return lines


def _unsplit(tried: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    """The best of the policies that never split a key, whatever they happened to do here."""
    whole = [p for p in tried if not PLANNERS[p.policy].splits]
    if not whole:
        return "none of these policies; try --policies kip"
    best = equals(whole)
    if min(p.relative_makespan for p in best) <= WORTH_IT:
        return _praise(best, hashed, result)
    of = "the rows" if len(result.batch_rows) == 1 else "the rows of a batch"
    return f"leave it at plain hash (the heaviest key is {result.heaviest_in_batch:.1%} of {of})"


def _praise(equal: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    p, *others = equal
    same = f"; about equal: {', '.join(other.policy for other in others)}" if others else ""
    return (
        f"{p.policy}, with batches in {p.relative_makespan:.2f} of the time that plain hash is predicted to take "
        f"(fullest partition {p.imbalance:.2f} times {_mean(result)} instead of {hashed:.2f}){same}"
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
