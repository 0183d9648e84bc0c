"""Columns as Spark prints them: ``user#12L`` is the column ``user``, ``cast(a#3 as bigint)`` an expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KeyColumn", "arguments", "key_column", "partitioning"]

_ID = re.compile(r"#\d+L?")
_COLUMN = re.compile(r"[^#()\[\],]+#\d+L?")
_PARTITIONING = re.compile(r"\b(hashpartitioning|rangepartitioning|RoundRobinPartitioning|SinglePartition)\b")
_OPEN, _CLOSE = "([", ")]"


@dataclass(frozen=True)
class KeyColumn:
    """``text`` without Spark's numbers of columns; ``plain``: a column's name, not an expression."""

    text: str
    plain: bool


def key_column(text: str) -> KeyColumn:
    """What Spark printed, without the numbers.

    >>> key_column("user#12L"), key_column("cast(a#3 as bigint)").plain
    (KeyColumn(text='user', plain=True), False)
    """
    return KeyColumn(_ID.sub("", text), _COLUMN.fullmatch(text) is not None)


def partitioning(text: str) -> tuple[str, tuple[str, ...]]:
    """The partitioning that an Exchange prints, and its arguments; empty where the text has none, or is cut.

    >>> partitioning("Exchange hashpartitioning(a#1, f(b#2, 3), 8), ENSURE_REQUIREMENTS, [plan_id=1]")
    ('hashpartitioning', ('a#1', 'f(b#2, 3)', '8'))
    """
    found = _PARTITIONING.search(text)
    if found is None:
        return "", ()
    return found[1], arguments(text, found.end())


def arguments(text: str, start: int) -> tuple[str, ...]:
    """What is between the bracket at ``start`` and its partner, split at the commas that are not in brackets."""
    if text[start : start + 1] not in ("(", "["):
        return ()
    depth, begin, parts = 0, start + 1, []
    for at in range(start, len(text)):
        letter = text[at]
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0 or (depth == 1 and letter == ","):
            parts.append(text[begin:at].strip())
            begin = at + 1
        if depth == 0:
            return tuple(part for part in parts if part)
    return ()
