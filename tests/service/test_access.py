"""Who may do what: lists of credentials, and the whole matrix of calls and credentials against a running service."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.service.faces import SERVICE, FakeVerbs, Served, digest_of, histogram, report, served
from unskew.core.errors import ConfigError
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.auth.access import Access, audit
from unskew.service.auth.credentials import ANYBODY as anybody  # noqa: N811
from unskew.service.auth.credentials import read_credentials
from unskew.service.auth.roles import ROLE_OF, Role
from unskew.service.errors import DeniedError, UnauthenticatedError
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histograms, round_messages

# -- lists of credentials -----------------------------------------------------------------------------------


def test_lines_and_json_say_the_same() -> None:
    """Two forms of one list; several entries of a credential add up."""
    lines = f"# team\n{digest_of('a')} etl reporter clicks,eu/* 2030-01-31\n{digest_of('a')} etl reader * 2030-01-31\n"
    row = {"sha256": digest_of("a"), "identity": "etl", "expires": "2030-01-31T00:00:00Z"}
    rows = [{**row, "role": "reporter", "streams": ["clicks", "eu/*"]}, {**row, "role": "reader", "streams": ["*"]}]
    assert read_credentials(lines, "x") == read_credentials(json.dumps({"tokens": rows}), "x")
    (entry,) = read_credentials(lines, "x")
    assert [(grant.role, grant.pattern) for grant in entry.identity.grants] == [
        (Role.REPORTER, "clicks"),
        (Role.REPORTER, "eu/*"),
        (Role.READER, "*"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "abc etl admin *",
        f"{digest_of('a')} etl emperor *",
        f"{digest_of('a')} etl admin",
        f"{digest_of('a')} etl admin * tomorrow",
        f"{digest_of('a')} etl admin ,",
        f"{digest_of('a')} etl admin *\n{digest_of('a')} other reader *",
        '{"tokens": 5}',
        '{"tokens": [5]}',
        json.dumps({"tokens": [{"sha256": digest_of("a"), "identity": "", "role": "admin", "streams": ["*"]}]}),
        json.dumps({"tokens": [{"sha256": digest_of("a"), "identity": "e", "role": "admin", "stream": "*"}]}),
        "{",
    ],
)
def test_a_wrong_list_is_refused_and_says_where(text: str) -> None:
    """By its line or number; and a digest is not repeated."""
    with pytest.raises(ConfigError, match="the file") as why:
        read_credentials(text, "the file")
    assert digest_of("a") not in str(why.value)


def test_a_credential_ends_when_it_expires() -> None:
    """By the clock of the service."""
    now = 0.0
    access = Access(tokens=f"{digest_of('a')} etl admin * 1970-01-02", clock=lambda: now)
    assert access.identify("Bearer a").name == "etl"
    now = 86_400.0
    with pytest.raises(UnauthenticatedError):
        access.identify("Bearer a")


def test_patterns_cover_whole_names_only() -> None:
    """`click` is not `clicks`; a star runs over slashes; case matters."""
    access = Access(tokens=f"{digest_of('a')} etl admin eu/*,clicks")
    who = access.identify("bearer a")
    names = ("eu/a", "eu/a/b", "clicks", "click", "clicks2", "EU/a", "us/a")
    assert [who.may("PutStream", name) for name in names] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Within a second of its change; a broken or missing file changes nothing and is told once."""
    path, now = tmp_path / "tokens", 0.0
    path.write_text(f"{digest_of('a')} etl admin *\n")
    access = Access(str(path), tokens=f"{digest_of('fixed')} ops admin *", timer=lambda: now)

    def known(token: str) -> bool:
        nonlocal now
        now += 1.0
        try:
            return bool(access.identify(f"Bearer {token}"))
        except UnauthenticatedError:
            return False

    assert (known("a"), known("b")) == (True, False)
    path.write_text(f"{digest_of('b')} etl admin *,x\n")
    assert (known("a"), known("b"), known("fixed")) == (False, True, True)
    path.write_text("nonsense\n")
    with caplog.at_level(logging.ERROR):
        assert (known("a"), known("b"), known("fixed")) == (False, True, True)
        path.unlink()
        assert known("b")
    assert len([r for r in caplog.records if r.name == "unskew.access"]) == 2


