"""Hostile names over both faces: none gets through as a stream, source or agent, and wherever one is told of (metrics,
logs, traces, answers) it is one name and nothing else."""

from __future__ import annotations

import json
import logging
import re
import sys
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.attack.conftest import Pair
from tests.attack.hostile_names import IDENTITIES, NAMES, asked
from tests.attack.victim import VICTIM
from tests.doses import some_of
from tests.service.processes import Process
from unskew.core.stream_spec import check_name
from unskew.service.app.logs import _Text

pytestmark = pytest.mark.xdist_group("attack")

FINE = {"proto", "constructor", "up"}
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"}
PATHS = ("", "/overview", "/plans/latest", "/scale", "/explain?hash=1", "/plans/1.1")
SMALL = ("newline", "quotes", "tag", "surrogate")


def told(service: Process, face: str = "metrics") -> str:
    url = f"http://127.0.0.1:{service.metrics}/metrics" if face == "metrics" else service.url(face)
    return httpx.get(url, headers={"authorization": f"Bearer {VICTIM}"}, trust_env=False, timeout=60).text


@pytest.fixture(scope="module")
def named(pair: Pair) -> Pair:
    with pair.client(pair.warm) as client:
        client.put_stream("named", partitions=8)
    return pair


@pytest.mark.parametrize("kind", some_of(NAMES, *SMALL))
def test_a_hostile_name_is_refused_and_told_as_one_name(named: Pair, kind: str) -> None:
    name = NAMES[kind]
    if kind != "surrogate":  # protobuf has no such text
        codes = dict(asked(named.warm, name)) | dict(asked(named.cold, name))
        if kind not in FINE:
            assert set(codes.values()) <= REFUSED, codes
    headers = {"authorization": f"Bearer {VICTIM}"}
    raw = quote(name[:5000].encode("utf-8", "surrogatepass"), safe="")
    with httpx.Client(base_url=named.warm.url(""), headers=headers, trust_env=False, timeout=60) as web:
        for path in PATHS:
            answer = web.get(f"/v1/streams/{raw}{path}")
            assert answer.status_code in (200, 404, 405, 409, 414, 422) or (kind == "long" and not answer.content)
            assert answer.headers["content-type"].startswith(("application/json", "application/problem+json"))
            assert not {"x-forged", "set-cookie"} & set(answer.headers)
    families = {family.name for family in text_string_to_metric_families(told(named.warm))}
    assert all(family.startswith(("unskew_", "process_", "python_")) for family in families)
    check(named)


def check(named: Pair) -> None:
    """Every line of the logs is one of ours, and nothing in them is for a terminal."""
    named.clean()
    first, second = ((folder / "log").read_text("utf-8") for folder in named.folders)
    for line in first.splitlines():
        assert json.loads(line)["level"] in ("info", "warning", "error"), line
    for line in second.splitlines():
        assert re.match(r"\d\d:\d\d:\d\d (info|warning|error) ", line), line
    both = first.replace("\n", "") + second.replace("\n", "")
    assert both.isprintable(), [one for one in both if not one.isprintable()]
    for span in named.traces.spans:
        assert re.fullmatch(r"[A-Za-z ]{1,40}|store [a-z_]+|HTTP [A-Z]+", span["name"]), span
        assert len(str(span)) < 10_000
        if "unskew.stream" in span:
            check_name("stream", span["unskew.stream"])


@pytest.mark.parametrize("number", some_of(range(len(IDENTITIES)), 0))
def test_what_an_identity_is_called_ends_up_in_one_line(named: Pair, number: int) -> None:
    """In the audit log, in errors that name it, and in the store's own keys."""
    token = f"token-{number}"
    stream = f"of-{number}"
    for service in (named.warm, named.cold):
        assert dict(asked(service, stream, token))["PutStream"] == "OK"
        answer = httpx.get(
            service.url("/v1/streams"), headers={"authorization": f"Bearer {token}"}, trust_env=False, timeout=60
        )
        assert answer.status_code == 200
    lines = [json.loads(line) for line in (named.folders[0] / "log").read_text().splitlines()]
    assert IDENTITIES[number] in {line.get("identity") for line in lines}
    check(named)


@pytest.mark.parametrize("method", some_of(["GET", "\x1b[31m", "X" * 200, "GET\x00", "PRI"], "\x1b[31m", "X" * 200))
def test_a_hostile_method_or_header_is_one_refusal(named: Pair, method: str) -> None:
    import socket

    lines = (
        f"{method} /v1/streams/a%0ab HTTP/1.1", "host: x\x1b[2J", f"authorization: Bearer {VICTIM}",
        "traceparent: 00-<script>-\x1b[31m-01", "user-agent: ${jndi:ldap://x}", "connection: close",
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", named.warm.http), 60) as connection:
        connection.settimeout(60)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")
    check(named)


def test_an_error_in_the_text_log_has_no_line_that_looks_like_another() -> None:
    """Its trace may have what a caller sent in it."""
    try:
        raise ValueError(f"12:00:00 warning {NAMES['newline']}\n12:00:00 error {NAMES['colour']}")
    except ValueError:
        record = logging.LogRecord("unskew", logging.ERROR, __file__, 1, "met", (), sys.exc_info())
    first, *trace = _Text().format(record).splitlines()
    assert first.endswith(" error   met")
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
