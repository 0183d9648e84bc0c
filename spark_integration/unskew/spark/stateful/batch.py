"""What the tasks of a stateful batch get before the first one starts: plain values."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pyarrow as pa

from unskew.core.operators.keyed_state import Spans, StatePart, arrivals
from unskew.core.plan.plan import Plan
from unskew.spark.folders import Folder
from unskew.spark.stateful.calls import Function, Shapes

__all__ = ["DATA", "OUTPUT", "StatefulBatch", "StatefulJob", "file_name", "is_before"]

DATA, OUTPUT = "data", "output"


@dataclass(frozen=True, eq=False)
class StatefulJob:
    """What is the same in every batch. ``frame``: the stream's columns; the last of what comes in is the key's hash.
    ``time``: the column of event time. ``block``: keys in a block."""

    folder: Folder
    fn: Function
    form: str
    key: tuple[str, ...]
    shapes: Shapes
    frame: pa.Schema
    time: str | None
    block: int


@dataclass(frozen=True, eq=False)
class StatefulBatch:
    """``parts`` lie by ``placed`` (None: there is no state yet), rows come by ``plan``. Keys with an expiry up to
    ``clock`` have expired; None: none has."""

    job: StatefulJob
    number: int
    placed: Plan | None
    parts: tuple[StatePart, ...]
    plan: Plan
    clock: int | None

    def part(self, partition: int) -> StatePart:
        """Where the state of this partition lies."""
        return self.parts[partition] if partition < len(self.parts) else StatePart()

    def moved(self, partition: int) -> dict[int, Spans]:
        """By old place, the hashes that come to this partition with this batch."""
        if self.placed is None or self.placed.digest == self.plan.digest:
            return {}
        return arrivals(self.placed, self.plan, partition)


def file_name(batch: int, partition: int) -> str:
    """A name that no other attempt has; it begins with the batch."""
    return f"{batch}-{partition}-{uuid.uuid4().hex[:16]}"


def is_before(name: str, batch: int) -> bool:
    """Whether it is such a file, of an earlier batch than this."""
    first = name.split("-", 1)[0]
    return first.isdecimal() and int(first) < batch
