"""Is the exchange that a plan asked for still there? Read from the physical plan.

A repartition after ours, or a join with another number of partitions, takes our exchange out or shuffles the rows
again, and nothing says so but the plan. ``dropped_exchange`` says it. An exchange is known as a plan's by the plan's
tail table, which stands in it, whichever way it was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import physical_text
from unskew.spark.place.native import table_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Node", "dropped_exchange", "nodes"]

_LINE = re.compile(r"^((?:[:+| ][ -][ ]?)*)(?:\*\s?\(\d+\) )?(.*)$")
_STEP = 3  # characters by which explain indents a child
_SHOWN = 120


@dataclass(frozen=True)
class Node:
    """A line of the plan: how deep it stands, and what it says."""

    depth: int
    text: str

    @property
    def name(self) -> str:
        return self.text.split(" ", 1)[0].split("(", 1)[0]


def nodes(text: str) -> list[Node]:
    """The nodes of an explained physical plan, parents before children; the final plan where there are two."""
    body = text.split("== Physical Plan ==", 1)[-1].split("== Initial Plan ==", 1)[0]
    lines = []
    for line in body.splitlines():
        match = _LINE.match(line)
        if match is not None and match.group(2).strip() and not match.group(2).lstrip(" +-:").startswith("=="):
            lines.append(Node(len(match.group(1)) // _STEP, match.group(2).strip()))
    return lines


def dropped_exchange(df: DataFrame, plan: Plan) -> str | None:
    """Why the rows of ``df`` are not where ``plan`` puts them; None where they are. No job runs. Of a frame that has
    run, the plan that AQE ended with is read.

    Examples
    --------
    >>> from unskew.spark import dropped_exchange
    >>> dropped_exchange(clicks.repartition(4, "user"), sk.last).split(" is in ")[0]  # doctest: +ELLIPSIS
    'no exchange by plan ...'
    """
    lines = nodes(physical_text(df))
    ours = _exchange_of(plan, lines)
    if ours is None:
        return (
            f"no exchange by plan {plan.version} is in the physical plan: a later repartition, coalesce or rebalance "
            "took it out. Repartition by the plan last, and give joins both sides routed with the same plan"
        )
    for node in _above(lines, ours):
        if node.name == "Exchange":
            return f"the rows are shuffled again after the plan's exchange: {_short(node)}"
        if node.name == "Coalesce" or (node.name == "AQEShuffleRead" and node.text != "AQEShuffleRead local"):
            return f"partitions are joined or cut after the plan's exchange: {_short(node)}"
    return None


def _exchange_of(plan: Plan, lines: list[Node]) -> int | None:
    """Where the plan's exchange stands: its table is in it, or in the projection below it that makes its column."""
    tail = f"[{table_text(plan.tail)}]"
    at = next((i for i, node in enumerate(lines) if tail in node.text), None)
    if at is None or "Exchange" in lines[at].name:
        return at
    moved = next((i for i in range(at, -1, -1) if lines[i].name == "Exchange" and lines[i].depth < lines[at].depth), at)
    kinds = ("Exchange shufflepartitionidpassthrough(", "Exchange hashpartitioning(")
    text = lines[moved].text
    return moved if text.startswith(kinds) and f", {plan.partitions}), REPARTITION_BY_NUM" in text else None


def _above(lines: list[Node], at: int) -> list[Node]:
    """The ancestors of a node, nearest first."""
    above, depth = [], lines[at].depth
    for node in reversed(lines[:at]):
        if node.depth < depth:
            above.append(node)
            depth = node.depth
    return above


def _short(node: Node) -> str:
    return node.text if len(node.text) <= _SHOWN else node.text[:_SHOWN] + "..."
