"""A service that dies in the middle of a stream and comes back, one that never answers, and one that says no."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import free_ports
from tests.spark.streaming.lives import prepare
from tests.spark.streaming.queries import Notes, batches, firsts, run, settled
from unskew.client import Client, testing
from unskew.core.plan.plan import Version
from unskew.spark import ServiceWarning, Unskew, service_link
from unskew.spark.session_stream import CurrentBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

PARTITIONS, DEADLINE, LONG = 4, 0.2, 10.0
VERBS = ("get_plan", "get_stream", "put_stream", "report_histogram", "report_batch", "build_plan")


@contextmanager
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """The longest call of the service by each thread, by its name's first word."""
    longest: dict[str, float] = {}

    def timed(verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            began, who = time.monotonic(), threading.current_thread().name.split(" ")[0]
            try:
                return verb(*words, **named)
            finally:
                longest[who] = max(longest.get(who, 0.0), time.monotonic() - began)

        return call

    with monkeypatch.context() as patched:
        for name in VERBS:
            patched.setattr(Client, name, timed(getattr(Client, name)))
        yield longest


@contextmanager
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Version]]:
    """The plans that a service has made."""
    made: list[Version] = []
    build = Client.build_plan

    def built(self: Client, *words: Any, **named: Any) -> Any:
        fetched = build(self, *words, **named)
        made.append(fetched.plan.version)
        return fetched

    with monkeypatch.context() as patched:
        patched.setattr(Client, "build_plan", built)
        yield made


def test_it_dies_and_comes_back(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch fails; plans are the driver's own meanwhile, and the service's again once it is back, empty."""
    monkeypatch.setattr(service_link, "_COOLDOWN", 0.01)
    notes, told = Notes(), list[int]()
    prepare(tmp_path, 7)
    ports = dict(zip(("grpc_port", "http_port", "metrics_port"), free_ports(3), strict=True))
    with (
        testing.embedded(**ports) as first,
        Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="balanced", service=first.target) as sk,
        planned(monkeypatch) as made,
        ExitStack() as later,
    ):
        handle = settled(batches(sk, notes, tmp_path, deadline=LONG))

        def each(df: DataFrame, batch: int) -> None:
            if batch == 2:
                os.kill(first.pid, signal.SIGKILL)
            if batch == 4:
                later.enter_context(testing.embedded(**ports))
            handle(df, batch)
            told.append(len(made))

        run(spark, tmp_path, each)
    assert (notes.wrong(7), notes.strayed(tmp_path / "cp")) == (0, 0)
    assert told[:4] == [1, 2, 2, 2]
    assert told[-1] > 2
    assert made[-1].incarnation > made[0].incarnation
    assert firsts(tmp_path / "cp") == list(range(7))  # there was a plan for each


def test_one_that_never_answers_costs_the_deadline_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and is silent. Whoever runs the handler waits for it in the first batch, and no longer."""
    notes = Notes()
    prepare(tmp_path, 4)
    with socket.socket() as silent, asked(monkeypatch) as longest:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with Unskew(
            spark, stream="clicks", partitions=PARTITIONS, policy="balanced", service=target, timeout=LONG
        ) as sk:
            run(spark, tmp_path, batches(sk, notes, tmp_path, deadline=DEADLINE))
    ours = max(took for who, took in longest.items() if who != "unskew")
    assert DEADLINE * 0.9 < ours < LONG / 2, longest
    assert (notes.wrong(4), notes.strayed(tmp_path / "cp")) == (0, 0)


def test_a_batch_in_hand_waits_for_a_silent_one_no_longer_than_its_deadline_and_once(spark: SparkSession) -> None:
    """What a handler asks for beside its batch's plan; ``sk.plan`` outside of a batch waits for its time-out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with Unskew(spark, stream="clicks", partitions=PARTITIONS, service=target, timeout=30.0) as sk:
            waited = []
            for _ in range(31):
                with sk.plans.context.bind(CurrentBatch(None, ("user",), "id", DEADLINE)):
                    began = time.monotonic()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ServiceWarning)
                        assert not sk.plans.ready(("bigint",))
                    waited.append(time.monotonic() - began)
    assert DEADLINE * 0.9 < waited[0] < 15.0
    assert sum(waited[1:]) < 30 * DEADLINE * 0.9


def test_one_that_says_no(spark: SparkSession, tmp_path: Path) -> None:
    """It wants a token that nobody gave: no batch fails, the driver plans."""
    notes = Notes()
    prepare(tmp_path, 3)
    with (
        testing.embedded(tokens=f"{hashlib.sha256(b's3cret').hexdigest()} ann admin *") as service,
        Unskew(spark, stream="clicks", partitions=PARTITIONS, policy="balanced", service=service.target) as sk,
    ):
        run(spark, tmp_path, settled(batches(sk, notes, tmp_path, deadline=LONG)))
    assert (notes.wrong(3), notes.strayed(tmp_path / "cp")) == (0, 0)
    assert firsts(tmp_path / "cp") == [0, 1, 2]
