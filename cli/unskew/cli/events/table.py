"""The findings on a terminal: one table for all applications, then for each stage why, and what to write."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unskew.cli.events.read_log import ApplicationReport
from unskew.core.diagnosis.findings import Finding

__all__ = ["BOUND", "as_table", "clean", "heading", "operator_text", "ranked"]

BOUND = (
    "Seconds lost are an upper bound: a log does not say how many rows each key has. The sk.advise(...) call counts "
    "them. sk = Unskew(spark, stream=..., partitions=...), see docs/spark.md."
)
_WIDE = 100
_FOLDERS = re.compile(r"(?<= at )[^ ]*/")


def ranked(reports: Sequence[ApplicationReport], top: int) -> tuple[list[tuple[ApplicationReport, Finding]], int]:
    """The stages of all applications, skew first and then the most seconds; how many are left out."""
    all_ = [(report, finding) for report in reports for finding in report.findings]
    all_.sort(key=lambda one: (not one[1].is_skew, -one[1].lost))
    return all_[:top], max(len(all_) - top, 0)


def as_table(reports: Sequence[ApplicationReport], top: int) -> str:
    """Everything that is printed."""
    shown, left_out = ranked(reports, top)
    out = io.StringIO()
    wide = Console().width if sys.stdout.isatty() else _WIDE
    console = Console(file=out, width=wide, force_terminal=False, no_color=True, highlight=False)
    console.print(Text(heading(reports)))
    if shown:
        console.print(_table(shown, narrow=wide < _WIDE, many=len(reports) > 1))
        for number, (_, finding) in enumerate(shown, 1):
            for line in _explained(number, finding):
                console.print(Text(line), soft_wrap=True)
    if left_out:
        console.print(Text(f"{left_out:,} more; --top {len(shown) + left_out} shows them"))
    if any(finding.is_skew for _, finding in shown):
        console.print(Text(BOUND))
    for report in reports:
        for text in report.unread:
            console.print(Text(f"{clean(report.log)}: {clean(text)}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def heading(reports: Sequence[ApplicationReport]) -> str:
    """How much was read, and what was found."""
    skewed = [finding for report in reports for finding in report.findings if finding.is_skew]
    tasks = sum(report.tasks for report in reports)
    read = f"{_many(sum(report.events > 0 for report in reports), 'application')}, {_many(tasks, 'task')}"
    if not skewed:
        return f"{read}: no stage waits for a task that has more rows than the others"
    lost = sum(finding.lost for finding in skewed)
    return f"{read}: {_many(len(skewed), 'stage')} lost {lost:,.1f} s to rows that are unevenly placed"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _table(shown: Sequence[tuple[ApplicationReport, Finding]], *, narrow: bool, many: bool) -> Table:
    """A narrow terminal gets the columns that say most."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    kept = [name for name in _COLUMNS if not (narrow and name in _WIDE_ONLY) and (many or name != _MANY_ONLY)]
    for name in kept:
        left = name in _TEXTS
        table.add_column(name, justify="left" if left else "right", no_wrap=name not in _FOLDED, overflow="fold")
    for number, (report, finding) in enumerate(shown, 1):
        cells = dict(zip(_COLUMNS, (str(number), *_cells(finding), _name(report)), strict=True))
        table.add_row(*(Text(cells[name]) for name in kept))
    return table


def _cells(finding: Finding) -> tuple[str, ...]:
    return (
        f"{finding.lost:,.1f} s", f"{finding.share:.0%}", f"{finding.taken:,.1f} s", f"{finding.ideal:,.1f} s",
        f"{finding.tasks:,}", f"{finding.slots:,}", str(finding.stage), clean(operator_text(finding)),
        finding.cause.kind, finding.cause.sureness,
    )  # fmt: skip


def operator_text(finding: Finding) -> str:
    """The operator and its key, as ``join on user = uid``."""
    operator = finding.operator
    key = f" on {operator.key_text}" if operator.key_text else ""
    call = f" {_FOLDERS.sub('', operator.node)}" if operator.kind in ("rdd", "scan") and operator.node else ""
    return f"{operator.kind}{key}{call}"


def _explained(number: int, finding: Finding) -> Iterator[str]:
    where = finding.query.description if finding.query else finding.name
    yield f"{number}. stage {finding.stage}: {clean(where)}"
    yield f"   why: {clean('; '.join((*finding.cause.reasons, *finding.notes)))}"
    remedy = finding.remedy
    if remedy.advise:
        yield f"   ask:   {clean(remedy.advise)}"
        yield f"   write: {clean(remedy.write)}"
    if remedy.words:
        yield f"   {'but' if remedy else 'leave it to Spark'}: {clean(remedy.words)}"


def _name(report: ApplicationReport) -> str:
    return clean(report.application.name or report.application.id or report.log)


def clean(text: str) -> str:
    """The text without what a terminal would act on."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


_MANY_ONLY = "application"
_COLUMNS = (
    "", "lost", "of app", "takes", "even", "tasks", "slots", "stage", "operator", "cause", "how sure", _MANY_ONLY,
)  # fmt: skip
_TEXTS = {"operator", "cause", "how sure", _MANY_ONLY}
_FOLDED = {"operator", _MANY_ONLY}
_WIDE_ONLY = {"takes", "even", "tasks", "slots"}
