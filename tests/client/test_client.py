"""The client's verbs against a service in the test's hands: what travels, what comes back, what goes wrong and how."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.client.service_in_test import (
    VERBS,
    Running,
    ServiceInTest,
    fails,
    free_port,
    plan_of,
    until,
)
from unskew.client import (
    Agent,
    Client,
    ClientClosedError,
    FaultError,
    LimitReachedError,
    NoAccessError,
    NoAnswerError,
    NotThereError,
    RefusedError,
    ServiceCallError,
)
from unskew.client.channel import Target
from unskew.client.credentials import Credentials
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Version
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.agent import AgentSettings, AgentTick, SendReport, Tuples
from unskew.core.rounds.messages import Report
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import plan_to_bytes

Code = grpc.StatusCode
HASHES = np.arange(1, 9, dtype=np.uint64)


def report() -> Report:
    machine = Machine(AgentSettings(name="ann", workers=4, dsync=1.0))
    machine.handle(Tuples(HASHES), 0.0)
    (sent,) = machine.handle(AgentTick(), 1.0)
    assert isinstance(sent, SendReport)
    return sent.report


class TestVerbs:
    def test_a_stream_is_put_read_listed_and_deleted(self, client: Client) -> None:
        """As a spec or by its fields; listing goes from page to page."""
        spec = StreamSpec(partitions=4, policy="kip", parameters={"slack": 0.1}, weights=(1.0, 1.0, 2.0, 2.0))
        assert client.put_stream("a", spec).spec == spec
        for name in ("b", "c", "d"):
            client.put_stream(name, partitions=3)
        assert client.get_stream("a").spec == spec
        assert [info.name for info in client.list_streams()] == ["a", "b", "c", "d"]
        client.delete_stream("b")
        assert [info.name for info in client.list_streams()] == ["a", "c", "d"]

    def test_a_histogram_of_many_keys_goes_in_chunks_and_arrives_whole(
        self, client: Client, service: ServiceInTest
    ) -> None:
        """More keys than fit one message; tail and counts as they were."""
        hashes = np.arange(300_000, dtype=np.uint64) * np.uint64(61_489_146_912)
        tail = Tail(np.arange(64), np.minimum(np.arange(64), 3))
        histogram = Histogram.from_counts(hashes, np.arange(1, 300_001), tail)
        part = Part("app/query", batch=7, run=1, part=2, parts=3)
        reported = client.report_histogram("clicks", part, histogram)
        assert (reported.rows, reported.keys, reported.repeated) == (histogram.total, 300_000, False)
        assert service.reported["clicks"] == (part, histogram)
        assert service.calls["chunks"] > 1

    def test_a_plan_is_built_from_what_was_reported_or_from_a_histogram(
        self, client: Client, service: ServiceInTest
    ) -> None:
        """Batch 0 is a batch; what happened and why comes with the plan."""
        client.put_stream("clicks", partitions=4)
        built = client.build_plan("clicks", 0, fresh=True, histogram=Histogram.from_hashes(HASHES))
        assert (built.plan.version, built.outcome, built.reason) == (Version(1, 1), "new", "asked for")
        sent = service.seen[-1][1]
        assert sent.HasField("batch")
        assert sent.fresh
        assert len(sent.histogram.hashes) == 64
        assert client.build_plan("clicks").advice is None
        assert not service.seen[-1][1].HasField("batch")

    def test_the_advised_way_comes_with_the_plan(self, client: Client, service: ServiceInTest) -> None:
        """Of a release to come, too, that knows ways which this one does not."""
        plan, advice = plan_to_bytes(plan_of(3)), pb.WayChoice(way="inflight", runner_up="same", reason="cheapest")
        service.does["BuildPlan"] = lambda request, context: pb.BuildPlanResponse(plan=plan, advice=advice)
        assert client.build_plan("clicks", 4).advice == WayChoice("inflight", "same", "cheapest")

    def test_a_report_gets_its_answer_or_none_yet(self, client: Client, service: ServiceInTest) -> None:
        """The answer names the report; no answer is not an error."""
        sent = report()
        synced = client.sync("clicks", sent, wait=1.5, known=(1, 0))
        assert synced.answer is not None
        assert synced.answer.merged == (sent.name,)
        assert synced.answer.version == (1, 1)
        asked = service.seen[-1][1]
        assert (asked.wait_seconds, asked.incarnation, asked.epoch) == (1.5, 1, 0)
        service.does["Sync"] = lambda request, context: pb.SyncResponse()
        assert client.sync("clicks", sent).answer is None

    def test_batches_scale_and_explanations(self, client: Client, service: ServiceInTest) -> None:
        """A signed hash, as Spark has it, is the same key."""
        work = BatchWork((Work(0, rows=5, seconds=0.5),), interval=1.0)
        part = Part("app", 3)
        assert not client.report_batch("clicks", part, work, Version(1, 2))
        assert client.report_batch("clicks", part, work)
        scale = client.get_scale("clicks")
        assert (scale.map_tasks, scale.reduce_tasks, scale.action, scale.zone) == (3, 5, "out", 3)
        explained = client.explain("clicks", -1)
        assert service.seen[-1][1].hash == 2**64 - 1
        assert (explained.hot, explained.partitions, explained.shares) == (True, (2,), (1.0,))


class TestPlans:
    def test_the_latest_plan_travels_once(self, client: Client, service: ServiceInTest) -> None:
        """Asked again with the digest, the answer is without bytes and the plan is the one that is here."""
        service.publish("clicks", plan_of(1))
        first = client.get_plan("clicks")
        again = client.get_plan("clicks")
        assert (first.cached, again.cached) == (False, True)
        assert again.plan is first.plan
        assert service.seen[-1][1].if_none_match == first.plan.digest
        service.publish("clicks", plan_of(2))
        assert client.get_plan("clicks").plan == plan_of(2)

    def test_a_version_is_fetched_once_and_then_not_even_asked_for(
        self, client: Client, service: ServiceInTest
    ) -> None:
        """A version never changes."""
        for number in (1, 2):
            service.publish("clicks", plan_of(number))
        assert client.get_plan("clicks", Version(1, 1)).plan == plan_of(1)
        asked = service.calls["GetPlan"]
        assert client.get_plan("clicks", Version(1, 1)).cached
        assert service.calls["GetPlan"] == asked

    def test_a_watch_gives_the_latest_and_each_newer_plan(self, client: Client, service: ServiceInTest) -> None:
        """In order, none twice; ``close`` from another thread ends a wait."""
        service.publish("clicks", plan_of(1))
        watch = client.watch("clicks")
        assert next(watch) == plan_of(1)
        service.publish("clicks", plan_of(2))
        assert next(watch) == plan_of(2)
        threading.Timer(0.05, watch.close).start()
        assert list(watch) == []
        assert watch.closed

    def test_a_watch_outlives_the_service(self, running: Running, client: Client, service: ServiceInTest) -> None:
        """It connects again by itself, and says which plan it has, so that none comes twice."""
        service.publish("clicks", plan_of(1))
        got: list[int] = []
        with client.watch("clicks", lambda plan: got.append(plan.version.number)) as watch:
            until(lambda: got == [1])
            running.stop()
            running.start()
            until(lambda: service.calls["WatchPlans"] >= 2)
            service.publish("clicks", plan_of(2))
            until(lambda: got == [1, 2])
            assert watch.connects >= 2

    @pytest.mark.parametrize(("code", "times"), [(Code.CANCELLED, 5), (Code.RESOURCE_EXHAUSTED, 2)])
    def test_a_full_service_is_asked_again(
        self, client: Client, service: ServiceInTest, code: Code, times: int
    ) -> None:
        """CANCELLED is what a server with too many calls pending says; gRPC itself tries that four times."""
        service.publish("clicks", plan_of(1))
        service.does["WatchPlans"] = _stream(fails(code, times=times, then=service.do_WatchPlans))
        with client.watch("clicks") as watch:
            assert next(watch) == plan_of(1)

    def test_a_watch_ends_with_what_would_come_again(self, client: Client, service: ServiceInTest) -> None:
        """No such stream: raised where one iterates, told to ``on_end`` where a thread does."""
        with pytest.raises(NotThereError, match="'nowhere'"):
            next(client.watch("nowhere"))
        ended: list[UnskewError] = []
        client.watch("nowhere", lambda plan: None, on_end=ended.append)
        until(lambda: ended)
        assert isinstance(ended[0], NotThereError)

    def test_a_callback_that_raises_does_not_end_the_watch(
        self, client: Client, service: ServiceInTest, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged."""
        got: list[int] = []

        def callback(plan: Any) -> None:
            got.append(plan.version.number)
            raise RuntimeError("of the user")

        service.publish("clicks", plan_of(1))
        with client.watch("clicks", callback):
            until(lambda: got == [1])
            service.publish("clicks", plan_of(2))
            until(lambda: got == [1, 2])
        assert "of the user" in caplog.text

    def test_closing_the_client_ends_its_watches(self, running: Running, service: ServiceInTest) -> None:
        """Without an error."""
        service.publish("clicks", plan_of(1))
        client = Client(running.target)
        watch = client.watch("clicks")
        next(watch)
        threading.Timer(0.05, client.close).start()
        assert list(watch) == []


