"""A replay as text: what was replayed, its tables, and what is recommended. docs/whatif.md explains them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unskew.cli.whatif.key_file import Keys
from unskew.cli.whatif.results import PolicyResult, Replay, best_policies
from unskew.core.kernels.base import COMPILED
from unskew.simulate.router_choice import Recommendation, Workload, recommend

__all__ = ["as_table", "by_rule", "heading", "recommended", "verdict", "ways_taken"]

_EVEN_ENOUGH = 1.10  # DESIGN, promise 6: within 10 % of even there is nothing to gain (the bound of policy auto)
_WORTH_IT = 0.95  # a gain of less than 5 % does not count
_CONSTANT = 2  # the keys are the same in all batches if the stream has at most so many times the keys of a batch
_WIDTH = 118

_HEADINGS = (
    "policy", "imbalance\nmedian", "imbalance\nworst", "planned", "replication\n(KSR)", "BSI\nrows", "BCI\nkeys",
    "moved\na plan", "plans", "makespan\n/ hash", "build\nms",
)  # fmt: skip
_WIDE_ONLY = (5, 6, 8, 10)  # BSI, BCI, plans, build: left out if the terminal is too narrow for all columns
_SIDE_BY_SIDE = (
    "policy", "kind", "batch:\nimbalance\nmean", "worst", "repli-\ncation\nmean", "window:\nimbalance\nmean", "worst",
    "repli-\ncation\nmean", "ns per\ntuple", "makespan\n/ hash",
)  # fmt: skip
_NONE = "-"
_WINDOW_COLUMNS = (5, 6, 7)  # left out if the rows filled no window


def as_table(keys: Keys, result: Replay, written: Iterable[Path] = ()) -> str:
    """The table for stdout, as wide as it needs to be where stdout is no terminal."""
    terminal = sys.stdout.isatty()
    console = Console(highlight=False) if terminal else Console(highlight=False, width=_WIDTH)
    with console.capture() as shown:
        for line in heading(keys, result):
            console.print(Text(line), soft_wrap=not terminal)
        _print_tables(console, result)
        for line in (*ways_taken(result), *verdict(result), *by_rule(result)):
            console.print(Text(line), soft_wrap=not terminal)
        for path in written:
            console.print(Text(f"wrote {path}"), soft_wrap=True)
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
        f"The heaviest key has {result.heaviest:.1%} of all rows{batch}; {_fair(result)}.",
        _how(result),
        *_routers_and_windows(result),
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
    window = "" if result.job.window in (None, 1) else f" over {result.job.window} batches"
    if result.fresh == "auto":
        return (
            "Each batch goes the way that would have been cheapest so far: by the batches before it, by a count of its "
            f"own rows ({result.job.count_cost:.2f} of an even share), or by plain hash (--fresh auto). The first is "
            "counted, and left out of the figures."
        )
    if result.fresh == "previous":
        return (
            f"Each batch goes by the plan made from the batches before it{window} (--fresh previous). "
            "The first finds none, goes by plain hash, and is not counted."
        )
    if result.job.fresh != "same":
        return "There is one batch only, so it goes by a plan made from itself, as with --fresh same."
    return f"Each batch goes by a plan made from itself{window} (--fresh same)."


def _routers_and_windows(result: Replay) -> list[str]:
    """How routers were run and windows measured, if there are any."""
    job, n, out = result.job, result.job.agents, []
    if job.routers:
        agents = "" if n == 1 else f", as {n} agents with every {n}{_ordinal_suffix(n)} row each"
        together = "" if job.dsync is None else f"; those that cooperate do so every {job.dsync:,} rows"
        out.append(f"Routers decide row by row{agents}{together}. The same batches are counted.")
    if job.routers and not COMPILED:
        out.append("They run as plain Python, far slower than compiled: pip install 'unskew[fast]'.")
    if job.sliding is not None:
        unit, length = "s" if result.timed else "rows", f"{job.sliding.whole:,.10g}"
        if any(p.windows for p in result.results):
            out.append(f"Windows of {length} {unit} are looked at every {job.sliding.slide:,.10g} {unit}.")
        else:
            out.append(f"There are no windows to look at: none of {length} {unit} is whole in the counted batches.")
    return out


def _ordinal_suffix(number: int) -> str:
    special = 0 if number % 100 in (11, 12, 13) else number % 10
    return {1: "st", 2: "nd", 3: "rd"}.get(special, "th")


def verdict(result: Replay) -> list[str]:
    """What to do, in a sentence or two: nothing, if hashing is even enough."""
    hashed = result.hash_imbalance
    if hashed <= _EVEN_ENOUGH:
        return [f"Do nothing: with plain hash the fullest partition is within {hashed - 1:.0%} of {_mean(result)}."]
    others = [p for p in result.results if p.policy != "hash"]
    if not others:
        return [
            f"Plain hash gives the fullest partition {hashed:.1f} times {_mean(result)}. "
            "Try other policies: --policies."
        ]
    best = best_policies(others)
    if min(p.relative_makespan for p in best) > _WORTH_IT:
        return ["Leave it at plain hash: none of these policies would make a batch more than 5 % shorter."]
    lines = [f"Best here: {_praise(best, hashed, result)}."]
    if best[0].may_split:
        lines.append(f"Where a key may not be split: {_unsplit(others, hashed, result)}.")
    return lines


def ways_taken(result: Replay) -> list[str]:
    """With ``--fresh auto``: the cost of a batch by the ways that were taken, and by each way throughout."""
    lines = []
    for p in result.policies:
        if p.ways:
            taken = Counter(p.taken)
            each = ", ".join(f"{way} {cost:.2f} ({taken[way]} taken)" for way, cost in p.ways.items())
            lines.append(
                f"{p.label}: a batch costs {p.cost:.2f} even shares; had one way been taken throughout: {each}."
            )
    return lines


def by_rule(result: Replay) -> list[str]:
    """The router that the Holistic paper's rule recommends without a replay, if the job has routers."""
    if not result.job.routers:
        return []
    rule = recommended(result)
    return [f"By Holistic's selection rule (section 7), each batch a window of its own: {rule.router}. {rule.reason}"]


