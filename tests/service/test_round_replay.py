"""The rounds of a real run are replayed: what each replica decided follows again from what it saw and remembered."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.cli.command import environment
from tests.servers import single
from tests.service.recorded_replica import Decision, DecisionLog
from unskew.core.rounds.next_step import Fetch, Merge, Seal, TakeOver, Wait, next_step
from unskew.core.rounds.replica import Progress

AFTER = {
    Fetch: {Progress.FETCHED},
    Seal: {Progress.SEALED, Progress.NOT_SEALED},
    Merge: {Progress.MERGED, Progress.OVERTAKEN},
    TakeOver: {Progress.MERGED, Progress.OVERTAKEN},
}


@contextlib.contextmanager
def replica(url: str, log: DecisionLog, agent: str, *last: str) -> Iterator[subprocess.Popen[bytes]]:
    log.path.touch()
    command = [sys.executable, "-m", "tests.service.recorded_replica", url, str(log.path), agent, *last]
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, env=environment() | paths) as run:
        try:
            yield run
        finally:
            run.kill()


def until(done: Callable[[], bool], run: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert run.poll() is None, "the replica that was to go on has ended"
        assert time.monotonic() < end, "it never came to this"
        time.sleep(0.05)


def until_merged(log: DecisionLog, epoch: int, run: subprocess.Popen[bytes]) -> None:
    until(lambda: log.merged() >= epoch, run)


def recorded(folder: Path) -> tuple[int, list[list[Decision]]]:
    """The round in the middle of which a replica died and that another took over, and what each replica wrote down. Bob
    goes on alone then, until it is killed too and cyd goes on."""
    bobs, cyds = DecisionLog(folder / "bob.log"), DecisionLog(folder / "cyd.log")
    logs = [bobs, cyds]
    with single(folder) as redis, contextlib.ExitStack() as stack:
        bob = stack.enter_context(replica(redis.url, bobs, "bob"))
        until_merged(bobs, 2, bob)
        taken_over = 0
        while not taken_over and len(logs) < 12:  # where bob has sealed the same round as well it merges it at once
            logs.append(DecisionLog(folder / f"ann-{len(logs)}.log"))
            with replica(redis.url, logs[-1], "ann", "4") as ann:
                until(lambda: ann.poll() is not None, bob)
            last = logs[-1].decisions()[-1]
            assert isinstance(last.step, Merge), "it died before it merged what it had sealed"
            until_merged(bobs, last.step.epoch, bob)
            taken_over = last.step.epoch if TakeOver(last.step.epoch) in [one.step for one in bobs.decisions()] else 0
        cyd = stack.enter_context(replica(redis.url, cyds, "cyd"))
        until_merged(cyds, taken_over + 2, cyd)
        bob.kill()
        bob.wait()
        until_merged(cyds, cyds.merged() + 3, cyd)
    return taken_over, [log.decisions() for log in logs]


def check_bookkeeping(before: Decision, after: Decision) -> None:
    """What a replica remembers between two decisions: of one turn by the step that it did, of two by its next look."""
    if not isinstance(before.step, Wait) and after.view == before.view:
        assert after.state.progress in AFTER[type(before.step)]
        return
    assert after.state.clock_ahead is not None
    looked = before.state.after_look(after.view, after.view.now - after.state.clock_ahead, before.state.seen)
    for name in ("incarnation", "restarts", "carryover", "keep", "progress"):
        if after.state.progress is Progress.LOOKED:
            assert getattr(looked, name) == getattr(after.state, name), name


def test_a_recorded_run_with_kills_is_decided_again_in_the_same_way(tmp_path: Path) -> None:
    """Processes over one Redis; two of them are killed with SIGKILL, one between a seal and its merge."""
    taken_over, logs = recorded(tmp_path)
    for log in logs:
        assert [next_step(one.view, one.state, one.now) for one in log] == [one.step for one in log]
        for before, after in pairwise(log):
            check_bookkeeping(before, after)
    assert taken_over >= 4
    assert {type(one.step) for log in logs for one in log} == {Fetch, Seal, Merge, TakeOver, Wait}
