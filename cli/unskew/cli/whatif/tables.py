"""The tables of a replay: one of the planners, and, if there is a router or a window, one of all policies with figures
per batch and per window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from unskew.cli.whatif.results import PolicyResult, Replay, best_policies

__all__ = ["print_tables"]

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


def print_tables(console: Console, result: Replay) -> None:
    """Print all columns if they fit, else the main ones."""
    if len(result.policies) > 1 or not result.routers:
        _print(console, lambda without: _planners(result, without), ((), _WIDE_ONLY))
    if result.routers or result.job.sliding is not None:
        none = () if any(p.windows for p in result.results) else _WINDOW_COLUMNS
        _print(console, lambda without: _side_by_side(result, without), (none, (*none, 9), (*none, 1, 9)))


def _print(console: Console, table: Callable[[Sequence[int]], Table], narrower: Sequence[Sequence[int]]) -> None:
    """Print the first table that fits, else the last. No cell is cut: a narrower terminal breaks lines."""
    terminal = console.width
    tables = [table(without) for without in narrower]
    shown = next((each for each in tables if _width(console, each) <= terminal), tables[-1])
    console.width = max(terminal, _width(console, shown))
    console.print(shown)
    console.width = terminal


def _width(console: Console, shown: Table) -> int:
    return console.measure(shown, options=console.options.update(width=10_000)).maximum


def _planners(result: Replay, without: Sequence[int]) -> Table:
    """One line a planner; the best policy is highlighted if it beats hash."""
    return _table(_HEADINGS, 1, [(p, _planner_cells(p)) for p in result.policies], _best(result), without)


def _side_by_side(result: Replay, without: Sequence[int]) -> Table:
    """One line a policy, planners first."""
    return _table(_SIDE_BY_SIDE, 2, [(p, _batch_and_window_cells(p)) for p in result.results], _best(result), without)


def _best(result: Replay) -> PolicyResult | None:
    best = best_policies(result.results)[0]
    return best if best.relative_makespan < 1 else None


def _table(
    headings: Sequence[str],
    left: int,
    rows: Sequence[tuple[PolicyResult, Sequence[str]]],
    best: PolicyResult | None,
    without: Sequence[int],
) -> Table:
    out = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    columns = [number for number in range(len(headings)) if number not in without]
    for number in columns:
        side = "left" if number < left else "right"
        out.add_column(headings[number], justify=side, no_wrap=True, vertical="bottom")  # type: ignore[arg-type]  # a Literal
    for policy, cells in rows:
        out.add_row(*(cells[number] for number in columns), style="bold green" if policy is best else None)
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