def recommended(result: Replay) -> Recommendation:
    """Holistic's rule for the median batch. The keys count as constant if all batches have few more than one has."""
    rows = round(median(result.batch_rows))
    keys = round(median(sum(batch.keys) for batch in result.hash))
    heaviest = max(round(result.heaviest_in_batch * rows), ceil(rows / keys))
    constant = result.keys <= _CONSTANT * keys
    return recommend(Workload(rows, keys, result.job.partitions, heaviest, constant=constant))


def _unsplit(policies: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    """The best of the policies that never split a key."""
    whole = [p for p in policies if not p.may_split]
    if not whole:
        return "none of these policies; try --policies kip"
    best = best_policies(whole)
    if min(p.relative_makespan for p in best) <= _WORTH_IT:
        return _praise(best, hashed, result)
    of = "the rows" if len(result.batch_rows) == 1 else "the rows of a batch"
    return f"leave it at plain hash (the heaviest key is {result.heaviest_in_batch:.1%} of {of})"


def _praise(equal: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    p, *others = equal
    same = f"; about equal: {', '.join(other.label for other in others)}" if others else ""
    return (
        f"{p.label}, with batches in {p.relative_makespan:.2f} of the time that plain hash is predicted to take "
        f"(fullest partition {p.imbalance:.2f} times {_mean(result)} instead of {hashed:.2f}){same}"
    )


def _print_tables(console: Console, result: Replay) -> None:
    """Print all columns if they fit, else the main ones."""
    best = best_policies(result.results)[0]
    if len(result.policies) > 1 or not result.routers:
        rows = [(_planner_cells(p), _style(p, best)) for p in result.policies]
        _print(console, [_table(_HEADINGS, 1, rows, without) for without in ((), _WIDE_ONLY)])
    if result.routers or result.job.sliding is not None:
        rows = [(_batch_and_window_cells(p), _style(p, best)) for p in result.results]
        none = () if any(p.windows for p in result.results) else _WINDOW_COLUMNS
        _print(console, [_table(_SIDE_BY_SIDE, 2, rows, (*none, *more)) for more in ((), (9,), (1, 9))])


def _style(policy: PolicyResult, best: PolicyResult) -> str | None:
    """The best policy is highlighted if it beats hash."""
    return "bold green" if policy is best and best.relative_makespan < 1 else None


def _print(console: Console, tables: Sequence[Table]) -> None:
    """Print the first table that fits, else the last. No cell is cut: a narrower terminal breaks lines."""
    terminal = console.width
    shown = next((each for each in tables if _width(console, each) <= terminal), tables[-1])
    console.width = max(terminal, _width(console, shown))
    console.print(shown)
    console.width = terminal


def _width(console: Console, shown: Table) -> int:
    return console.measure(shown, options=console.options.update(width=10_000)).maximum


def _table(
    headings: Sequence[str], left: int, rows: Sequence[tuple[Sequence[str], str | None]], without: Sequence[int]
) -> Table:
    """Rows are cells and a style; the first ``left`` columns are aligned left, the columns ``without`` are left out."""
    out = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    columns = [number for number in range(len(headings)) if number not in without]
    for number in columns:
        side = "left" if number < left else "right"
        out.add_column(headings[number], justify=side, no_wrap=True, vertical="bottom")  # type: ignore[arg-type]  # a Literal
    for cells, style in rows:
        out.add_row(*(cells[number] for number in columns), style=style)
    return out


def _planner_cells(p: PolicyResult) -> tuple[str, ...]:
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


def _batch_and_window_cells(p: PolicyResult) -> tuple[str, ...]:
    windows = p.windows
    return (
        p.label,
        "router" if p.plan is None else "planner",
        f"{p.mean_imbalance:.2f}",
        f"{p.worst_imbalance:.2f}",
        f"{p.mean_replication:.3f}",
        f"{windows.imbalance:.2f}" if windows else _NONE,
        f"{windows.worst_imbalance:.2f}" if windows else _NONE,
        f"{windows.replication:.3f}" if windows and windows.replication is not None else _NONE,
        _NONE if p.ns_per_tuple is None else _nanoseconds(p.ns_per_tuple),
        f"{p.relative_makespan:.2f}",
    )


def _nanoseconds(ns: float) -> str:
    return f"{ns:.1f}" if ns < 99.95 else f"{ns:,.0f}"