def _stream(verb: Any) -> Any:
    def streamed(request: Any, context: Any) -> Any:
        yield from verb(request, context)

    return streamed


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (Code.NOT_FOUND, NotThereError),
            (Code.INVALID_ARGUMENT, RefusedError),
            (Code.FAILED_PRECONDITION, RefusedError),
            (Code.UNAUTHENTICATED, NoAccessError),
            (Code.PERMISSION_DENIED, NoAccessError),
            (Code.RESOURCE_EXHAUSTED, LimitReachedError),
            (Code.UNAVAILABLE, NoAnswerError),
            (Code.INTERNAL, FaultError),
            (Code.UNKNOWN, FaultError),
        ],
    )
    def test_each_status_is_one_error_that_names_stream_cause_and_way_out(
        self, client: Client, service: ServiceInTest, code: Code, kind: type[ServiceCallError]
    ) -> None:
        """One tree; it survives pickling, as errors in Spark tasks must."""
        service.does["GetScale"] = fails(code, "partitions: 0 is not allowed")
        with pytest.raises(ServiceCallError) as caught:
            client.get_scale("clicks")
        why = caught.value
        assert type(why) is kind
        assert (why.verb, why.stream, why.code) == ("GetScale", "clicks", code.name)
        assert str(why).startswith(f"GetScale of stream 'clicks' at {client.target}: partitions: 0 is not allowed")
        assert why.advice in str(why)
        assert str(pickle.loads(pickle.dumps(why))) == str(why)

    def test_unavailable_is_tried_again_and_a_refusal_is_not(self, client: Client, service: ServiceInTest) -> None:
        """By gRPC's retries: two failures cost the caller nothing but a little time."""
        service.does["GetScale"] = fails(Code.UNAVAILABLE, times=2, then=service.do_GetScale)
        assert client.get_scale("clicks").reduce_tasks == 5
        assert service.calls["GetScale"] == 3
        service.does["GetScale"] = fails(Code.INVALID_ARGUMENT)
        with pytest.raises(RefusedError):
            client.get_scale("clicks")
        assert service.calls["GetScale"] == 4

    def test_a_large_histogram_is_tried_again_too(self, client: Client, service: ServiceInTest) -> None:
        """gRPC by default gives up retrying what is over 256 kB."""
        tries: list[int] = []

        def once_away(request: Any, context: Any) -> Any:
            tries.append(1)
            if len(tries) == 1:
                for _ in request:
                    pass
                context.abort(Code.UNAVAILABLE, "going down")
            return service.do_ReportHistogram(request, context)

        service.does["ReportHistogram"] = once_away
        hashes = np.arange(200_000, dtype=np.uint64)
        assert client.report_histogram("clicks", Part("app", 1), Histogram.from_hashes(hashes)).keys == 200_000
        assert len(tries) == 2

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_call_has_a_deadline(self, running: Running, service: ServiceInTest, verb: str) -> None:
        """Also the watch, which begins anew after its own."""
        left: list[float | None] = []

        def note(request: Any, context: grpc.ServicerContext) -> Any:
            left.append(context.time_remaining())
            context.abort(Code.INVALID_ARGUMENT, "noted")

        service.does[verb] = note if verb != "WatchPlans" else _stream(note)
        with Client(running.target, timeout=30.0) as client, pytest.raises(RefusedError):
            _call(client, verb)
        assert left[0] is not None
        assert left[0] <= (901.0 if verb == "WatchPlans" else 30.1)

    def test_a_slow_service_costs_no_more_than_the_timeout(self, running: Running, service: ServiceInTest) -> None:
        """The caller's own, where it gives one."""
        release = threading.Event()
        service.does["GetScale"] = lambda request, context: (release.wait(60), pb.GetScaleResponse())[1]
        began = time.monotonic()
        with Client(running.target, timeout=60.0) as client, pytest.raises(NoAnswerError, match="DEADLINE_EXCEEDED"):
            client.get_scale("clicks", timeout=0.2)
        assert time.monotonic() - began < 30.0
        release.set()

    def test_nobody_there_is_told_as_such(self) -> None:
        """With the address, and what to look at."""
        with Client(f"127.0.0.1:{free_port()}", timeout=1.0) as client, pytest.raises(NoAnswerError) as caught:
            client.get_plan("clicks")
        assert client.target in str(caught.value)
        assert "unskew serve" in str(caught.value)

    @pytest.mark.parametrize(
        ("act", "named"),
        [
            (lambda client: client.get_plan("no spaces"), "stream"),
            (lambda client: client.put_stream("clicks"), "spec"),
            (lambda client: client.put_stream("clicks", partition=3), "spec"),
            (lambda client: client.put_stream("clicks", partitions=0), "partitions"),
            (lambda client: client.get_plan("clicks", timeout=0), "timeout"),
            (lambda client: client.explain("clicks", 2**64), "key_hash"),
            (lambda client: client.explain("clicks", "a"), "key_hash"),
        ],
    )
    def test_what_cannot_be_right_is_refused_before_it_is_sent(
        self, client: Client, service: ServiceInTest, act: Any, named: str
    ) -> None:
        """By name, and nothing is called."""
        with pytest.raises(ConfigError, match=named):
            act(client)
        assert service.calls.total() == 0

    def test_a_closed_client_says_so(self, running: Running, service: ServiceInTest) -> None:
        """Closing twice is no harm."""
        service.publish("clicks", plan_of(1))
        with Client(running.target) as client:
            client.get_plan("clicks", Version(1, 1))
        client.close()
        for act in (client.list_streams, lambda: client.get_plan("clicks", Version(1, 1))):
            with pytest.raises(ClientClosedError, match="closed"):
                list(act())  # type: ignore[operator]
        with pytest.raises(ClientClosedError):
            client.watch("clicks")


