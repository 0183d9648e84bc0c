"""The pins of a query: which plan or Q-table each batch is bound to, kept durably, the same for every run of the batch.

A pin is an interval: it binds the batches from its own on until the next pin. It is written before the first task of
its first batch starts, and only where something changes. What a new run of the query has to know is only this: the
first batch that it sees may have been begun by an earlier one, so it gets the pin that is there and no other.
Every later batch has not been begun by anybody, for Spark begins one when the one before is done.

An earlier driver may not be dead but only cut off, and about to bind the same batch to something newer. So the first
batch of a run gets a pin of its own, a copy of the one that it goes by: the driver that comes second finds it.

A run that ended cleanly leaves a mark of its last batch (``clean_end``). Where the next batch has no pin after that,
nobody has begun it, and it is bound anew; it gets a pin of its own whatever it goes by, as the mark stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from unskew.core.errors import ConfigError, PlanError, PlanFormatError
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark.folders import Folder
from unskew.wire import StoredPin, pinned_from_bytes, pinned_to_bytes

__all__ = ["PinLog", "pin_folder"]

_SUFFIX, _ENDED = ".pb", "ended"  # a folder, with a file named after the last batch of a run that ended
_KEPT = 100  # batches that Spark can go back by itself (spark.sql.streaming.minBatchesToRetain)


def pin_folder(checkpoint: str, name: str) -> Folder:
    return Folder(checkpoint).sub(f"unskew/{name}/pins")


class PinLog:
    """The pins of one query, in one run of it. ``identity`` has what must be equal in all of them."""

    def __init__(self, folder: Folder, identity: StoredPin) -> None:
        self._folder, self._identity = folder, identity
        self._binding = threading.Lock()  # who says that the run has ended is another thread than who binds
        self._forget_all()

    def _forget_all(self) -> None:
        """Forget everything, as a new run of the query."""
        self._firsts: list[int] | None = None  # of the pins that are there, ascending; None: not read yet
        self._present: StoredPin | None = None
        self._newest = -1  # the last batch that was bound in this run, or by one that ended cleanly
        self._after_end = False  # whether that was such a run

    @property
    def present(self) -> StoredPin | None:
        """The pin of the last batch that was bound."""
        return self._present

    def free(self, batch: int) -> bool:
        """Whether this batch cannot have been begun, so that it may be bound to something new."""
        return self._newest >= 0 and batch == self._newest + 1 and batch not in self._first_batches()

    def bound(self, batch: int) -> StoredPin | None:
        """What an earlier run, of the query or of the batch, has bound it to. None where nothing is there, and where a
        run ended cleanly with the batch before; ``present`` is that one's pin then."""
        self._firsts = None  # what is on the disk counts
        self._folder.tidy()
        self._drop_ends(lambda last: last >= batch)  # no longer so: Spark's log was set back
        firsts = self._first_batches()
        first = max((one for one in firsts if one <= batch), default=None)
        if first is not None and first == firsts[-1] < batch and self._ended_before(batch):
            self._present, self._newest, self._after_end = self._read(first), batch - 1, True
            return None
        if first is None and firsts:
            raise PlanError(
                f"batch {batch} is older than every pin in {self._folder.where} (the oldest: {min(firsts)}): by which "
                "plan it ran is no longer known. Begin with a new checkpoint, or delete that folder to let it be "
                "routed anew"
            )
        if first is None:
            return None
        pin = self._read(first)
        if first == batch:
            return self._take(batch, pin)
        return self._own(batch, pin)

    def stay(self, batch: int) -> StoredPin:
        """The batch goes by the pin of the one before: nothing is written, but in the first batch of a run."""
        with self._binding:
            present = self._present
            if present is None:
                raise PlanError(f"batch {batch} has no pin to stay with")
            return self._own(batch, present) if self._after_end else self._take(batch, present)

    def end(self, batch: int) -> None:
        """The run is over, and has committed this batch: if it was the last to be bound, nobody has begun the next. (A
        query that is being stopped may still begin one: that is written then.)"""
        with self._binding:
            if batch < 0 or batch != self._newest:
                return
            self._after_end = True
            self._folder.create(f"{_ENDED}/{batch}", b"")
        self._drop_ends(lambda last: last != batch)

    def _ended_before(self, batch: int) -> bool:
        return str(batch - 1) in self._folder.names(_ENDED)

    def _drop_ends(self, which: Callable[[int], bool]) -> None:
        marks = [name for name in self._folder.names(_ENDED) if name.isdecimal()]
        self._folder.delete(*(f"{_ENDED}/{name}" for name in marks if which(int(name))))

    def _own(self, batch: int, pin: StoredPin) -> StoredPin:
        """The same under the batch's own name, or what another driver has written there."""
        mine = self._take(batch, self._write(batch, pin))
        self._forget(batch)
        return mine

    def bind(self, batch: int, bound: RoutingChoice, reason: str, began: int) -> StoredPin:
        """Bind the batch and those after it. Where another driver was first, its pin counts."""
        mine = replace(self._identity, bound=replace(bound, batch=batch), reason=reason, began=began)
        with self._binding:
            return self._own(batch, mine)

    def _take(self, batch: int, pinned: StoredPin) -> StoredPin:
        self._present, self._newest, self._after_end = pinned, batch, False
        return pinned

    def _write(self, batch: int, mine: StoredPin) -> StoredPin:
        """The batch's own pin from now on. Where writing fails it may be there all the same: then the next attempt has
        to look, as a new run does."""
        firsts = self._first_batches()
        self._forget_all()
        made = self._folder.create(f"{batch}{_SUFFIX}", pinned_to_bytes(mine))
        self._firsts = sorted({*firsts, batch})
        return mine if made else self._read(batch)

    def _first_batches(self) -> list[int]:
        if self._firsts is None:
            names = [name.removesuffix(_SUFFIX) for name in self._folder.names() if name.endswith(_SUFFIX)]
            self._firsts = sorted(int(name) for name in names if name.isdecimal())
        return self._firsts

    def _read(self, first: int) -> StoredPin:
        name = f"{first}{_SUFFIX}"
        data = self._folder.read(name)
        if data is None:
            raise PlanError(
                f"the pin of batch {first} was in {self._folder.where} and is gone: a batch that ran by it must not be "
                "run by another plan. Put the file back, or begin with a new checkpoint"
            )
        try:
            pin = pinned_from_bytes(data)
        except PlanFormatError as why:
            raise PlanFormatError(
                f"{name} in {self._folder.where}: {why}. A batch that ran by it must not be run by another plan: put "
                "the file back as it was, or begin with a new checkpoint"
            ) from why
        self._check(pin)
        return pin

    def _check(self, pin: StoredPin) -> None:
        mine = self._identity
        for what, theirs, ours in (
            ("stream", pin.stream, mine.stream),
            ("name", pin.name, mine.name),
            ("key", pin.key, mine.key),
            ("spread", pin.spread, mine.spread),
        ):
            if theirs != ours:
                raise ConfigError(
                    what,
                    ours,
                    f"{theirs!r}, as the pins in {self._folder.where} have it: their batches were routed so. Another "
                    "query needs a name of its own",
                )

    def _forget(self, batch: int) -> None:
        """Delete pins that no batch which can still run again is bound to."""
        firsts = self._first_batches()
        needed = max((one for one in firsts if one <= batch - _KEPT), default=None)
        if needed is None:
            return
        gone = [one for one in firsts if one < needed]
        self._folder.delete(*(f"{one}{_SUFFIX}" for one in gone))
        self._firsts = [one for one in firsts if one >= needed]
