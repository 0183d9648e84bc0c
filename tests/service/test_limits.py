"""Limits of an identity: how many streams, how large a message, how many keys; alike on both faces and all replicas."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from tests.planning import key_hashes
from tests.servers import single
from tests.service.faces import Served, digest_of, served, web
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import Part
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import Allowance, read_credentials
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms

TOKENS = (
    f"{digest_of('few')} few admin * max_streams=2\n"
    f"{digest_of('small')} small admin * 2099-01-01 max_histogram_keys=1000 max_message_bytes=50000\n"
    f"{digest_of('plain')} plain admin *\n"
    f"{digest_of('wide')} wide admin * max_streams=9 max_histogram_keys=8000\n"
)
PROTOBUF = "application/x-protobuf"


# -- where they are written ---------------------------------------------------------------------------------


def test_lines_and_json_say_the_same_limits() -> None:
    """By the names of the settings; several entries of a credential add up, and agree."""
    line = f"{digest_of('a')} etl admin * 2099-01-01 max_streams=5 max_message_bytes=1000\n"
    row = {"sha256": digest_of("a"), "identity": "etl", "role": "admin", "streams": ["*"], "expires": "2099-01-01"}
    as_json = json.dumps({"tokens": [{**row, "max_streams": 5, "max_message_bytes": 1000}]})
    assert read_credentials(line, "x") == read_credentials(as_json, "x")
    (entry,) = read_credentials(line + f"{digest_of('a')} etl reader b 2099-01-01 max_histogram_keys=7\n", "x")
    assert entry.identity.allowance == Allowance(5, 7, 1000)


def test_the_bytes_of_an_identity_are_the_most_that_one_of_its_credentials_says() -> None:
    """Its streams are there whoever calls, so the store asks by its name."""
    lines = [f"{digest_of(token)} {name} admin *" for token, name in (("a", "etl"), ("b", "etl"), ("c", "web"))]
    access = Access(tokens=f"{lines[0]} max_identity_bytes=5\n{lines[1]} max_identity_bytes=9\n{lines[2]}\n")
    assert [access.bytes_of(name) for name in ("etl", "web", "nobody")] == [9, None, None]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("max_streams=0", "max_streams: 0"),
        ("max_streams=many", "max_streams: 'many'"),
        ("max_streams=-1", "max_streams: '-1'"),
        ("max_stream=1", "max_histogram_keys"),
        ("2099-01-01 2099-01-02", "max_streams"),
        ("max_streams=5\n{line} max_streams=6", "what the same credential has above, 5"),
    ],
)
def test_a_wrong_limit_is_refused_and_says_where(words: str, told: str) -> None:
    line = f"{digest_of('a')} etl admin *"
    with pytest.raises(ConfigError, match="the file, line") as why:
        read_credentials(f"{line} {words.format(line=line)}", "the file")
    assert told in str(why.value)


# -- what they do -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served("engine", tokens=TOKENS, max_streams=4, max_histogram_keys=5000) as found:
        yield found


@pytest.fixture(scope="module")
def stub(running: Served) -> Iterator[PartitionerServiceStub]:
    with grpc.insecure_channel(running.target) as channel:
        yield PartitionerServiceStub(channel)


def me(name: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {name}")]


def client(running: Served, name: str) -> Any:
    return web(running, authorization=f"Bearer {name}")


def put(stub: PartitionerServiceStub, name: str, stream: str) -> str:
    """How it ended."""
    request = pb.PutStreamRequest(stream=stream, spec=pb.StreamSpec(partitions=2))
    try:
        return "created" if stub.PutStream(request, metadata=me(name)).created else "changed"
    except grpc.RpcError as why:
        return f"{why.code().name}: {why.details()}"


def counted(keys: int) -> Histogram:
    return Histogram.from_counts(key_hashes(keys), np.full(keys, 3))


@pytest.mark.parametrize(("name", "most"), [("few", 2), ("plain", 4)])
def test_an_identity_creates_so_many_streams_over_both_faces_together(
    running: Served, stub: PartitionerServiceStub, name: str, most: int
) -> None:
    """Its own limit, or that of the settings. One that it deletes, or that another does, makes room; others' streams
    and changes of its own do not count."""
    with client(running, name) as http:
        for number in range(most):
            path = f"{name}-{number}"
            done = put(stub, name, path) if number % 2 else http.put(f"/v1/streams/{path}", json={"partitions": 2})
            assert done == "created" if isinstance(done, str) else done.status_code == 201
        refused = http.put("/v1/streams/more", json={"partitions": 2})
        assert refused.status_code == 429
        assert refused.json()["code"] == "RESOURCE_EXHAUSTED"
        assert refused.json()["errors"][0]["field"] == "stream"
        assert f"{name} has created {most} streams" in refused.json()["detail"]
        assert "retry-after" not in refused.headers  # waiting is of no use
        assert put(stub, name, "more").startswith("RESOURCE_EXHAUSTED: stream: ")
        assert put(stub, name, f"{name}-0") == "changed"
        assert put(stub, "wide", f"of wide for {name}".replace(" ", "-")) == "created"
        stub.DeleteStream(pb.DeleteStreamRequest(stream=f"{name}-0"), metadata=me("wide"))
        assert put(stub, name, f"{name}-more") == "created"


def test_the_number_of_streams_holds_over_replicas(tmp_path: Path) -> None:
    """Whichever replica is asked: they share a store."""
    with single(tmp_path) as redis:
        store = {"store": f"{redis.url}?timeout=5&deadline=10", "tokens": TOKENS}
        with served("engine", **store) as one, served("engine", **store) as two:
            codes = []
            for number in range(4):
                with client((one, two)[number % 2], "few") as http:
                    codes.append(http.put(f"/v1/streams/s{number}", json={"partitions": 2}).status_code)
            with client(two, "few") as http:
                http.delete("/v1/streams/s0")
            with client(one, "few") as http:
                codes.append(http.put("/v1/streams/s9", json={"partitions": 2}).status_code)
    assert codes == [201, 201, 429, 429, 201]


@pytest.mark.parametrize(("name", "most"), [("small", 1000), ("plain", 5000), ("wide", 8000)])
def test_a_histogram_has_so_many_keys(running: Served, stub: PartitionerServiceStub, name: str, most: int) -> None:
    """Over gRPC in chunks, over REST in one, and in a request for a plan."""
    put(stub, "wide", "counts")
    for keys, passes in ((most, True), (most + 1, False)):
        batch = most + keys
        asked = histograms.chunks(counted(keys), "counts", Part(name, batch), keys=400)
        try:
            stub.ReportHistogram(asked, metadata=me(name))
            outcome = "OK"
        except grpc.RpcError as why:
            outcome = why.code().name
        assert outcome == ("OK" if passes else "RESOURCE_EXHAUSTED")
        whole = next(iter(histograms.chunks(counted(keys), "counts", Part(name, batch, 1), keys=keys)))
        inline = pb.BuildPlanRequest(histogram=histograms.histogram_to_message(counted(keys)))
        with client(running, name) as http:
            for path, message in (("histograms", whole), ("plans", inline)):
                headers = {"content-type": PROTOBUF}
                data = message.SerializeToString()
                answer = http.post(f"/v1/streams/counts/{path}", content=data, headers=headers)
                assert answer.status_code == (200 if passes else 413), answer.text


def test_a_message_has_so_many_bytes(running: Served, stub: PartitionerServiceStub) -> None:
    """On both faces; in chunks more may come."""
    put(stub, "wide", "sizes")
    inline = pb.BuildPlanRequest(stream="sizes", histogram=pb.Histogram(hashes=bytes(60_000)))
    many = next(iter(histograms.chunks(counted(4000), "sizes", Part("q", 1))))
    for call in (
        lambda: stub.BuildPlan(inline, metadata=me("small")),
        lambda: stub.ReportHistogram(iter([many]), metadata=me("small")),
    ):
        with pytest.raises(grpc.RpcError) as why:
            call()
        assert why.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "small may send 50,000" in why.value.details()
    with client(running, "small") as http:
        for content, kind in ((inline.SerializeToString(), PROTOBUF), (b" " * 50_001, "application/json")):
            answer = http.post("/v1/streams/sizes/plans", content=content, headers={"content-type": kind})
            assert (answer.status_code, answer.json()["code"]) == (413, "RESOURCE_EXHAUSTED")
            assert "50,000" in answer.json()["detail"]
    chunks = list(histograms.chunks(counted(1000), "sizes", Part("q", 1), keys=500))
    assert sum(chunk.ByteSize() for chunk in chunks) > 15_000
    assert stub.ReportHistogram(iter(chunks), metadata=me("small")).keys == 1000


# -- the audit log ------------------------------------------------------------------------------------------


def test_every_change_and_every_refused_one_is_in_the_audit_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, which stream, how it ended; over either face. What only reads, or is of no identity, is not."""
    spec = pb.StreamSpec(partitions=2, policy="kip")
    tokens = f"{TOKENS}{digest_of('eye')} eye reader *\n"
    with (
        served("engine", tokens=tokens) as own,
        grpc.insecure_channel(own.target) as channel,
        caplog.at_level(logging.INFO, "unskew.audit"),
    ):
        stub = PartitionerServiceStub(channel)
        stub.PutStream(pb.PutStreamRequest(stream="a", spec=spec), metadata=me("few"))
        bad = pb.StreamSpec(partitions=2, policy="none")
        for request, name in (((spec), "eye"), (bad, "few"), (spec, "nobody")):
            with pytest.raises(grpc.RpcError):
                stub.PutStream(pb.PutStreamRequest(stream="a", spec=request), metadata=me(name))
        with pytest.raises(grpc.RpcError):
            stub.DeleteStream(pb.DeleteStreamRequest(stream="b"), metadata=me("few"))
        for name, body in (("few", {"partitions": 3}), ("eye", {"partitions": 3}), ("few", {"partitions": "x"})):
            httpx.put(f"{own.base}/v1/streams/a", json=body, headers=dict(me(name)), trust_env=False, timeout=60)
        for name in ("eye", "few", "few"):
            httpx.delete(f"{own.base}/v1/streams/a", headers=dict(me(name)), trust_env=False, timeout=60)
        stub.ListStreams(pb.ListStreamsRequest(), metadata=me("eye"))
    found = [(line.identity, line.stream, line.getMessage()) for line in caplog.records if line.name == "unskew.audit"]  # type: ignore[attr-defined]
    assert found == [
        ("few", "a", "PutStream created"),
        ("eye", "a", "PutStream refused: PERMISSION_DENIED"),
        ("few", "a", "PutStream refused: INVALID_ARGUMENT"),
        ("few", "b", "DeleteStream refused: NOT_FOUND"),
        ("few", "a", "PutStream changed"),
        ("eye", "a", "PutStream refused: PERMISSION_DENIED"),
        ("few", "a", "PutStream refused: INVALID_ARGUMENT"),
        ("eye", "a", "DeleteStream refused: PERMISSION_DENIED"),
        ("few", "a", "DeleteStream deleted"),
        ("few", "a", "DeleteStream refused: NOT_FOUND"),
    ]
    (first, *_) = (line for line in caplog.records if line.name == "unskew.audit")
    assert (first.policy, first.partitions) == ("kip", 2)  # type: ignore[attr-defined]
