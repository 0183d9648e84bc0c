"""A replica in a process of its own with one agent, that writes down each decision about the rounds of a stream:

    python -m tests.service.recorded_replica REDIS_URL LOG AGENT [EPOCH]

It goes on until it is killed. With an EPOCH it kills itself as soon as it has sealed a round from that one on, before
it merges it; its agent is then slower than others, so that mostly no other replica seals the same round.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.service.engines import a_report
from unskew.core.rounds.next_step import Merge, Step
from unskew.core.rounds.replica import ReplicaState
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.rounds.round_log import RoundView
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.engine import Engine
from unskew.service.stores import open_store

STREAM = "clicks"
PACE = 0.05
SPEC = StreamSpec(4, "dalton", dsync=0.4, dsync_min=0.4)


class Decision(NamedTuple):
    """What the machine was asked about, and its answer."""

    view: RoundView
    state: ReplicaState
    now: float
    step: Step


@dataclass
class DecisionLog:
    """What a replica has written down so far. The end may be missing where the process was killed."""

    path: Path
    _read: int = 0
    _decisions: list[Decision] = field(default_factory=list)

    def decisions(self) -> list[Decision]:
        with self.path.open("rb") as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
            file.seek(self._read)
            while True:
                self._decisions.append(Decision(*pickle.load(file)))
                self._read = file.tell()
        return self._decisions

    def merged(self) -> int:
        """The last merged round that the replica has seen."""
        decisions = self.decisions()
        return decisions[-1].view.merged if decisions else 0


async def main(url: str, log: Path, agent: str, last: float) -> None:
    with log.open("ab", buffering=0) as file:

        def record(stream: str, view: RoundView, state: ReplicaState, now: float, step: Step) -> None:
            file.write(pickle.dumps((view, state, now, step)))
            if isinstance(step, Merge) and step.epoch >= last:
                os.kill(os.getpid(), signal.SIGKILL)

        engine = Engine(open_store(f"{url}?timeout=5&deadline=10"))
        engine._rounds.recorder = record
        await engine.start()
        await engine.put_stream(STREAM, SPEC)
        session = time.time_ns()
        for seq in itertools.count(1):
            await asyncio.sleep(PACE if last == math.inf else 2 * PACE)
            report = a_report(agent, seq, session=session, dsync=SPEC.dsync)
            while not (await engine.sync(STREAM, report, 1.0, NOTHING_SEEN)).merged:
                pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float((*sys.argv, "inf")[4])))
