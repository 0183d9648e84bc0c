"""What one replica of the service remembers of a stream's rounds, as a value: each method gives the next value.

A replica looks at the round in the store, asks ``next_step`` what to do, does it, and hands the outcome back here.
Verbs read the newest answer from it. Other replicas may do the same at the same time: the store lets each step happen
once. The state is a named tuple, for speed: it changes with every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from unskew.core.rounds.carryover import MergedRound, RoundCarryover
from unskew.core.rounds.messages import Answer
from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.rounds.round_log import RoundView
from unskew.core.rounds.rules import RoundRules

__all__ = ["Progress", "ReplicaState", "RoundTiming"]

_MOST_SEEN = 64


@dataclass(frozen=True)
class RoundTiming:
    """How a replica waits, in seconds: between two looks where nothing happens, after a failure (doubles up to
    ``poll``), and before it merges a round that another replica sealed."""

    poll: float = 5.0
    retry: float = 0.25
    takeover: float = 0.25


class Progress(Enum):
    """What the replica has done since it looked last."""

    LOOKED = "looked"
    FETCHED = "fetched"  # it has asked for the newest answer
    SEALED = "sealed"  # it has closed the open round, or found it closed
    NOT_SEALED = "not sealed"  # the store refused: the round had no report any more
    MERGED = "merged"  # its answer stands
    OVERTAKEN = "overtaken"  # another answer stands, there is another round to merge, or the rounds begin anew


class ReplicaState(NamedTuple):
    """``answer`` is the newest that was read or made here, ``carryover`` what the last round left, read from the bytes
    ``keep``. ``restarts`` counts how often the rounds began anew: what was reported before is not in the store.
    ``clock_ahead``: the store's clock minus this replica's; None before the first look. ``unmerged``: the round that
    another replica has sealed and not merged, and since when this one waits for it. ``failures``: in a row. ``seen``:
    the newest round that was answered here, and those that agents have shown since the last look; ``lost``: the
    incarnation of one of them that the store has lost, 0 for none."""

    rules: RoundRules
    timing: RoundTiming
    carryover: RoundCarryover
    keep: bytes = b""
    answer: MergedRound | None = None
    incarnation: int = 0
    restarts: int = 0
    clock_ahead: float | None = None
    progress: Progress = Progress.LOOKED
    unmerged: tuple[int, float] = (0, 0.0)
    failures: int = 0
    seen: frozenset[SeenRound] = frozenset()
    lost: int = 0

    @classmethod
    def begin(cls, rules: RoundRules, timing: RoundTiming) -> ReplicaState:
        """Of a replica that has not looked yet."""
        return cls(rules, timing, RoundCarryover.of(b"", rules))

    # -- what it says

    @property
    def version(self) -> tuple[int, int] | None:
        """Of the newest answer."""
        return None if self.answer is None else self.answer.version

    @property
    def dsync(self) -> float:
        return self.carryover.dsync

    @property
    def lease(self) -> float:
        """Seconds that rounds wait for an agent after its report."""
        return self.rules.lease * self.dsync

    @property
    def retry(self) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.timing.retry * 2.0 ** min(self.failures - 1, 30), self.timing.poll)

    def age(self, merged: MergedRound, now: float) -> float:
        """Seconds since that round was complete."""
        return 0.0 if self.clock_ahead is None else max(now + self.clock_ahead - merged.carryover.complete, 0.0)

    def previous(self, view: RoundView) -> Answer | None:
        """The answer of the last round that is merged in this view."""
        merged = self.answer
        return merged.answer if merged is not None and view.merged and merged.answer.epoch == view.merged else None

    # -- what changes it

    def with_rules(self, rules: RoundRules) -> ReplicaState:
        """The stream's settings changed."""
        return self._replace(rules=rules, carryover=RoundCarryover.of(self.keep, rules))

    def after_look(self, view: RoundView, now: float, held: frozenset[SeenRound]) -> ReplicaState:
        """The store said this. ``held`` are the rounds that were seen before it was asked: a store that does not have
        one of them lost it in a failover. What this replica remembers is void then, and the rounds begin anew."""
        foreign = self.answer is not None and self.answer.version[0] != view.incarnation
        version = view.incarnation, view.merged
        gone = frozenset(one for one in held if one.is_lost(version, view.digests))
        lost = max((one.incarnation for one in gone), default=0)
        renewed = self.incarnation not in (0, view.incarnation)
        state = self.begin_anew() if foreign or lost or renewed else self
        sealed = view.merged + 1
        return state._replace(
            carryover=self.carryover if view.keep == self.keep else RoundCarryover.of(view.keep, self.rules),
            keep=view.keep,
            incarnation=view.incarnation,
            clock_ahead=view.now - now,
            progress=Progress.LOOKED,
            seen=self.seen - held | gone | {max(held, default=NOTHING_SEEN)},
            lost=lost,
            unmerged=self.unmerged if view.open <= sealed or self.unmerged[0] == sealed else (sealed, now),
        )

    def after_answer(self, merged: MergedRound, keep: bytes) -> ReplicaState:
        """The answer of a round was read or made. An older one than the newest changes nothing."""
        if self.answer is not None and merged.version < self.answer.version:
            return self
        return self._replace(
            answer=merged, carryover=merged.carryover, keep=keep, seen=self.seen | {merged.answer.seen}
        )

    def after_shown(self, seen: SeenRound) -> ReplicaState:
        """An agent has shown the round whose answer it got. While the store cannot be looked at only so many are kept:
        agents show theirs again."""
        if seen in self.seen or len(self.seen) >= _MOST_SEEN:
            return self
        return self._replace(seen=self.seen | {seen})

    def after_fetch(self) -> ReplicaState:
        """The newest answer was asked for, whether there was one or not."""
        return self._replace(progress=Progress.FETCHED)

    def after_seal(self, *, closed: bool) -> ReplicaState:
        """The store was asked to close the open round; whether that is closed now."""
        return self._replace(progress=Progress.SEALED if closed else Progress.NOT_SEALED)

    def after_begin_anew(self) -> ReplicaState:
        """The stream is in an incarnation above the one that was lost."""
        return self._replace(progress=Progress.OVERTAKEN)

    def before_take_over(self, epoch: int, now: float) -> ReplicaState:
        """If this fails the replica waits again before the next try."""
        return self._replace(unmerged=(epoch, now))

    def after_merge(self, view: RoundView, epoch: int, *, ours: bool) -> ReplicaState:
        """The answer of a round was offered to the store; whether it is the one that stands."""
        last = ours and view.open <= epoch + 1
        return self._replace(progress=Progress.MERGED if last else Progress.OVERTAKEN)

    def after_turn(self) -> ReplicaState:
        """Nothing failed from the look to the next wait."""
        return self if not self.failures else self._replace(failures=0)

    def after_failure(self) -> ReplicaState:
        """The store was away, or something in it could not be read."""
        return self._replace(failures=self.failures + 1)

    def begin_anew(self) -> ReplicaState:
        """The rounds of this stream begin anew, or the stream is gone."""
        return self._replace(answer=None, restarts=self.restarts + 1)