def test_certificates_have_roles_by_the_names_in_them() -> None:
    """A name in the list is an identity; a token that is shown beside it counts first."""
    access = Access(tokens=f"san=spiffe://jobs/etl etl reporter *\n{digest_of('a')} ops admin *", certificates=True)
    assert access.identify(None, ["other", "spiffe://jobs/etl"]).name == "etl"
    assert access.identify("Bearer a", ["spiffe://jobs/etl"]).name == "ops"
    with pytest.raises(UnauthenticatedError):
        access.identify(None, ["spiffe://jobs/other"])
    with pytest.raises(UnauthenticatedError):
        access.identify("Bearer wrong", ["spiffe://jobs/etl"])


def test_changes_are_written_to_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, which stream, how it ended."""
    with caplog.at_level(logging.INFO, "unskew.audit"):
        audit(anybody, "PutStream", "clicks", "created")
    (line,) = caplog.records
    assert (line.identity, line.verb, line.stream, line.getMessage()) == (  # type: ignore[attr-defined]
        "anybody", "PutStream", "clicks", "PutStream created",
    )  # fmt: skip


# -- the matrix ---------------------------------------------------------------------------------------------

STREAM = "team/clicks"
LOWER = {Role.REPORTER: "reader", Role.ADMIN: "reporter"}
NAMES = [f"{role.name.lower()}{suffix}" for role in Role for suffix in ("", "-elsewhere", "-late", "-all")]
TOKENS = "\n".join(
    f"{digest_of(f'{role.name.lower()}{suffix}')} {role.name.lower()}{suffix} {role.name.lower()} {streams}"
    for role in Role
    for suffix, streams in {
        "": "team/*",
        "-elsewhere": "other/*",
        "-late": "* 2001-01-01",
        "-all": "*",
    }.items()
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    verbs = FakeVerbs()
    with served(verbs, tokens=TOKENS) as running:
        yield running


@pytest.fixture(autouse=True)
def _filled(request: pytest.FixtureRequest) -> None:
    """Every call finds the stream and a plan, whatever the call before it did."""
    if "guarded" not in request.fixturenames:
        return
    running: Served = request.getfixturevalue("guarded")
    running.verbs.streams[STREAM] = StreamSpec(4)
    running.verbs.histograms[STREAM, Part("s", 1)] = histogram()
    running.run(running.verbs.build_plan(STREAM, 1))
    running.verbs.asked.clear()


def _part() -> pb.Part:
    return pb.Part(source="q", batch=1, parts=1)


def _grpc_calls() -> dict[str, Callable[[pb.PutStreamRequest, list[tuple[str, str]]], object]]:
    chunks = list(histograms.chunks(histogram(), STREAM, Part("q", 1)))
    sync = pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(report()))
    spec = pb.StreamSpec(partitions=4)
    return {
        "PutStream": lambda s, m: s.PutStream(pb.PutStreamRequest(stream=STREAM, spec=spec), metadata=m),
        "GetStream": lambda s, m: s.GetStream(pb.GetStreamRequest(stream=STREAM), metadata=m),
        "DeleteStream": lambda s, m: s.DeleteStream(pb.DeleteStreamRequest(stream=STREAM), metadata=m),
        "ReportHistogram": lambda s, m: s.ReportHistogram(iter(chunks), metadata=m),
        "BuildPlan": lambda s, m: s.BuildPlan(pb.BuildPlanRequest(stream=STREAM), metadata=m),
        "GetPlan": lambda s, m: s.GetPlan(pb.GetPlanRequest(stream=STREAM), metadata=m),
        "WatchPlans": lambda s, m: _first(s.WatchPlans(pb.WatchPlansRequest(stream=STREAM), metadata=m)),
        "Sync": lambda s, m: s.Sync(sync, metadata=m),
        "ReportBatch": lambda s, m: s.ReportBatch(pb.ReportBatchRequest(stream=STREAM, part=_part()), metadata=m),
        "GetScale": lambda s, m: s.GetScale(pb.GetScaleRequest(stream=STREAM), metadata=m),
        "Explain": lambda s, m: s.Explain(pb.ExplainRequest(stream=STREAM, hash=5), metadata=m),
    }


def _first(stream: grpc.Call) -> object:
    try:
        return next(stream)
    finally:
        stream.cancel()


PATH = f"/v1/streams/{STREAM.replace('/', '%2F')}"
SYNC = {
    "report": {
        "agent": "a",
        "session": 1,
        "seq": 1,
        "table": {"workers": 2},
        "frequent": {"capacity": 4},
        "loads": [0, 0],
        "dsync_seconds": 5,
    }
}
ROUTES: list[tuple[str, str, str, dict[str, object] | None]] = [
    ("PutStream", "PUT", PATH, {"partitions": 4}),
    ("GetStream", "GET", PATH, None),
    ("DeleteStream", "DELETE", PATH, None),
    ("ReportHistogram", "POST", f"{PATH}/histograms", {"source": "q", "batch": 1, "hashes": [1], "counts": [1]}),
    ("BuildPlan", "POST", f"{PATH}/plans", {}),
    ("GetPlan", "GET", f"{PATH}/plans/latest", None),
    ("GetPlan", "GET", f"{PATH}/plans/0.1", None),
    ("Sync", "POST", f"{PATH}/sync", SYNC),
    ("ReportBatch", "POST", f"{PATH}/batches", {"source": "q", "batch": 1}),
    ("GetScale", "GET", f"{PATH}/scale", None),
    ("GetOverview", "GET", f"{PATH}/overview", None),
    ("Explain", "GET", f"{PATH}/explain?hash=5", None),
    ("Explain", "POST", f"{PATH}/explain", {"hash": "5"}),
]
CREDENTIALS = ["none", "wrong", "expired", "wrong role", "wrong stream", "right"]


def _token(credential: str, verb: str) -> str | None:
    """What the caller shows; None where the verb has no lower role."""
    role = ROLE_OF[verb]
    name = role.name.lower()
    return {
        "none": "",
        "wrong": "no-such-token",
        "expired": f"{name}-late",
        "wrong role": LOWER.get(role, ""),
        "wrong stream": f"{name}-elsewhere",
        "right": name,
    }[credential]


def _expected(credential: str, verb: str) -> str:
    if credential == "wrong role" and ROLE_OF[verb] is Role.READER:
        return "UNAUTHENTICATED"  # there is no lower role: no token at all
    if credential in ("none", "wrong", "expired"):
        return "UNAUTHENTICATED"
    return "OK" if credential == "right" else "PERMISSION_DENIED"


def test_the_matrix_has_every_rpc_and_every_route(guarded: Served) -> None:
    """What is added later must be added here."""
    rpcs = {method.name for method in pb.DESCRIPTOR.services_by_name["PartitionerService"].methods}
    assert rpcs == set(_grpc_calls()) | {"ListStreams"}
    routes = {(m, r.path.replace("{stream:unskew_name}", "S").replace("{version}", "V"))
              for r in guarded.running._rest.app.routes for m in r.methods}  # fmt: skip
    here = {
        (method, path.partition("?")[0].replace(PATH, "/v1/streams/S").replace("0.1", "V"))
        for _, method, path, _ in ROUTES
    }
    open_to_all = {("GET", "/healthz"), ("GET", "/readyz")}
    open_to_all |= {(method, path) for method in ("GET", "HEAD") for path in ("/", "/web/{digest}/{name}")}
    tested_below = {("GET", "/v1/streams"), ("GET", "/v1/overview"), ("GET", "/openapi.json")}
    assert routes == here | open_to_all | tested_below


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("verb", sorted(_grpc_calls()))
def test_a_call_over_grpc_passes_with_the_right_credential_only(guarded: Served, verb: str, credential: str) -> None:
    """And the verbs behind it hear of no other."""
    token = _token(credential, verb)
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(guarded.target) as channel:
        try:
            _grpc_calls()[verb](guarded.stub(channel), metadata)
            outcome = "OK"
        except grpc.RpcError as why:
            outcome = why.code().name
    assert outcome == _expected(credential, verb)
    assert bool(guarded.verbs.asked) == (outcome == "OK")


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize(("verb", "method", "path", "body"), ROUTES, ids=lambda part: str(part)[:40])
def test_a_route_passes_with_the_right_credential_only(
    guarded: Served, verb: str, method: str, path: str, body: dict[str, object] | None, credential: str
) -> None:
    """And the verbs behind it hear of no other."""
    token = _token(credential, verb)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.request(method, guarded.base + path, json=body, headers=headers, trust_env=False, timeout=60)
    status = {"OK": (200, 201, 204), "UNAUTHENTICATED": (401,), "PERMISSION_DENIED": (403,)}
    expected = _expected(credential, verb)
    assert answer.status_code in status[expected]
    assert bool(guarded.verbs.asked) == (expected == "OK")
    if expected != "OK":
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == expected
        assert ("www-authenticate" in answer.headers) == (expected == "UNAUTHENTICATED")


def test_a_caller_sees_only_the_streams_that_are_for_it(guarded: Served) -> None:
    """A list is no way around the patterns; each role sees its own."""
    guarded.verbs.streams["other/one"] = StreamSpec(2)
    seen = {}
    for name in ("reader", "admin", "reader-elsewhere", "reader-all"):
        answer = httpx.get(
            f"{guarded.base}/v1/streams", headers={"authorization": f"Bearer {name}"}, trust_env=False, timeout=60
        )
        seen[name] = [stream["name"] for stream in answer.json()["streams"]]
        shown = httpx.get(
            f"{guarded.base}/v1/overview", headers={"authorization": f"Bearer {name}"}, trust_env=False, timeout=60
        )
        assert [one["stream"]["name"] for one in shown.json()["streams"]] == seen[name]
        with grpc.insecure_channel(guarded.target) as channel:
            metadata = [("authorization", f"Bearer {name}")]
            listed = guarded.stub(channel).ListStreams(pb.ListStreamsRequest(), metadata=metadata)
        assert [stream.name for stream in listed.streams] == seen[name]
    assert seen == {
        "reader": [STREAM],
        "admin": [STREAM],
        "reader-elsewhere": ["other/one"],
        "reader-all": ["other/one", STREAM],
    }
    for path in ("/v1/streams", "/v1/overview"):
        assert httpx.get(guarded.base + path, trust_env=False, timeout=60).status_code == 401
        mine = {"authorization": "Bearer reader"}
        page = httpx.get(guarded.base + path, params={"limit": 1}, headers=mine, trust_env=False, timeout=60).json()
        assert page["next"] == STREAM, "a name of somebody else's stream"
        assert len(page["streams"]) == 1, "a page is full where there is enough for it"
    with grpc.insecure_channel(guarded.target) as channel, pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        guarded.stub(channel).ListStreams(pb.ListStreamsRequest())


@pytest.mark.parametrize(
    ("token", "metrics", "document"),
    [
        ("", 401, 401),
        ("nobody", 401, 401),
        ("reader-late", 401, 401),
        ("reader", 403, 200),
        ("admin", 403, 200),
        ("reader-all", 200, 200),
    ],
)
def test_metrics_and_documents_have_rules_too(guarded: Served, token: str, metrics: int, document: int) -> None:
    """Metrics name every stream, so they are for whoever may read every stream; the document is for any credential."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    assert httpx.get(guarded.metrics, headers=headers, trust_env=False, timeout=60).status_code == metrics
    assert (
        httpx.get(f"{guarded.base}/openapi.json", headers=headers, trust_env=False, timeout=60).status_code == document
    )
    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with grpc.insecure_channel(guarded.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        try:
            (answer,) = stub.ServerReflectionInfo(iter(asked), metadata=list(headers.items()))
            told = SERVICE in {service.name for service in answer.list_services_response.service}
        except grpc.RpcError:
            told = False
    assert told == (document == 200)


def test_health_is_for_everybody(guarded: Served) -> None:
    """Whoever probes has no credential, and learns nothing of streams."""
    assert httpx.get(f"{guarded.base}/healthz", trust_env=False, timeout=60).json() == {"status": "live"}
    assert httpx.get(f"{guarded.base}/readyz", trust_env=False, timeout=60).json() == {"status": "ready"}
    with grpc.insecure_channel(guarded.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_without_credentials_configured_everybody_may(caplog: pytest.LogCaptureFixture) -> None:
    """On loopback, the default: and a header that is sent all the same does no harm."""
    access = Access()
    assert access.open
    assert access.identify(None) is access.identify("Basic x") is anybody
    access.require(anybody, "DeleteStream", "any")
    access.require(anybody, "Metrics")


def test_a_refusal_names_who_what_and_where() -> None:
    """So that whoever gave out the token can mend it."""
    access = Access(tokens=f"{digest_of('a')} etl reader eu/*")
    with pytest.raises(DeniedError, match="etl may not call PutStream on stream 'eu/x': it needs the role admin"):
        access.require(access.identify("Bearer a"), "PutStream", "eu/x")
    with pytest.raises(UnauthenticatedError, match="Bearer"):
        access.identify("Basic YTpi")
