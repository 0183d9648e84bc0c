"""Which operator of Spark's plan a stage ran after its shuffle, and by which key its rows were placed.

A stage is tied to the plan by accumulators: it read from those Exchanges whose count of records it moved. From there
the way leads up, to the operator that needs the Exchange, until the next one. Nodes of Python functions have no numbers
of their own in older releases, so the way goes through what is there, not through what counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from unskew.core.diagnosis.expressions import KeyColumn, key_column, partitioning

__all__ = ["NO_OPERATOR", "Operator", "PlanNode", "operator_of"]

JOIN, GROUPS, COGROUPS, WINDOW, AGGREGATE = "join", "group_apply", "cogroup", "window", "aggregate"
REPARTITION, SORT, SINGLE, WRITE, RDD, SCAN, OTHER = "repartition", "sort", "single", "write", "rdd", "scan", "other"

_KINDS = {
    JOIN: re.compile("SortMergeJoin|ShuffledHashJoin|SymmetricHashJoin"),
    COGROUPS: re.compile("CoGroup"),
    GROUPS: re.compile("FlatMapGroups|MapGroups"),
    WINDOW: re.compile("Window(?!GroupLimit)"),
    AGGREGATE: re.compile("Aggregate"),
}
_WRITES = re.compile("Execute |WriteFiles|Append|Overwrite|SaveInto|WriteToDataSource")
_SKEWED = re.compile(r"(?:AQEShuffleRead|CustomShuffleReader).*\bskewed")
_HOW = re.compile(r"\], \[.*?\], (\w+)")
_CUT = "..."  # how Spark shows that a text was too long


@dataclass(frozen=True)
class PlanNode:
    """A node of Spark's plan. ``reads``: accumulators that only a stage that reads an Exchange moves."""

    name: str
    text: str
    metrics: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    children: tuple[PlanNode, ...] = field(default=(), repr=False)

    @property
    def is_exchange(self) -> bool:
        return self.name.endswith("Exchange") and not self.name.startswith("Broadcast")


@dataclass(frozen=True)
class Operator:
    """``kind`` and Spark's own ``node``, the key's columns on each side (one side but for joins), the partitions that
    rows were placed in, whether AQE split large ones already, and the type of a join."""

    kind: str
    node: str
    keys: tuple[tuple[KeyColumn, ...], ...] = ()
    partitions: int | None = None
    aqe_split: bool = False
    how: str = ""

    @property
    def key_text(self) -> str:
        """The key as a reader knows it: ``user``, ``user = uid`` for a join of two names."""
        sides = [", ".join(column.text for column in side) for side in self.keys]
        return " = ".join(dict.fromkeys(side for side in sides if side))


NO_OPERATOR = Operator(OTHER, "")


def operator_of(plan: PlanNode, accumulators: frozenset[int]) -> Operator:
    """The operator of the stage that moved these accumulators.

    >>> exchange = PlanNode("Exchange", "Exchange hashpartitioning(user#1L, 8)", reads=frozenset({5}))
    >>> window = PlanNode("Window", "Window [...], [user#1L]", children=(exchange,))
    >>> found = operator_of(window, frozenset({5}))
    >>> found.kind, found.key_text, found.partitions
    ('window', 'user', 8)
    """
    ways = _ways(plan, accumulators)
    if not ways:
        return Operator(SCAN, "")
    first = ways[0]
    exchanges = [way[-1] for way in ways]
    above = list(reversed(first[:-1]))
    kind, node = _kind(above, first[-1])
    sides = [way[-1] for way in ways if node in way[:-1]] or exchanges[:1]
    keys = tuple(_keys(exchange) for exchange in sides)
    aqe = any(_SKEWED.search(each.text) for way in ways for each in way)
    how = _HOW.search(node.text) if kind == JOIN else None
    return Operator(kind, node.name, keys, _partitions(first[-1]), aqe, how[1] if how else "")


def _ways(plan: PlanNode, accumulators: frozenset[int]) -> list[list[PlanNode]]:
    """From the Exchange (or the root) above each Exchange that the stage read, down to it; nodes in Spark's order."""
    found = [way for way in _down(plan) if way[-1].reads & accumulators]
    texts = {_bare(way[-1]) for way in found}
    reused = [way for way in _down(plan) if way[-1].name == "ReusedExchange" and _bare(way[-1]) in texts]
    ways = [*found, *reused]
    moved = [way for way in ways if any(node.metrics & accumulators for node in way[:-1])]
    return moved or found


def _bare(exchange: PlanNode) -> str:
    kind, parts = partitioning(exchange.text)
    return f"{kind}({', '.join(parts)})"


def _down(plan: PlanNode) -> Iterator[list[PlanNode]]:
    """Each way from a root or an Exchange down to the next Exchange. Without recursion: plans can be deep."""
    stack: list[_WayDown] = [_WayDown(plan, None)]
    while stack:
        step = stack.pop()
        node = step.node
        if node.is_exchange and step.above is not None:
            yield step.way()
        stack.extend(_WayDown(child, None if node.is_exchange else step) for child in reversed(node.children))


class _WayDown(NamedTuple):
    """A node on the way down, and the step above it."""

    node: PlanNode
    above: _WayDown | None

    def way(self) -> list[PlanNode]:
        """From the top down to here."""
        steps: list[PlanNode] = []
        step: _WayDown | None = self
        while step is not None:
            steps.append(step.node)
            step = step.above
        return steps[::-1]


def _kind(above: list[PlanNode], exchange: PlanNode) -> tuple[str, PlanNode]:
    """The first node above the Exchange that needs rows of a key together, else what the Exchange itself is for."""
    scheme, _ = partitioning(exchange.text)
    if scheme == "SinglePartition":
        return SINGLE, exchange
    if scheme == "rangepartitioning":
        return SORT, exchange
    for node in above:
        for kind, pattern in _KINDS.items():
            if pattern.search(node.name) and _goes_by(node, exchange):
                return kind, node
    written = any(_WRITES.search(node.name) for node in above)
    return (REPARTITION, exchange) if scheme == "hashpartitioning" else (WRITE if written else OTHER, exchange)


def _goes_by(node: PlanNode, exchange: PlanNode) -> bool:
    """Whether the node needs what the Exchange made, and does not merely stand above it as a partial aggregate may."""
    scheme, parts = partitioning(exchange.text)
    return scheme != "hashpartitioning" or _CUT in node.text or all(part in node.text for part in parts[:-1])


def _keys(exchange: PlanNode) -> tuple[KeyColumn, ...]:
    scheme, parts = partitioning(exchange.text)
    return tuple(key_column(part) for part in parts[:-1]) if scheme == "hashpartitioning" else ()


def _partitions(exchange: PlanNode) -> int | None:
    scheme, parts = partitioning(exchange.text)
    last = parts[-1] if parts else ""
    return int(last) if scheme and last.isascii() and last.isdigit() and len(last) < 10 else None
