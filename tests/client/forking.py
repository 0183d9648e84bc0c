"""Run by test_client_agent: a process with a client or an agent forks. Prints one line of JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from unskew.client import Agent, Client, PlanAgent, Reporter
from unskew.core.stream_spec import BatchWork, Work

HASHES = np.arange(1_000, dtype=np.uint64)
LONGEST = 60.0
_CLIENT: list[Client] = []


def until(what: Callable[[], object]) -> None:
    limit = time.monotonic() + LONGEST
    while not what():
        if time.monotonic() > limit:
            raise SystemExit("it did not come")
        time.sleep(0.005)


def in_child(work: Callable[[], Any], *, abruptly: bool) -> Any:
    """What ``work`` gives in a forked child, that then ends as a process does, or at once."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(LONGEST))
        os.close(reading)
        os.write(writing, json.dumps(work()).encode())
        os.close(writing)
        if abruptly:
            os._exit(0)
        sys.exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(told) if status == 0 and told else f"ended with {status}"


def agents(target: str) -> dict[str, Any]:
    with Agent("clicks", target, workers=4, dsync=0.05, name="parent") as agent:

        def child() -> dict[str, Any]:
            agent.route(HASHES)
            until(lambda: agent.status.answered)
            return asdict(agent.status)

        until(lambda: agent.route(HASHES).size and agent.status.answered >= 2)
        before = agent.status.version
        children = [in_child(child, abruptly=bool(number % 2)) for number in range(4)]
        until(lambda: agent.route(HASHES).size and agent.status.version > (before[0], before[1] + 6))
        return {"parent": asdict(agent.status), "children": children, "before": before, "after": agent.status.version}


def busy(target: str) -> dict[str, Any]:
    ended = threading.Event()
    wrong: list[str] = []
    client = Client(target, timeout=LONGEST)
    agent = Agent("clicks", client, workers=4, dsync=0.02)

    def call() -> None:
        while not ended.is_set():
            try:
                client.get_plan("clicks")
                agent.route(HASHES)
            except Exception as why:  # noqa: BLE001 - told to the test
                wrong.append(str(why))
                return

    def child() -> str:
        client.get_plan("clicks")
        next(client.watch("clicks"))
        agent.route(HASHES)
        agent.close()
        return "ok"

    watch = client.watch("clicks", lambda plan: None)
    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: agent.status.answered)
    children = [in_child(child, abruptly=bool(number % 2)) for number in range(6)]
    ended.set()
    for thread in threads:
        thread.join(LONGEST)
    client.get_plan("clicks")
    parent = "ok" if not wrong and not watch.closed else f"{wrong} {watch.error}"
    agent.close()
    client.close()
    return {"children": children, "parent": parent}


def plans(target: str) -> dict[str, Any]:
    """A plan agent and a reporter, at work when the process forks."""
    with (
        PlanAgent("clicks", target, workers=4, slot=0.1, name="parent", timeout=LONGEST) as agent,
        Reporter("clicks", target, source="app", part=0, parts=2, timeout=LONGEST) as reporter,
    ):
        reporter.tell(1, BatchWork((Work(0, rows=1),)))
        until(lambda: agent.route(HASHES).size and agent.status.told)

        def child() -> dict[str, Any]:
            inherited = reporter.status
            reporter.tell(2, BatchWork((Work(1, rows=1),)))
            until(lambda: agent.route(HASHES).size and agent.status.told)
            until(lambda: reporter.status.sent == 1)
            return {"name": agent.status.name, "inherited": inherited.sent, "failed": agent.status.failed}

        children = [in_child(child, abruptly=bool(number % 2)) for number in range(2)]
        told = agent.status.told
        until(lambda: agent.route(HASHES).size and agent.status.told > told)
        return {"children": children, "failed": agent.status.failed, "sent": reporter.status.sent}


def version(_: int) -> int:
    return _CLIENT[0].get_plan("clicks").plan.version.number


def pool(target: str) -> dict[str, Any]:
    with Client(target, timeout=LONGEST) as client:
        client.get_plan("clicks")
        _CLIENT.append(client)
        with multiprocessing.get_context("fork").Pool(2) as workers:
            return {"versions": workers.map(version, range(8))}


if __name__ == "__main__":
    found = {"agent": agents, "busy": busy, "plans": plans, "pool": pool}[sys.argv[1]](sys.argv[2])
    print(json.dumps(found), flush=True)  # noqa: T201
