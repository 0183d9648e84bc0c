"""The demo on the terminal: a live table with what is running now, or plain lines where it is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from unskew.spark.demo import Demo, DemoBatch, Outcome, Step, Watcher

__all__ = ["screen_for", "summary"]

_ARMS = ("hash", "unskew")
_HASH, _UNSKEW = "dark_orange", "cyan"
_LINE = "{:>5}  {:<24}{:>8}{:>9}{:>8}{:>14}{:>9}  {}"
_HEAD = _LINE.format("batch", "hot key now", "hash", "unskew", "faster", "imbalance", "plan", "").rstrip()
_WITH_NOTES = 102  # columns of a terminal
_WATCH = "watch it live, while it lasts: {}"
_AROUND = 4  # lines beside those of finished batches


@contextmanager
def screen_for(console: Console, demo: Demo) -> Iterator[Watcher]:
    """Shows the progress of the demo until the end of the block."""
    if not console.is_terminal:
        yield Lines(console)
        return
    screen = Screen(demo, console)
    console.print(_title(demo))
    with Live(screen, console=console, refresh_per_second=8):
        yield screen


def _title(demo: Demo) -> str:
    return (
        f"[bold]One stream, two ways to place it[/]: {demo.batches} batches of {demo.rows:,} rows, "
        f"{demo.partitions} partitions, {1e6 * demo.wait:.0f} µs of work a row; other keys are hot after every "
        f"{demo.change} batches. unskew counts a batch first where that would have been cheaper so far.\n"
        "Imbalance: rows of the fullest partition over its fair share, hash → unskew; 1.00 is perfect.\n"
    )


class Lines:
    """One line a batch."""

    def __init__(self, console: Console) -> None:
        self._console, self._headed = console, False

    def phase(self, what: str) -> None:
        self._say(f"{what} ...")

    def page(self, address: str) -> None:
        self._say(_WATCH.format(address))

    def running(self, step: Step) -> None:  # noqa: ARG002 - printed when both arms have ended
        if not self._headed:
            self._headed = True
            self._say(_HEAD)

    def done(self, batch: DemoBatch) -> None:
        self._say(_LINE.format(*_cells(batch)).rstrip())

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


class Screen:
    """The table so far, the batch that runs with its seconds, and a progress bar."""

    def __init__(self, demo: Demo, console: Console) -> None:
        self._console = console
        self._rows: list[DemoBatch] = []
        self._now: Step | None = None
        self._since = 0.0
        self._took: dict[str, float] = {}
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._task = self._bar.add_task("", total=demo.batches)

    def page(self, address: str) -> None:
        self._console.print(_WATCH.format(address), soft_wrap=True, markup=False)

    def phase(self, what: str) -> None:
        self._now = None
        self._bar.update(self._task, description=what)

    def running(self, step: Step) -> None:
        now = time.monotonic()
        if self._now is not None:
            self._took[self._now.arm] = now - self._since
        self._now, self._since = step, now
        self._bar.update(self._task, description="batches")

    def done(self, batch: DemoBatch) -> None:
        self._rows.append(batch)
        self._now, self._took = None, {}
        self._bar.advance(self._task)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _table(notes=options.max_width >= _WITH_NOTES)
        for batch in self._rows[-max(options.size.height - _AROUND, 1) :]:  # a live table must fit the screen
            table.add_row(*_coloured(batch)[: len(table.columns)])
        if self._now is not None:
            now = self._now
            table.add_row(str(now.batch), _key(now.hot, now.share), *(self._seconds(now, arm) for arm in _ARMS))
        if table.row_count:
            yield table
        yield self._bar

    def _seconds(self, now: Step, arm: str) -> Text:
        if arm == now.arm:
            return Text(f"{time.monotonic() - self._since:.1f} s ·", style="bold yellow")
        took = self._took.get(arm)
        return Text("" if took is None else f"{took:.2f} s", style="dim")


def _table(*, notes: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, right, style in (
        ("batch", True, ""),
        ("hot key now", False, ""),
        ("hash", True, _HASH),
        ("unskew", True, _UNSKEW),
        ("faster", True, "bold"),
        ("imbalance", True, ""),
        ("plan", True, ""),
        ("", False, "dim"),
    )[: None if notes else -1]:
        table.add_column(name, justify="right" if right else "left", style=style, no_wrap=True)
    return table


def _cells(batch: DemoBatch) -> tuple[str, ...]:
    return (
        str(batch.number),
        _key(batch.hot, batch.share),
        f"{batch.hash.seconds:.2f} s",
        f"{batch.unskew.seconds:.2f} s",
        f"{batch.faster:.1f}x",
        f"{batch.hash.imbalance:.2f} → {batch.unskew.imbalance:.2f}",
        batch.placed_by,
        _note(batch),
    )


def _coloured(batch: DemoBatch) -> tuple[str, ...]:
    cells = list(_cells(batch))
    style = "green" if batch.faster >= 1.2 else "yellow" if batch.faster >= 0.9 else "red"
    cells[4] = f"[{style}]{cells[4]}[/]"
    return tuple(cells)


def _key(hot: str, share: float) -> str:
    return f"{hot} {share:.0%}"


def _note(batch: DemoBatch) -> str:
    if not batch.changed:
        return ""
    return "new hot keys" if batch.counted or batch.in_flight else "new hot keys, old plan"


def summary(console: Console, outcome: Outcome, report: Path) -> None:
    """Print the totals, whether the results are equal, and where the report is."""
    planned, proof = outcome.planned, outcome.proof
    rows = [
        (f"all {len(outcome.batches)} batches", outcome.total, None),
        (f"the {len(planned)} whose hot keys were known", outcome.total, planned),
        ("the longest task of all", outcome.longest, None),
        ("the longest task, hot keys known", outcome.longest, planned),
    ]
    console.print(f"\n{'':<36}{'hash':>10}{'unskew':>10}", style="bold")
    for name, seconds, batches in rows:
        by_hash, by_plan = seconds("hash", batches), seconds("unskew", batches)
        if by_plan > 0.0:
            factor = f"[bold]{by_hash / by_plan:>6.1f}x[/]"
            console.print(f"{name:<36}[{_HASH}]{by_hash:>8.1f} s[/][{_UNSKEW}]{by_plan:>8.1f} s[/]{factor}")
    same = "[bold green]yes[/]" if proof.equal else "[bold red]NO[/]"
    digest = proof.digests["unskew"]
    console.print(
        f"\nresults equal: {same}, {digest.rows:,} rows in {digest.keys:,} keys, SHA-256 {digest.sha256[:16]}...",
        soft_wrap=True,
    )
    console.print(f"report: {report}", soft_wrap=True, markup=False)
