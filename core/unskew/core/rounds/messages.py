"""What an agent and the Q-table reducer tell each other (Dalton, section 4.1), as values.

The paper's SYNC carries the local Q-table, the records since the last one and the top-n keys. Ours carries instead of
a bare top-n, which can miss a global heavy hitter, the mergeable summary of FIDELITY; and it adds the load vector and
(in the table) the hot keys' fragments. Everything that counts tuples counts those since the agent's report before, so
that a report is worth its tuples in exactly one round.

A report is named by (agent, session, seq): sessions rise from one life of an agent to the next, seq from 1 within it.
A report sent again is the same report, unchanged, until an answer that names it has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.frozen import by_fields, freeze
from unskew.core.arrays.types import I64, U64
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.sketches.frequent import FrequentItems

__all__ = ["Answer", "Report"]


@dataclass(frozen=True, eq=False)
class Report:
    """SYNC, from an agent to the reducer."""

    agent: str
    session: int
    seq: int
    table: QTable  # local rows; ``table.rows`` are tuples since the last report
    records: int  # tuples since the last report
    frequent: FrequentItems  # of the same tuples
    loads: I64  # tuples per worker in the agent's window, now
    dsync: float  # the interval that the agent works with
    longer: bool  # it was still waiting for the answer to its last report when this one fell due
    guest: bool = False  # no round waits for this agent: another one, which reports after it, holds the round for both

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        freeze(self, loads=np.int64)
        if self.session < 1 or self.seq < 1:
            raise ConfigError("seq", (self.session, self.seq), "sessions and sequence numbers from 1 on")
        if self.records < 0 or self.frequent.total != self.records:
            raise ConfigError("records", self.records, f"what the summary counted: {self.frequent.total}")
        if self.loads.shape != (self.table.workers,) or self.loads.min(initial=0) < 0:
            raise ConfigError("loads", f"shape {self.loads.shape}", f"0 or more for each of {self.table.workers}")
        if not 0 < self.dsync < float("inf"):
            raise ConfigError("dsync", self.dsync, "a number above 0")

    @property
    def name(self) -> tuple[str, int, int]:
        return self.agent, self.session, self.seq


@dataclass(frozen=True, eq=False)
class Answer:
    """The global state after a round, from the reducer to every agent that reported in it."""

    epoch: int  # of the round: versions only grow
    merged: tuple[tuple[str, int, int], ...]  # the reports that are in it, by name, sorted
    table: QTable  # hot keys only; ``table.rows`` are global, ``table.held`` is the union
    records: int  # GL
    unsure: frozenset[int]  # keys that the summaries' error does not allow to call hot or cold: agents keep theirs
    loads: I64  # sum of the agents' load vectors
    dsync: float  # the interval from now on
    split: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))  # every key that some agent has a row for
    incarnation: int = 0  # rises whenever the reducer begins anew from nothing, and its epochs with it
    digest: int = 0  # of the round (``round_digests``); 0 where it is not known

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        freeze(self, loads=np.int64)

    @property
    def version(self) -> tuple[int, int]:
        """Only a greater one is news."""
        return self.incarnation, self.epoch

    @property
    def seen(self) -> SeenRound:
        """What its receiver shows of it."""
        return SeenRound(self.incarnation, self.epoch, self.digest)
