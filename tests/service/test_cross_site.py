"""A service without credentials on loopback, and what a page of another site can make a browser send to it: nothing
that reads (a name that was made to mean 127.0.0.1), and nothing that changes anything (forms, simple requests)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from tests.service.faces import FakeVerbs, Served, channel, digest_of, served, web
from unskew.core.stream_spec import StreamSpec
from unskew.service.app.settings import Settings
from unskew.service.rest.cross_site import CrossSiteRules
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

PATH = "/v1/streams/clicks"
OURS = frozenset({"localhost", "127.0.0.1", "::1"})
JSON = "application/json"
FORMS = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain;application/json",
]


def refusal(method: str, *headers: tuple[str, str], hosts: frozenset[str] | None = OURS) -> int:
    found = CrossSiteRules(hosts).refusal(method, [(name.encode(), value.encode("latin-1")) for name, value in headers])
    return 0 if found is None else found.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "localhost.:80",
        "localhost:",
    ],
)
def test_a_known_host_is_let_in_on_any_port(host: str) -> None:
    assert refusal("GET", ("host", host)) == 0


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "evil.example:80@localhost",
     "localhost@evil.example", "localhost:80:80", "::1", "[::1].evil.example", "127.0.0.1.nip.io", "", " ",
     "localhost:8080/x", "lo\xe4calhost"],
)  # fmt: skip
def test_any_other_host_is_refused(host: str) -> None:
    assert refusal("GET", ("host", host)) == 403
    assert refusal("GET", ("host", host), hosts=None) == 0


def test_no_host_and_two_hosts_are_refused() -> None:
    assert refusal("GET") == 403
    assert refusal("GET", ("host", "localhost"), ("host", "evil.example")) == 403


@pytest.mark.parametrize("kind", ["", *FORMS])
def test_a_post_that_a_form_can_make_is_refused(kind: str) -> None:
    headers = [("host", "localhost:8080"), *([("content-type", kind)] if kind else [])]
    assert refusal("POST", *headers) == 415
    assert refusal("POST", *headers, ("x-unskew-request", "1")) == 0


@pytest.mark.parametrize("kind", [JSON, "application/JSON; charset=utf-8", "application/x-protobuf"])
def test_a_post_that_a_browser_asks_about_first_is_let_in(kind: str) -> None:
    assert refusal("POST", ("host", "localhost:8080"), ("content-type", kind)) == 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "file://", ""])
def test_a_page_of_another_origin_changes_nothing(method: str, origin: str) -> None:
    headers = [("host", "localhost:8080"), ("content-type", JSON)]
    assert refusal(method, *headers, ("origin", origin)) == 403
    assert refusal(method, *headers, ("origin", "http://localhost:8080")) == 0
    assert refusal("GET", *headers, ("origin", origin)) == 0


# -- the service


@pytest.fixture
def service() -> Iterator[Served]:
    verbs = FakeVerbs()
    verbs.streams["clicks"] = StreamSpec(4)
    with served(verbs) as running:
        yield running


def refused(answer: httpx.Response, status: int) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    return str(answer.json()["detail"])


@pytest.mark.parametrize("path", [PATH, "/", "/healthz", "/readyz", "/openapi.json", "/nothing"])
def test_a_name_that_was_made_to_mean_us_gets_nothing(service: Served, path: str) -> None:
    with web(service, host="evil.example:8080") as client:
        assert "--allowed-hosts" in refused(client.get(path), 403)


def test_what_the_attack_sent_is_refused_and_counted(service: Served) -> None:
    """DELETE and POST as a page of evil.example sends them, by its name and by ours; metrics too."""
    with web(service, host="evil.example") as client:
        refused(client.delete(PATH), 403)
        refused(client.post(f"{PATH}/plans"), 403)
    with web(service) as client:
        for kind in FORMS:
            refused(client.post(f"{PATH}/plans", content=b"{}", headers={"content-type": kind}), 415)
        assert "x-unskew-request" in refused(client.post(f"{PATH}/plans"), 415)
        refused(client.delete(PATH, headers={"origin": "http://evil.example"}), 403)
        preflight = client.options(
            PATH, headers={"access-control-request-method": "DELETE", "origin": "http://evil.example"}
        )
        assert preflight.status_code == 405
        assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert "clicks" in service.verbs.streams
    assert service.verbs.asked == []
    refused(httpx.get(service.metrics, headers={"host": "evil.example"}, trust_env=False), 403)
    page = httpx.get(service.metrics, trust_env=False).text
    assert 'unskew_rejected_total{reason="cross site"} 9.0' in page


def test_clients_page_and_command_line_go_on_as_before(service: Served) -> None:
    """By any of our names; a page of our own with its Origin; a DELETE needs nothing; gRPC is no browser's."""
    port = service.running.http_port
    with web(service) as client:
        for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert client.get(PATH, headers={"host": host}).status_code == 200
        own: dict[str, Any] = {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"}
        assert client.put(PATH, json={"partitions": 3}, headers=own).status_code == 200
        assert client.post(f"{PATH}/plans", headers={"x-unskew-request": "1"}).status_code == 200
        assert client.post(f"{PATH}/plans", json={}, headers=own).status_code == 200
        assert client.delete(PATH).status_code == 204
    with channel(service) as open_channel:
        stub = PartitionerServiceStub(open_channel)
        with pytest.raises(grpc.RpcError) as raised:
            stub.GetStream(pb.GetStreamRequest(stream="clicks"), timeout=60)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_service_with_credentials_is_asked_by_any_name() -> None:
    """And a POST is judged by its body alone, as before."""
    verbs = FakeVerbs()
    verbs.streams["clicks"] = StreamSpec(4)
    with (
        served(verbs, tokens=f"{digest_of('t')} etl admin *") as running,
        web(running, host="plans.example", authorization="Bearer t", origin="http://evil.example") as client,
    ):
        assert client.post(f"{PATH}/plans").status_code == 200
        assert client.delete(PATH).status_code == 204


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, OURS),
        ({"host": "::1"}, OURS),
        ({"host": "127.0.0.2"}, OURS | {"127.0.0.2"}),
        ({"allowed_hosts": "Plans.Example, host.docker.internal,"}, OURS | {"plans.example", "host.docker.internal"}),
        ({"host": "0.0.0.0", "insecure": True}, None),
        ({"host": "0.0.0.0", "insecure": True, "allowed_hosts": "plans"}, OURS | {"0.0.0.0", "plans"}),
    ],
)
def test_the_settings_name_the_hosts(given: dict[str, Any], names: frozenset[str] | None) -> None:
    assert Settings(**given).known_hosts == names


def test_an_open_service_beyond_loopback_has_any_name_and_wants_the_content_type_all_the_same() -> None:
    with served(FakeVerbs(), host="0.0.0.0", insecure=True) as running:
        base = f"http://127.0.0.1:{running.running.http_port}"
        with httpx.Client(base_url=base, trust_env=False, headers={"host": "plans.team.svc"}) as client:
            assert client.put(PATH, json={"partitions": 2}).status_code == 201
            refused(client.post(f"{PATH}/plans"), 415)
