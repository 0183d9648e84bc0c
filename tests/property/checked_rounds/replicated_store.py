"""The store as replicas meet it: Redis with a follower that lags behind.

The state is the memory store's, which is held to the Lua scripts by ``tests/contract`` (``test_store_machine``,
``test_store_races``). A failover puts the follower's state in its place: all that was acknowledged since the follower
was in step is lost. ``books`` are the rounds as this state has them, and are lost with it.
"""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from unskew.core.rounds.round_log import ReportKey, RoundLog
from unskew.service.stores.limits import Limits
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.records import News

__all__ = ["STREAM", "BrokenError", "ReplicatedStore", "at_once"]

STREAM = "clicks"
EPOCH = 1e9  # what the store's clock says when the run begins


class BrokenError(AssertionError):
    """A promise that was not kept."""


def at_once(asked: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never waits."""
    try:
        asked.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the memory store waits")


@dataclass(frozen=True)
class Books:
    """The rounds that were merged in this incarnation of the stream."""

    incarnation: int = 0
    rounds: tuple[frozenset[ReportKey], ...] = ()

    def count(self, name: ReportKey) -> int:
        return sum(name in names for names in self.rounds)


@dataclass
class ReplicatedStore:
    """``now`` is the time of the run, ``ahead`` what this master's clock is ahead of it."""

    now: float = 0.0
    ahead: float = 0.0
    books: Books = field(default_factory=Books)
    follower: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda: EPOCH + self.now + self.ahead, Limits())

    # -- calls

    def ask(self, op: str, args: tuple[Any, ...]) -> tuple[Any, list[News]]:
        """The answer, and the news that go out with it."""
        before = self._rounds()
        answer = at_once(getattr(self.store, op)(*args))
        after = self._rounds()
        self._write(before, after)
        changed = after is not None and (before is None or before[1:] != after[1:])
        return answer, [News(STREAM, "round", after[1:])] if after is not None and changed else []

    def log(self) -> RoundLog:
        return self.store._streams[STREAM].rounds

    def _rounds(self) -> tuple[int, int, int] | None:
        entry = self.store._streams.get(STREAM)
        return None if entry is None else (entry.record.incarnation, entry.rounds.open, entry.rounds.merged)

    def _write(self, before: tuple[int, int, int] | None, after: tuple[int, int, int] | None) -> None:
        """In the books, and look whether it may be."""
        if after is None:
            return
        incarnation, _, merged = after
        if before is None or incarnation != before[0]:
            self.books = Books(incarnation)
        elif merged != before[2]:
            last = self.log().last
            assert last is not None
            names = frozenset(last.names)
            if merged != before[2] + 1:
                raise BrokenError(f"round {merged} is merged after {before[2]}")
            if twice := [name for name in names if self.books.count(name)]:
                raise BrokenError(f"merged twice: {twice}")
            self.books = replace(self.books, rounds=(*self.books.rounds, names))

    # -- faults

    def lag(self) -> None:
        """From now on the follower hears nothing."""
        state = copy.deepcopy(self.store._streams), list(self.store._names)
        self.follower = (*state, self.store._incarnation, self.books)

    def fail_over(self, ahead: float) -> None:
        """The follower is the master, with what it has and its own clock."""
        assert self.follower is not None
        (streams, self.store._names, self.store._incarnation, self.books), self.follower = self.follower, None
        self.store._streams, self.ahead = streams, ahead
