"""The findings as one page, with a picture of each stage's task times beside even ones. All of a log is escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from unskew.cli.events.html_template import PAGE
from unskew.cli.events.read_log import ApplicationReport
from unskew.cli.events.table import BOUND, clean, heading, operator_text, ranked
from unskew.core.diagnosis.findings import Finding

__all__ = ["page", "picture"]

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 960, 170, 20, 20
_GAP = 0.15  # of a bar
_HEAD = (
    ("lost", True), ("of application", True), ("takes", True), ("even", True), ("tasks", True), ("slots", True),
    ("stage", True), ("operator", False), ("cause", False), ("how sure", False), ("application", False),
)  # fmt: skip
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def page(reports: Sequence[ApplicationReport], top: int) -> str:
    """The whole document."""
    shown, left_out = ranked(reports, top)
    parts = {
        "heading": _safe(heading(reports)),
        "bound": _safe(BOUND),
        "table": _table(shown),
        "left_out": f'<p class="faint">{left_out:,} more are left out.</p>' if left_out else "",
        "stages": "\n".join(_stage(number, *one) for number, one in enumerate(shown, 1)),
        "unread": _unread(reports),
    }
    return _filled(parts)


def _filled(parts: Mapping[str, str]) -> str:
    """One pass, so that a name in a log that looks like a slot stays what it is."""
    return _SLOT.sub(lambda slot: parts[slot[1]], PAGE)


def _safe(text: str) -> str:
    return escape(clean(text))


def _table(shown: Sequence[tuple[ApplicationReport, Finding]]) -> str:
    head = "".join(f'<th scope="col"{_side(right)}>{name}</th>' for name, right in _HEAD)
    rows = "".join(f"<tr>{_row(number, *one)}</tr>" for number, one in enumerate(shown, 1))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _side(right: bool) -> str:
    return ' class="figure"' if right else ""


def _row(number: int, report: ApplicationReport, finding: Finding) -> str:
    cells = (
        f"{finding.lost:,.1f} s", f"{finding.share:.0%}", f"{finding.taken:,.1f} s", f"{finding.ideal:,.1f} s",
        f"{finding.tasks:,}", f"{finding.slots:,}", f'<a href="#stage-{number}">{finding.stage}</a>',
        _safe(operator_text(finding)), finding.cause.kind, finding.cause.sureness, _safe(_name(report)),
    )  # fmt: skip
    return "".join(f"<td{_side(right)}>{cell}</td>" for cell, (_, right) in zip(cells, _HEAD, strict=True))


def _name(report: ApplicationReport) -> str:
    return report.application.name or report.application.id or report.log


def _stage(number: int, report: ApplicationReport, finding: Finding) -> str:
    where = finding.query.description if finding.query else finding.name
    remedy = finding.remedy
    code = f"<pre>{_safe(remedy.advise)}\n{_safe(remedy.write)}</pre>" if remedy else ""
    words = f"<p>{_safe(remedy.words)}.</p>" if remedy.words else ""
    reasons = "; ".join((*finding.cause.reasons, *finding.notes))
    return (
        f'<section id="stage-{number}"><h2>{number}. Stage {finding.stage}: {_safe(operator_text(finding))}</h2>'
        f'<p class="faint">{_safe(_name(report))}, {_safe(where)}</p>'
        f"<p>{finding.lost:,.1f} s lost, {finding.cause.sureness}: {_safe(reasons)}.</p>"
        f"{picture(finding)}{code}{words}</section>"
    )


def picture(finding: Finding) -> str:
    """Bars of the task times, longest first, and a line where all would be if the work were even."""
    times = finding.times
    highest, even = max(float(times[0]), 1e-9), finding.ideal * finding.slots / max(finding.tasks, 1)
    scale = (_HEIGHT - _TOP - _BOTTOM) / highest
    step = _WIDTH / len(times)
    base = _HEIGHT - _BOTTOM
    bars = "".join(
        f'<rect class="{"over" if time > 2 * even else "task"}" x="{at * step:.1f}" y="{base - time * scale:.1f}" '
        f'width="{max(step * (1 - _GAP), 0.5):.1f}" height="{max(time * scale, 0.5):.1f}"/>'
        for at, time in enumerate(times.tolist())
    )
    level = base - even * scale
    shown = f"the {len(times):,} longest of {finding.tasks:,} tasks" if finding.tasks > len(times) else "all tasks"
    label = f"{shown}: the longest takes {highest:,.1f} s; if the work were even each would take {even:,.1f} s"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_safe(label)}">{bars}'
        f'<line class="even" x1="0" x2="{_WIDTH}" y1="{level:.1f}" y2="{level:.1f}"/>'
        f'<text class="level" x="{_WIDTH}" y="{max(level - 5, 12):.1f}" text-anchor="end">even: {even:,.2f} s</text>'
        f'<text x="0" y="{_TOP - 7}">longest: {highest:,.2f} s</text>'
        f'<text x="0" y="{_HEIGHT - 5}">{_safe(shown)}, longest first</text></svg>'
    )


def _unread(reports: Sequence[ApplicationReport]) -> str:
    lines = [f"<li>{_safe(report.log)}: {_safe(text)}</li>" for report in reports for text in report.unread]
    return f"<section><h2>Not read</h2><ul>{''.join(lines)}</ul></section>" if lines else ""