def _call(client: Client, verb: str) -> Any:
    histogram = Histogram.from_hashes(HASHES)
    return {
        "PutStream": lambda: client.put_stream("s", partitions=2),
        "GetStream": lambda: client.get_stream("s"),
        "ListStreams": lambda: list(client.list_streams()),
        "DeleteStream": lambda: client.delete_stream("s"),
        "ReportHistogram": lambda: client.report_histogram("s", Part("a", 1), histogram),
        "BuildPlan": lambda: client.build_plan("s"),
        "GetPlan": lambda: client.get_plan("s"),
        "WatchPlans": lambda: next(client.watch("s")),
        "Sync": lambda: client.sync("s", report(), wait=0.0),
        "ReportBatch": lambda: client.report_batch("s", Part("a", 1), BatchWork(())),
        "GetScale": lambda: client.get_scale("s"),
        "Explain": lambda: client.explain("s", 1),
    }[verb]()


class TestCredentials:
    @pytest.mark.parametrize("verb", VERBS)
    def test_the_token_goes_with_every_call(self, running: Running, service: ServiceInTest, verb: str) -> None:
        """As a bearer token."""
        service.does[verb] = _stream(fails(Code.ABORTED)) if verb == "WatchPlans" else fails(Code.INVALID_ARGUMENT)
        with Client(running.target, token="s3cret") as client:
            if verb == "WatchPlans":
                client.watch("s", lambda plan: None)
                until(lambda: service.seen)
            else:
                with pytest.raises(RefusedError):
                    _call(client, verb)
        assert service.seen[0][2]["authorization"] == "Bearer s3cret"

    def test_a_token_comes_from_the_argument_else_the_environment(
        self, running: Running, service: ServiceInTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """In this order: token, token_file, UNSKEW_TOKEN, UNSKEW_TOKEN_FILE."""
        (tmp_path / "a").write_text("of-file\n")
        (tmp_path / "b").write_text("of-named-file\n")

        def sent(**given: Any) -> str | None:
            with Client(running.target, **given) as client:
                client.get_scale("clicks")
            return service.seen[-1][2].get("authorization")

        assert sent() is None
        monkeypatch.setenv("UNSKEW_TOKEN_FILE", str(tmp_path / "b"))
        assert sent() == "Bearer of-named-file"
        monkeypatch.setenv("UNSKEW_TOKEN", "of-environment")
        assert sent() == "Bearer of-environment"
        assert sent(token_file=tmp_path / "a") == "Bearer of-file"
        assert sent(token="of-argument") == "Bearer of-argument"

    def test_a_token_file_that_is_renewed_is_read_again(
        self, running: Running, service: ServiceInTest, tmp_path: Path
    ) -> None:
        """Kubernetes replaces them in place; while it is being replaced the last one serves."""
        file = tmp_path / "token"
        file.write_text("first")
        with Client(running.target, token_file=file) as client:
            client.get_scale("clicks")
            file.unlink()
            client.get_scale("clicks")
            assert service.seen[-1][2]["authorization"] == "Bearer first"
            (tmp_path / "new").write_text("second one".replace(" ", "-"))
            (tmp_path / "new").rename(file)
            client.get_scale("clicks")
            file.write_text("")  # it is being written in place
            client.get_scale("clicks")
        assert service.seen[-1][2]["authorization"] == "Bearer second-one"

    def test_no_token_is_ever_shown(self, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
        """Not in a repr, an error or the log."""
        caplog.set_level(logging.DEBUG)
        with Client(f"127.0.0.1:{free_port()}", token="s3cret", timeout=0.5) as client:
            with pytest.raises(NoAnswerError) as caught:
                client.get_scale("clicks")
            texts = [repr(client), repr(client._channel), repr(client._channel._credentials), str(caught.value)]
        (tmp_path / "t").write_text("s3cret and more")
        for wrong in ({"token": "s3cret\n"}, {"token_file": tmp_path / "t"}):
            with pytest.raises(ConfigError) as refused:
                Credentials(**wrong).metadata()  # type: ignore[arg-type]
            texts.append(str(refused.value))
        assert not [text for text in [*texts, caplog.text] if "s3cret" in text]

    def test_a_token_is_not_sent_over_an_open_network(self) -> None:
        """Unless TLS is used, or the caller says that the network is trusted."""
        near = "ipv4:127.0.0.1:8081"
        for target in (
            "grpc://elsewhere:8081",
            "dns://127.0.0.53/elsewhere:8081",
            f"{near},10.0.0.5:8081",
            "127.x.com",
        ):
            with pytest.raises(ConfigError, match="grpcs://"):
                Client(target, token="s3cret")
        for target in (near, "dns:///localhost:1", "localhost", "ipv6:[::1]:1", "unix:/tmp/socket"):
            Client(target, token="s3cret").close()
        for target, more in (("grpcs://elsewhere", {}), ("grpc://elsewhere", {"insecure": True}), ("[::1]:8081", {})):
            Client(target, token="s3cret", **more).close()  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"token": "a", "token_file": "b"}, "token_file"),
            ({"certificate": "a"}, "certificate, key"),
            ({"token": ""}, "token"),
        ],
    )
    def test_credentials_that_do_not_go_together_are_refused(self, given: dict[str, str], named: str) -> None:
        with pytest.raises(ConfigError, match=f"^{named}: "):
            Client(**given)  # type: ignore[arg-type]

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        """When the first call needs it."""
        with (
            Client("grpcs://localhost", ca=tmp_path / "ca.pem") as client,
            pytest.raises(ConfigError, match=r"ca\.pem"),
        ):
            client.get_scale("clicks")


