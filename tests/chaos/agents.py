"""The agents of the chaos tests, each a process of its own: ``python -m tests.chaos.agents``.

One process imports everything and compiles nothing after that; then it forks an agent for each line that it reads, so
that 32 of them start in a second or two. A line is a ``Wanted`` as JSON. When its input ends it kills what is left of
them, by pid.

An agent routes a batch every ``pause`` seconds, obeys ``halt`` and ``go`` from its control connection, and writes all
that it does to its diary, a line at a time, before it does it: nothing of it is lost with the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tests.chaos.inputs import Shape, rows
from unskew.client import Agent
from unskew.client.results import Synced
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.agent import Action, AgentSettings, AgentTick, Answered, SendReport, Tuples
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer

__all__ = ["Wanted", "digest"]

_DEAD = (("grpc.keepalive_time_ms", 1_000), ("grpc.http2.ping_timeout_ms", 1_000))
"""When a way is taken for dead: 40 s by default."""


@dataclass(frozen=True)
class Wanted:
    """An agent: ``target`` is where the replicas are, ``control`` the port of the test, ``begin`` its first batch."""

    number: int
    stream: str
    target: str
    control: int
    diary: str
    shape: dict[str, Any]
    begin: int = 0

    @property
    def name(self) -> str:
        return f"agent-{self.number:04}"


def digest(table: QTable) -> str:
    """A Q-table to the bit."""
    found = hashlib.sha256()
    for part in (table.hashes, table.values, table.rows, table.held):
        found.update(f"{part.shape}{part.dtype}".encode() + part.tobytes())
    return found.hexdigest()[:16]


class Diarist(Agent):
    """An agent that writes down what it reports, what is acknowledged and what it adopts, and can be halted."""

    def __init__(self, diary: int, *args: Any, **named: Any) -> None:
        self._diary, self._seq = diary, 0
        self.halt_at: tuple[int, int] | None = None
        super().__init__(*args, **named)
        self.write("life", name=self.status.name, session=self.status.session)

    def write(self, what: str, **fields: Any) -> None:
        os.write(self._diary, json.dumps({"what": what, "at": round(time.monotonic(), 3), **fields}).encode() + b"\n")

    @property
    def halted(self) -> bool:
        """It has the version that it is to stop at."""
        return self.halt_at is not None and self.version >= self.halt_at

    def tick(self) -> None:
        if not self.halted:
            super().tick()

    def _post(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, SendReport) and action.report.seq > self._seq:
                self._seq = action.report.seq
                self.write("posted", seq=self._seq, records=action.report.records)
        super()._post(actions)

    def take(self, synced: Synced) -> None:
        before, had = self.waiting, self.version
        super().take(synced)
        if before is not None and (self.waiting is None or self.waiting.name != before.name):
            self.write("acked", seq=before.seq)
        if synced.answer is not None and self.version != had:
            self.write("adopted", version=self.version, digest=digest(synced.answer.table))


def _warm(shape: Shape) -> None:
    """A whole life in small: kernels are compiled, or loaded, before the fork and not by each agent in mid-round."""
    machine = Machine(AgentSettings("warm", shape.workers, 1.0))
    for turn in range(4):
        machine.handle(Tuples(rows(shape, 0, turn)), 2.0 * turn)
        for action in machine.handle(AgentTick(), 2.0 * turn + 1.0):
            if isinstance(action, SendReport):
                pool = merge([action.report])
                named = (action.report.name,)
                answer = Answer(turn + 1, named, pool.table, pool.records, pool.unsure, pool.loads, 1.0, pool.split)
                machine.handle(Answered(answer, 0.0), 2.0 * turn + 1.0)


def _live(wanted: Wanted) -> None:
    shape = Shape(**wanted.shape)
    control = socket.create_connection(("127.0.0.1", wanted.control))
    diary = os.open(wanted.diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    agent = Diarist(
        diary, wanted.stream, wanted.target, workers=shape.workers, name=wanted.name, dsync=shape.dsync, seed=7,
        timeout=2.0, options=_DEAD,
    )  # fmt: skip
    control.sendall(json.dumps({"number": wanted.number, "pid": os.getpid()}).encode() + b"\n")
    batch, due, lines = wanted.begin, time.monotonic(), control.makefile("rb")
    while True:
        idle = max(due - time.monotonic(), 0.0) if not agent.halted else None
        if select.select([control], [], [], 0.05 if idle is None else idle)[0]:
            line = lines.readline()
            if not line:
                os._exit(0)  # the test is gone
            control.sendall(_answer(agent, batch, json.loads(line)))
        elif not agent.halted:
            workers = agent.route(rows(shape, wanted.number, batch))
            agent.write("routed", batch=batch, loads=np.bincount(workers, minlength=shape.workers).tolist())
            batch, due = batch + 1, max(due + shape.pause, time.monotonic() - shape.pause)


def _answer(agent: Diarist, batch: int, asked: dict[str, Any]) -> bytes:
    if asked["do"] == "halt":
        agent.halt_at = tuple(asked["at"])
    elif asked["do"] == "go":
        agent.halt_at = None
    status = agent.status
    told = {**asdict(status), "halted": agent.halted, "batch": batch}
    return json.dumps(told).encode() + b"\n"


def main() -> None:
    children: list[int] = []
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        wanted = Wanted(**json.loads(line))
        if not children:
            _warm(Shape(**wanted.shape))
        pid = os.fork()
        if not pid:
            try:
                _live(wanted)
            finally:
                sys.stderr.flush()
                os._exit(1)
        children.append(pid)
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
