"""The client against the real service, started as users' own tests start it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.client.service_in_test import until
from unskew.client import Agent, Client, NoAccessError, NotThereError, RefusedError, testing
from unskew.client.testing import Embedded, EmbeddedError, embedded
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Version
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.agent import AgentSettings, AgentTick, Tuples
from unskew.core.stream_spec import BatchWork, Part, Work

pytestmark = pytest.mark.xdist_group("embedded")


@pytest.fixture(scope="module")
def real() -> Iterator[Embedded]:
    with embedded() as service:
        yield service


@pytest.fixture
def client(real: Embedded) -> Iterator[Client]:
    with real.client(timeout=60.0) as one:
        yield one


def skewed(rows: int = 20_000, seed: int = 1) -> NDArray[np.uint64]:
    """A third of one key."""
    rng = np.random.default_rng(seed)
    rare = rng.integers(1, 2**63, rows, dtype=np.uint64)
    return np.where(rng.random(rows) < 1 / 3, np.uint64(7), rare)


def gone(pid: int) -> bool:
    """Whether no process has this id, or only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_from_a_histogram_to_a_plan_and_what_came_of_it(client: Client) -> None:
    """The verbs in the order in which a job uses them; each may be repeated."""
    client.put_stream("jobs", partitions=8, policy="balanced")
    hashes = skewed()
    part = Part("app/query", batch=0)
    reported = [client.report_histogram("jobs", part, Histogram.from_hashes(hashes)) for _ in range(2)]
    assert [(one.rows, one.repeated) for one in reported] == [(20_000, False), (20_000, True)]
    built = client.build_plan("jobs", 1)
    assert built.outcome == "new"
    assert client.build_plan("jobs", 1).outcome == "repeated"
    assert int(built.plan.loads(Histogram.from_hashes(hashes)).max()) < 1.02 * 20_000 / 8
    assert client.get_plan("jobs").plan == built.plan
    assert client.get_plan("jobs").cached
    assert client.get_plan("jobs", built.plan.version).plan == built.plan
    explained = client.explain("jobs", 7)
    assert explained.hot
    assert (explained.version, sum(explained.shares)) == (built.plan.version, pytest.approx(1.0))
    work = BatchWork(tuple(Work(p, rows=2_500, seconds=0.1) for p in range(8)), 1.0, 0.5, 0.2, 0.3)
    assert not client.report_batch("jobs", part, work, built.plan.version)
    assert client.get_scale("jobs").reduce_tasks >= 1
    assert "jobs" in [info.name for info in client.list_streams()]
    client.delete_stream("jobs")
    with pytest.raises(NotThereError, match="'jobs'"):
        client.get_stream("jobs")


def test_what_the_service_refuses_names_the_field(client: Client) -> None:
    """As it says it."""
    client.put_stream("refused", partitions=8)
    with pytest.raises(NotThereError, match="version"):
        client.get_plan("refused", Version(3, 4))
    machine = Machine(AgentSettings(name="ann", workers=4, dsync=1.0))
    machine.handle(Tuples(skewed()), 0.0)
    (sent,) = machine.handle(AgentTick(), 1.0)
    with pytest.raises(RefusedError, match="workers"):
        client.sync("refused", sent.report)  # type: ignore[union-attr]


def test_a_new_plan_is_pushed(client: Client) -> None:
    """A watch in a thread gets each plan once, in order."""
    client.put_stream("pushed", partitions=4, policy="balanced")
    got: list[Version] = []
    with client.watch("pushed", lambda plan: got.append(plan.version)):
        for number in (1, 2):
            built = client.build_plan("pushed", number, histogram=Histogram.from_hashes(skewed(seed=number)))
            until(lambda version=built.plan.version: version in got)  # type: ignore[misc]
    assert got == sorted(set(got))
    assert client.get_plan("pushed").plan == built.plan


def test_agents_learn_together_through_the_service(real: Embedded, client: Client) -> None:
    """Two agents, each with a stream of its own: rounds close with both, and each hears of what the other has."""
    client.put_stream("together", partitions=4, dsync=0.2, dsync_min=0.1)
    ended = threading.Event()
    with (
        Agent("together", real.target, workers=4, dsync=0.2) as one,
        Agent("together", client, workers=4, dsync=0.2) as two,
    ):

        def route(agent: Agent, seed: int) -> None:
            while not ended.is_set():
                agent.route(skewed(2_000, seed))

        threads = [threading.Thread(target=route, args=pair) for pair in ((one, 1), (two, 2))]
        for thread in threads:
            thread.start()
        try:
            until(lambda: min(one.status.answered, two.status.answered) >= 3)
        finally:
            ended.set()
            for thread in threads:
                thread.join(60)
        assert one.status.error == two.status.error == ""
        assert one.status.version[0] == two.status.version[0]
        assert client.get_stream("together").epoch >= 3


def test_rest_and_metrics_are_there_too(real: Embedded, client: Client) -> None:
    """One service, three ports."""
    client.put_stream("seen", partitions=4)
    with urllib.request.urlopen(f"{real.http}/v1/streams/seen", timeout=60) as answer:
        assert json.load(answer)["name"] == "seen"
    with urllib.request.urlopen(f"{real.metrics}/metrics", timeout=60) as answer:
        assert b"unskew_" in answer.read()


def test_settings_are_those_of_the_service_and_not_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With credentials asked for, a client without one is told so; the service is gone with the block."""
    monkeypatch.setenv("UNSKEW_GRPC_PORT", "1")
    with embedded(tokens=f"{hashlib.sha256(b's3cret').hexdigest()} ann admin *") as service:
        with service.client() as stranger, pytest.raises(NoAccessError, match="token"):
            stranger.get_stream("clicks")
        with service.client(token="s3cret") as ann:
            ann.put_stream("clicks", partitions=2)
    assert gone(service.pid)


def test_a_service_that_does_not_start_says_why() -> None:
    """The end of its log is in the error."""
    with pytest.raises(EmbeddedError, match=r"(?s)ended with code 2.*store"), embedded(store="nonsense://"):
        pass


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setattr(testing, "find_spec", lambda name: None if name == "fastapi" else object())
    with pytest.raises(EmbeddedError, match=r"fastapi: pip install 'unskew\[service\]'"), embedded():
        pass


def test_it_is_gone_with_the_process_that_started_it() -> None:
    """Also where that was killed and could not clean up."""
    code = (
        "import sys\nfrom unskew.client.testing import embedded\n"
        "with embedded() as service:\n    print(service.pid, flush=True)\n    sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    until(lambda: gone(pid))
