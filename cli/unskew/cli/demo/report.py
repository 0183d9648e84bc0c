"""The demo's report: one self-contained page with the results, how they were measured, and their limits."""

from __future__ import annotations

from collections.abc import Container, Iterable
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from unskew.cli.demo import charts
from unskew.cli.demo.page_template import PAGE
from unskew.spark.demo import DSYNC_LEAST, DSYNC_MOST

if TYPE_CHECKING:
    from unskew.core.plan.plan import Plan
    from unskew.spark.demo import DemoBatch, Outcome

__all__ = ["page"]

_HOT = 8  # keys that are listed


def page(outcome: Outcome) -> str:
    bad = _bad(outcome)
    parts = {
        "lead": _lead(outcome),
        "tiles": _tiles(outcome),
        "bad": str(bad.number),
        "bad_note": _bad_note(bad),
        "loads": charts.loads(bad),
        "times": charts.times(outcome),
        "imbalance": charts.imbalance(outcome),
        "dsync": charts.dsync(outcome),
        "dsync_note": _dsync_note(outcome),
        "q_table": _q_table(outcome),
        "hot": _hot(outcome, bad),
        "proof": _proof(outcome),
        "batches": _batches(outcome),
        "lost": _lost(outcome),
        "cores": str(outcome.cores),
        "wait": f"{1e6 * outcome.demo.wait:.0f}",
        "partitions": str(outcome.demo.partitions),
        "seed": str(outcome.demo.seed),
        "states": _states(outcome),
        "spark": escape(outcome.spark),
        "seconds": f"{outcome.seconds:.0f}",
    }
    html = PAGE
    for name, text in parts.items():
        html = html.replace("{{" + name + "}}", text)
    return html


def _bad(outcome: Outcome) -> DemoBatch:
    """Where hash is worst, of the batches whose hot keys a plan could know; of all if there is none."""
    return max(outcome.planned or outcome.batches, key=lambda batch: (batch.hash.imbalance, -batch.number))


def _lead(outcome: Outcome) -> str:
    demo, first = outcome.demo, outcome.batches[0]
    return (
        f"{demo.batches} batches of {demo.rows:,} rows. The hottest key alone has {first.share:.0%} of them, and after "
        f"every {demo.change} batches other keys are hot. Each batch was run twice, in turn: its rows placed by "
        f"Spark's own hash with AQE on, and by unskew's plan; the same rows, work, cores and {demo.partitions} slots."
    )


def _tiles(outcome: Outcome) -> str:
    planned = outcome.planned
    hashed, ours = outcome.total("hash", planned), outcome.total("unskew", planned)
    longest = outcome.longest("hash", planned), outcome.longest("unskew", planned)
    tiles = [
        (f"{outcome.faster:.1f}x", "faster over all batches", f"{outcome.total('hash'):.1f} s by hash, "
         f"{outcome.total('unskew'):.1f} s by unskew, planning included"),
    ]  # fmt: skip
    if planned:
        tiles += [
            (f"{hashed / ours:.1f}x", "faster once hot keys are known",
             f"{len(planned)} of {len(outcome.batches)} batches: {hashed:.1f} s by hash, {ours:.1f} s by unskew"),
            (f"{longest[0]:.1f} → {longest[1]:.1f} s", "longest task, hot keys known",
             f"{outcome.demo.least_seconds:.1f} s if all partitions had the same"),
        ]  # fmt: skip
    equal = outcome.proof.equal
    digest = outcome.proof.digests["unskew"]
    result = f"{digest.rows:,} rows, {digest.keys:,} keys, SHA-256 {digest.sha256[:8]}…" if equal else "see below"
    tiles.append(("equal" if equal else "NOT EQUAL", "both results", result))
    return "\n".join(
        f'<div class="tile{"" if equal or big != "NOT EQUAL" else " wrong"}"><b>{escape(big)}</b>'
        f"<span>{escape(what)}</span><small>{escape(more)}</small></div>"
        for big, what, more in tiles
    )


def _bad_note(batch: DemoBatch) -> str:
    source = "a count of the batch's own rows" if batch.counted else "the batches before"
    by_plan = "" if batch.plan is None else f" The plan was made from {source}."
    by_plan = " It was placed in flight, by its own rows." if batch.in_flight else by_plan
    return (
        f"By hash every row of <b>{escape(batch.hot)}</b> goes to one partition, which gets {batch.hash.imbalance:.1f} "
        f"times its fair share; all other tasks wait for that one. By plan its rows are spread: the fullest partition "
        f"has {batch.unskew.imbalance:.2f} of its share.{by_plan}"
    )


