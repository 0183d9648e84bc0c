"""A session's link to its service: which errors pause it, which are answers, and how a stream is put."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from unskew.client import Client, NoAccessError, NoAnswerError, NotThereError, RefusedError, ServiceCallError
from unskew.core.errors import ConfigError, PlanError
from unskew.core.stream_spec import StreamSpec
from unskew.spark import service_link
from unskew.spark.service_link import Left, ServiceLink, ServiceWarning

SPEC = StreamSpec(4, key_types=("bigint",))


def error(kind: type[ServiceCallError]) -> ServiceCallError:
    return kind("GetStream", "clicks", "there", "CODE", "because")


class Stub:
    """A service that has one stream, and answers as the test says."""

    def __init__(self, spec: StreamSpec | None = None) -> None:
        self.spec, self.calls = spec, list[str]()
        self.fails: ServiceCallError | None = None

    def get_stream(self, _: str, *, timeout: float | None = None) -> Any:
        self.calls.append("get")
        if self.fails is not None:
            raise self.fails
        if self.spec is None:
            raise error(NotThereError)
        return SimpleNamespace(spec=self.spec)

    def put_stream(self, _: str, spec: StreamSpec, *, timeout: float | None = None) -> None:
        self.calls.append("put")
        self.spec = spec


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(service_link, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def link_to(stub: Stub, **more: Any) -> ServiceLink:
    service: Any = stub
    return ServiceLink(service, **more)


def read(client: Client, left: Left) -> StreamSpec:
    return client.get_stream("clicks", timeout=left()).spec


@pytest.mark.parametrize("kind", [NoAnswerError, NoAccessError, NotThereError])
def test_a_service_that_cannot_serve_is_not_asked_for_a_while(clock: Clock, kind: type[ServiceCallError]) -> None:
    """The caller decides alone, with a warning once; whoever waits for this very answer asks all the same."""
    stub = Stub(SPEC)
    stub.fails = error(kind)
    link = link_to(stub)
    with pytest.warns(ServiceWarning, match="alone: GetStream of stream 'clicks' at there: because"):
        assert link.ask(read, "alone") is None
    assert (link.ask(read, "alone"), stub.calls) == (None, ["get"])
    with pytest.warns(ServiceWarning):
        link.ask(read, "alone", always=True)
    stub.fails = None
    clock.now += 5.0
    assert [link.ask(read, "alone") for _ in range(2)] == [SPEC, SPEC]


def test_a_refusal_is_an_answer(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Raised where somebody waits for it; else logged, once, and asked again with the next batch."""
    stub = Stub(SPEC)
    stub.fails = error(RefusedError)
    link = link_to(stub)
    with pytest.raises(RefusedError):
        link.ask(read, "alone")
    for _ in range(3):
        assert link.ask_in_background(read, "alone") is None
    assert (link.may_ask(), len(stub.calls), caplog.text.count("alone: ")) == (True, 4, 1)


def test_a_required_service_that_cannot_serve_is_an_error(clock: Clock) -> None:
    """And it is asked each time."""
    stub = Stub(SPEC)
    stub.fails = error(NoAnswerError)
    link = link_to(stub, required=True)
    for _ in range(2):
        with pytest.raises(NoAnswerError):
            link.ask(read, "alone")


def test_a_session_without_a_service_asks_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ServiceLink(None).ask(read, "alone") is None
    assert not ServiceLink(None).may_ask()
    with pytest.raises(ConfigError, match="service: None"):
        ServiceLink.open(None, "clicks", required=True, timeout=1.0, access=None)


def test_all_calls_together_have_one_deadline(clock: Clock) -> None:
    """What is left of it shrinks, to a little at least."""
    left: list[float | None] = []

    def calls(_: Client, seconds: Left) -> bool:
        for _ in range(3):
            left.append(seconds())
            clock.now += 0.15
        return True

    assert link_to(Stub()).ask(calls, "alone", within=0.2)
    assert left == pytest.approx([0.2, 0.05, 0.05])


def put(stub: Stub, spec: StreamSpec, **more: Any) -> StreamSpec | None:
    service: Any = stub
    service_link.put_stream(service, "clicks", spec, lambda: None, **more)
    return stub.spec


def test_a_stream_that_is_not_there_is_put_with_its_key_types_and_its_pace() -> None:
    assert put(Stub(), SPEC) == SPEC
    slow = put(Stub(), SPEC, least_dsync=7.0)
    assert slow == replace(SPEC, dsync=7.0, dsync_min=7.0)


def test_a_stream_that_is_there_keeps_its_settings() -> None:
    """But for its owner's number of partitions, and a least DSYNC that the slowest query needs."""
    present = StreamSpec(4, "kip", dsync=2.0, dsync_min=2.0)
    assert put(Stub(present), SPEC) == present
    assert put(Stub(present), replace(SPEC, partitions=6), owner=True) == replace(present, partitions=6)
    assert put(Stub(present), SPEC, least_dsync=3.0) == replace(present, dsync=3.0, dsync_min=3.0)
    with pytest.raises(ConfigError, match="partitions: 6 is not allowed; use 4, as stream clicks has"):
        put(Stub(present), replace(SPEC, partitions=6))
    with pytest.raises(PlanError, match=r"for keys of type \(string\), these are of \(bigint\)"):
        put(Stub(replace(present, key_types=("string",))), SPEC)


def test_a_stream_is_put_once_until_something_changes_or_fails(clock: Clock) -> None:
    stub = Stub(SPEC)
    link = link_to(stub)
    client: Any = stub

    def ensure(partitions: int = 4, *, again: bool = False) -> int:
        before = len(stub.calls)
        spec = replace(SPEC, partitions=partitions)
        link.put_stream(client, "clicks", spec, lambda: None, owner=True, again=again)
        return len(stub.calls) - before

    assert [ensure(), ensure(), ensure(again=True)] == [1, 0, 1]
    assert [ensure(6), ensure(4), ensure(4)] == [2, 2, 0], "what was put for another number is not any more"
    stub.fails = error(NoAnswerError)
    assert link.ask_in_background(read, "alone") is None
    stub.fails = None
    assert ensure() == 1, "it may have come back empty"


def test_a_worker_pauses_only_after_no_answer_at_all(clock: Clock) -> None:
    """A stream that is missing for a moment does not silence a worker's later reports."""
    stub = Stub()
    link = link_to(stub, trips=(NoAnswerError,))
    assert link.ask_in_background(read, "alone") is None
    assert link.may_ask()
    stub.fails = error(NoAnswerError)
    assert link.ask_in_background(read, "alone") is None
    assert not link.may_ask()


def test_a_call_that_is_not_counted_opens_nothing(clock: Clock) -> None:
    """A first look with a short deadline does not stop the calls that have more time."""
    stub = Stub()
    stub.fails = error(NoAnswerError)
    link = link_to(stub)
    assert link.ask_in_background(read, "alone", counted=False) is None
    assert link.may_ask()
