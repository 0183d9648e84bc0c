"""Clients of the release before work with this service, and this client with the service before; replicas of both share
one store while a rolling update lasts, and after it is undone. Real processes, gRPC and REST.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import environment
from tests.compat.job import COUNTS, KEYS, report
from tests.compat.previous import Release, unpacked
from tests.servers import single, wait_for
from tests.service.processes import Process, logged, process
from unskew.client import Client
from unskew.core import Histogram
from unskew.core.stream_spec import BatchWork, Part, Work
from unskew.wire import plan_from_bytes

pytestmark = pytest.mark.xdist_group("compat")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpacked(tmp_path_factory.mktemp("previous"))


def job(folder: Path, face: str, address: str, release: Release | None) -> dict[str, Any]:
    """The job, run by the release before, or by this one."""
    path = environment() | ({} if release is None else {"PYTHONPATH": release.path})
    command = [sys.executable, "-W", "error", str(Path(__file__).parent / "job.py"), face, address]
    done = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    home = Path(found.pop("home")).resolve()
    assert home.is_relative_to((ROOT if release is None else release.folder).resolve()), home
    return found


@pytest.mark.parametrize("old", ["client", "service"])
def test_a_client_and_a_service_of_two_releases_work_together(before: Release, tmp_path: Path, old: str) -> None:
    """Every verb over gRPC and REST; the plan that comes is read by this release too and routes the same."""
    of_client, of_service = (before, None) if old == "client" else (None, before)
    more = {} if of_service is None else {"PYTHONPATH": of_service.path}
    with process(tmp_path, **more) as service:
        found = {
            "grpc": job(tmp_path, "grpc", f"grpc://127.0.0.1:{service.grpc}", of_client),
            "rest": job(tmp_path, "rest", service.url(""), of_client),
        }
        service.run.terminate()
        assert service.run.wait(90) == 0
    for face, seen in found.items():
        plan = plan_from_bytes(base64.b64decode(seen["plan"]))
        assert plan.digest == seen["digest"], face
        assert set(seen["routes"]) == {0, 1, 2, 3}, face
        assert (seen["outcome"], seen["taken"], seen["streams"]) == ("new", [10_000, False], [f"by-{face}"])
    assert set(found["grpc"]["same"]) == {found["grpc"]["digest"]}
    assert found["grpc"]["merged"]
    assert found["grpc"]["routes"] == found["rest"]["routes"]
    assert found["rest"]["not modified"] == 304
    assert [line for line in logged(tmp_path) if line["level"] == "error"] == []


@pytest.fixture(scope="module", params=["old first", "new first"])
def fleet(
    request: pytest.FixtureRequest, before: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Client]]:
    """Clients of two replicas on one Redis, one of each release: who creates the stream, and who finds it."""
    tmp_path = tmp_path_factory.mktemp("fleet")
    kinds = [{"PYTHONPATH": before.path}, {}]
    if request.param == "new first":
        kinds.reverse()
    with single(tmp_path) as redis, ExitStack() as stack:
        found: list[Process] = []
        for number, more in enumerate(kinds):
            folder = tmp_path / str(number)
            folder.mkdir()
            found.append(stack.enter_context(process(folder, "--store", redis.url, **more)))
        clients = [stack.enter_context(Client(f"grpc://127.0.0.1:{one.grpc}", timeout=60)) for one in found]
        yield clients[0], clients[1]
        for number, one in enumerate(found):
            one.run.terminate()
            assert one.run.wait(90) == 0
            assert [line for line in logged(tmp_path / str(number)) if line["level"] == "error"] == []


def test_replicas_of_two_releases_share_a_store(fleet: tuple[Client, Client]) -> None:
    """A rolling update and its undoing: what one has put, the other finds, plans by, merges and changes."""
    one, other = fleet
    one.put_stream("clicks", partitions=4, policy="balanced", dsync=5.0, dsync_min=1.0)
    for part, client in enumerate((one, other)):
        client.report_histogram("clicks", Part("app/query", 1, 0, part, 2), Histogram.from_counts(KEYS, COUNTS))
    with one.watch("clicks") as watch:
        built = other.build_plan("clicks", batch=2)
        assert built.plan.info.rows == 2 * COUNTS.sum()
        assert next(iter(watch)).digest == built.plan.digest
    assert (built.outcome, built.plan.version) == ("new", one.get_plan("clicks").plan.version)
    assert one.get_plan("clicks", built.plan.version).plan.digest == built.plan.digest
    assert one.build_plan("clicks", batch=2).outcome == "repeated"

    work = BatchWork(tuple(Work(p, rows=2_500, seconds=1.0) for p in range(4)), 2.0, 3.0, 1.5, 1.5)
    for batch, client in ((1, one), (2, other), (3, one)):
        client.report_batch("clicks", Part("app/query", batch), work, built.plan.version)
    assert one.get_scale("clicks").zone == other.get_scale("clicks").zone

    other.put_stream("clicks", partitions=4, policy="kip")
    assert one.get_stream("clicks").spec.policy == "kip"
    one.report_histogram("clicks", Part("app/query", 2), Histogram.from_counts(KEYS, COUNTS[::-1].copy()))
    newer = other.build_plan("clicks", batch=3).plan
    assert newer.version > built.plan.version
    # On a busy machine a replica that has not heard of it yet may answer what it knows.
    wait_for("the other replica's plan", lambda: one.get_plan("clicks").plan.digest == newer.digest, 30.0)

    advised = [client.build_plan("clicks", batch=4 + at).advice for at, client in enumerate((one, other, one))]
    assert [choice.reason for choice in advised if choice is not None], "also from plans of the one that knows no ways"


def test_merged_parts_are_the_same_to_both_releases(fleet: tuple[Client, Client]) -> None:
    """Large parts are merged by one and read by the other: each counts once, a retry through either counts no more."""
    fleet[0].put_stream("wide", partitions=4, policy="kip")
    keys = np.arange(1, 90_001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    wide = Histogram.from_counts(keys, np.ones(len(keys), np.int64))
    for _ in range(2):
        for part in range(6):
            fleet[part % 2].report_histogram("wide", Part("app/query", 1, 0, part, 6), wide)
    fleet[0].report_histogram("wide", Part("app/query", 1, 0, 1, 6), wide)
    rows = [client.build_plan("wide", batch=2 + at).plan.info.rows for at, client in enumerate(fleet)]
    assert rows == [6 * 90_000] * 2


def test_agents_learn_together_through_two_releases(fleet: tuple[Client, Client]) -> None:
    """A round with an agent at either replica: both get the answer that has both reports in it."""
    fleet[0].put_stream("learned", partitions=4, policy="dalton", dsync=1.0, dsync_min=1.0)
    with ThreadPoolExecutor(2) as pool:
        waits = [
            pool.submit(client.sync, "learned", report(4, f"a{number}"), wait=20) for number, client in enumerate(fleet)
        ]
        answers = [wait.result(60) for wait in waits]
    assert all(answer.merged for answer in answers)
