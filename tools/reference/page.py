"""Markdown from a few words: headings, paragraphs, tables, links to headings of the same page."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["anchor", "folded", "note", "number", "paragraphs", "prose", "table"]

_WIDE = 125
_MANY = 100_000  # from here on digits are easier to count in groups
_POWERS = {2**power: f"2^{power}" for power in (40, 48, 53, 62, 63, 64)}


def note(command: str) -> str:
    """The first line of a page that nobody should edit."""
    return f"<!-- Made by `{command}`: edit what it is made from, not this. -->"


def prose(text: str) -> str:
    """A comment or docstring as running text: reST's double backquotes become single ones, and outside of them a < is
    no tag."""
    parts = " ".join(text.replace("``", "`").split()).split("`")
    return "`".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def paragraphs(text: str) -> str:
    """The same, paragraph by paragraph, in lines of a width that can be read; what is set in stays as it is."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n[ ]*\n", text.strip("\n")) if part.strip())


def _paragraph(text: str) -> str:
    if all(line.startswith("  ") for line in text.splitlines()):
        return f"```text\n{textwrap.dedent(text).rstrip()}\n```"
    return textwrap.fill(prose(text), _WIDE, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Without the columns that have nothing in them."""
    listed = [tuple(_cell(cell) for cell in row) for row in rows]
    shown = [at for at in range(len(head)) if any(row[at] for row in listed)]
    lines = [tuple(head), ("---",) * len(head), *listed]
    return "\n".join("| " + " | ".join(line[at] for at in shown) + " |" for line in lines)


def _cell(text: str) -> str:
    return prose(text).replace("|", "\\|")


def folded(value: Any, before: str = "", most: int = 110) -> str:
    """JSON of which each part is on one line, if it has room there."""
    line = json.dumps(value)
    if len(before) + len(line) <= most or not isinstance(value, dict | list):
        return line
    inner = before + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {folded(part, inner, most - len(name) - 4)}" for name, part in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{before}}}"
    return "[\n" + ",\n".join(inner + folded(part, inner, most) for part in value) + f"\n{before}]"


def anchor(heading: str) -> str:
    """Where a link to this heading leads, as GitHub makes it."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def number(value: float) -> str:
    """Large ones as the powers they are near."""
    if value in _POWERS:
        return _POWERS[int(value)]
    if value + 1 in _POWERS:
        return f"{_POWERS[int(value + 1)]} - 1"
    return f"{value:,}" if isinstance(value, int) and value >= _MANY else f"{value:g}"