def _lost(outcome: Outcome) -> str:
    """The batches in which hash was faster."""
    lost = outcome.lost
    if not lost:
        return "Hash was faster in no batch of this run."
    each = ", ".join(f"{batch.number} (by {1.0 / batch.faster - 1.0:.0%})" for batch in lost)
    return f"Hash was faster in batch {each}."


def _dsync_note(outcome: Outcome) -> str:
    rounds = outcome.rounds
    if not rounds:
        return "No round was closed while the batches ran."
    reported = sum(each.records for each in rounds)
    return (
        f"{len(rounds)} rounds, {reported:,} rows reported. The interval began at {rounds[0].dsync:g} s and ended at "
        f"{rounds[-1].dsync:g} s: it is halved while the service has time to spare, and doubled when an agent had to "
        f"wait for its answer, within {DSYNC_LEAST:g} to {DSYNC_MOST:g} s. Dotted lines: other keys become hot."
    )


def _q_table(outcome: Outcome) -> str:
    table = outcome.table
    if table is None:
        return "<p>No key was hot enough for a row of the Q-table.</p>"
    return charts.q_table(table, outcome.stream.named)


def _hot(outcome: Outcome, batch: DemoBatch) -> str:
    plan = batch.plan
    if plan is None:
        return f"<p>No plan was made{' for it: it was placed in flight' if batch.in_flight else ''}.</p>"
    top = np.argsort(-plan.hot.rows, kind="stable")[:_HOT]
    rows = [_hot_row(outcome, plan, int(plan.hot.hashes[at])) for at in top]
    reason = f"Why this plan: <i>{escape(plan.info.reason)}</i>"
    heading = f"<p>Plan {batch.placed_by}, used for batch {batch.number}. {reason}</p>"
    return heading + _table(("key", "share of rows", "where, and how much of it", "because"), rows, figures={1})


def _hot_row(outcome: Outcome, plan: Plan, key: int) -> tuple[str, ...]:
    why = plan.explain(key)
    where = ", ".join(f"{p} ({share:.0%})" for p, share in zip(why.partitions, why.shares, strict=True))
    share = "" if why.share_of_rows is None else f"{why.share_of_rows:.1%}"
    places = f"{len(why.partitions)} partitions" if len(why.partitions) > 1 else "partition"
    return escape(outcome.stream.named(key)), share, f"{places}: {where}", escape(why.reason)


def _proof(outcome: Outcome) -> str:
    proof = outcome.proof
    names = {"stream": "the stream, by a plain groupBy", "hash": "hash", "unskew": "unskew"}
    rows = [
        (names[name], f"{digest.rows:,}", f"{digest.keys:,}", f"<code>{digest.sha256}</code>")
        for name, digest in proof.digests.items()
    ]
    verdict = (
        '<p class="good">Equal: the three are the same, to the byte.</p>'
        if proof.equal
        else '<p class="wrong">NOT EQUAL. This is a bug: please report it with the seed below.</p>'
    )
    lines = f"{proof.only_hash:,} that only hash has, {proof.only_unskew:,} that only unskew has"
    table = _table(("result of", "rows", "keys", "SHA-256 of the sorted result"), rows, figures={1, 2})
    return f"{verdict}{table}<p>Results by key and batch that differ: {lines}.</p>"


def _states(outcome: Outcome) -> str:
    hashed, ours = (sum(ran.states for ran in outcome.of(arm)) for arm in ("hash", "unskew"))
    return f"{ours / max(hashed, 1) - 1:.1%}"


def _batches(outcome: Outcome) -> str:
    rows = [
        (
            str(batch.number),
            f"{escape(batch.hot)} ({batch.share:.0%})",
            f"{batch.hash.seconds:.2f}",
            f"{batch.unskew.seconds:.2f}",
            f"{batch.faster:.1f}x",
            f"{batch.hash.longest:.2f}",
            f"{batch.unskew.longest:.2f}",
            f"{batch.hash.imbalance:.2f}",
            f"{batch.unskew.imbalance:.2f}",
            batch.placed_by,
        )
        for batch in outcome.batches
    ]
    head = ("batch", "hot key", "hash,\u00a0s", "unskew,\u00a0s", "faster", "longest task: hash,\u00a0s",
            "unskew,\u00a0s", "imbalance: hash", "unskew", "plan")  # fmt: skip
    return _table(head, rows, figures=set(range(2, 10)))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], figures: Container[int]) -> str:
    """Cells are HTML already; columns of figures stand to the right."""
    top = "".join(f"<th{_side(at, figures)}>{escape(name)}</th>" for at, name in enumerate(head))
    cells = ("".join(f"<td{_side(at, figures)}>{cell}</td>" for at, cell in enumerate(row)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _side(column: int, figures: Container[int]) -> str:
    return ' class="figure"' if column in figures else ""