@pytest.mark.parametrize(
    ("text", "address", "secure"),
    [
        ("localhost", "localhost:8081", False),
        ("10.1.2.3:9000", "10.1.2.3:9000", False),
        ("grpc://unskew.data:8081/", "unskew.data:8081", False),
        ("grpcs://unskew.data", "unskew.data:8081", True),
        ("grpc://[::1]", "[::1]:8081", False),
        ("[::1]:9", "[::1]:9", False),
        ("dns:///unskew.data:8081", "dns:///unskew.data:8081", False),
        ("unix:///tmp/u.sock", "unix:///tmp/u.sock", False),
    ],
)
def test_a_target_is_read_as_people_write_it(text: str, address: str, secure: bool) -> None:
    target = Target(text)
    assert (target.address, target.secure) == (address, secure)


@pytest.mark.parametrize("text", ["", None, "http://host:8080", "host:0", "host:x", "::1", "a b", "grpc://", ":8081"])
def test_a_target_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"^target: "):
        Target(text)


def test_a_client_serves_many_threads(client: Client, service: ServiceInTest) -> None:
    """Sixteen threads over one channel: each gets its own answers."""
    for number in range(1, 17):
        service.publish(f"s{number}", plan_of(number, partitions=32))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            if client.get_plan(f"s{number}").plan != plan_of(number, partitions=32):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_an_agent_refuses_settings_of_a_client_that_it_is_given(client: Client) -> None:
    """They would have no effect."""
    with pytest.raises(ConfigError, match=r"^service: "):
        Agent("clicks", client, workers=4, token="x")
