"""REST keeps to its OpenAPI document: schemathesis makes requests that the document allows and such as it does not, and
holds every answer against it: a status that is documented, of the documented kind and shape.

The document is the service's own. For making requests, not for judging answers, a copy of it names streams that are
there, so that more is reached than "no such stream".
"""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.doses import DOSES, LONG_DOSES
from tests.fuzz.judge import Judge
from tests.fuzz.messages import REQUESTS, STREAMS, TEXTS
from tests.fuzz.rest import Rest, fault_of_response, written
from tests.fuzz.runs import each, halves, of_long
from tests.fuzz.target import DEADLINE, Target
from tests.fuzz.valid import WAIT, a_request, broken_bytes, broken_message

pytestmark = pytest.mark.xdist_group("fuzz-rest")

_SPARE = 1.2  # Hypothesis stops where there are no more different cases of an operation
_CHECKS = [
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
_ACCEPTED = ("application/json", "application/x-protobuf", "*/*", "text/html", "", ";;q=x")


# -- what the document says -----------------------------------------------------------------------------------


def _document(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{target.base}/openapi.json", timeout=DEADLINE).json()
    return found


def _shaped(document: dict[str, Any]) -> dict[str, Any]:
    """The same, with streams that are there, and some that a valid request would create."""
    others = [f"no-such-stream-{number}" for number in range(len(STREAMS))]
    shaped = copy.deepcopy(document)
    for path in shaped["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "stream":
                    parameter["schema"] = {"type": "string", "enum": [*STREAMS, *others]}
    return shaped


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, st.SearchStrategy[Case]]]:
    """Each operation, twice: with what it should take, and with what it should not."""
    for mode, said in ((GenerationMode.POSITIVE, _shaped(document)), (GenerationMode.NEGATIVE, document)):
        for found in schemathesis.openapi.from_dict(said).get_all_operations():
            operation = found.ok()
            yield f"{operation.label} {mode.value}", operation.as_strategy(generation_mode=mode)


def _judged(case: Case, response: requests.Response) -> str:
    if fault := fault_of_response(response):
        return fault
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as why:
        return f"{response.status_code}: {' '.join(str(why).split())[:600]}"
    return ""


def run_documented(target: Target, judge: Judge, cases: int, number: int) -> None:
    session = requests.Session()
    session.trust_env = False
    accepts = Random(number)

    def call(label: str, case: Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), (int, float)):
            case.body["wait_seconds"] = min(case.body["wait_seconds"], WAIT)
        sent = case.as_transport_kwargs(base_url=target.base)
        sent["headers"] = {**sent["headers"], "accept": accepts.choice(_ACCEPTED)}
        response = session.request(**sent, timeout=DEADLINE, allow_redirects=False)
        shown = {name: sent.get(name) for name in ("method", "url", "params", "json", "data", "headers")}
        judge.took(label, str(response.status_code), _judged(case, response), shown)

    operations = list(_operations(_document(target)))
    for label, strategy in operations:
        each(strategy, cases // len(operations), number, lambda case, label=label: call(label, case))


def test_answers_are_as_the_document_says(target: Target) -> None:
    """Every operation, with requests that the document allows and with such as it does not."""
    judge = Judge()
    for number in halves(target, judge):
        run_documented(target, judge, round(_SPARE * DOSES["documented"] / 2), number)
    assert judge.answered >= DOSES["documented"]
    for status in ("200", "404", "422"):  # whether a stream is created or deleted is chance
        assert any(code.endswith(f" {status}") for code in judge.codes), f"nothing was answered {status}"


# -- bodies of protobuf ---------------------------------------------------------------------------------------


def run_bodies(target: Target, judge: Judge, cases: int, number: int) -> None:
    """Messages with something wrong in them, and bytes with something wrong."""
    rest = Rest(target, judge)

    def call(drawn: int) -> None:
        random = Random(drawn)
        verb = random.choice(sorted(set(REQUESTS) - {"WatchPlans"}))
        _, message = a_request(random, verb)
        for _ in range(random.choice((0, 1, 2))):
            broken_message(random, message)
        if verb == "Sync" and not 0.0 <= message.wait_seconds <= WAIT:
            message.wait_seconds = WAIT
        method, path, body, headers = written(verb, message)
        if body is not None and random.random() < 0.2:
            body = broken_bytes(random, body)
        rest.take(verb, method, path, body, headers)

    each(st.integers(0, 2**64), cases, number, call)


def test_bodies_of_protobuf_are_answered_or_refused_with_reason(target: Target) -> None:
    """The messages of gRPC as bodies, and the rest as paths and queries, each with up to two things wrong."""
    judge = Judge()
    for number in halves(target, judge):
        run_bodies(target, judge, DOSES["bodies"] // 2, number)
    assert judge.answered >= DOSES["bodies"]


# -- what no document speaks of -------------------------------------------------------------------------------


def _odd_request(random: Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    """Paths, methods, kinds of content and bodies of any kind."""
    stream = random.choice(STREAMS)
    if random.random() < 0.5:
        method, rest = random.choice(_TAKING)
        return method, f"/v1/streams/{stream}{rest}", _odd_body(random), _odd_headers(random)
    method = random.choice(("GET", "GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"))
    path = random.choice((*_PATHS, *(f"/v1/streams/{stream}{rest}" for rest in _RESTS)))
    return method, path, None if method in ("GET", "HEAD") else _odd_body(random), _odd_headers(random)


_PATHS = ("/", "//", "/v1", "/v1/streams/", "/%00", "/%ff%fe", "/docs", "/healthz", "/readyz", "/openapi.json",
          "/v1/streams/%2e%2e/plans/latest", "/v1/streams/" + "s" * 9000,
          *(f"/v1/streams?limit={limit}" for limit in ("", "x", "1e3", "9" * 5000, "1&limit=2", "%00")),
          *(f"/v1/streams/%{rest}" for rest in ("", "2", "zz", "00", "c3%28")))  # fmt: skip
_RESTS = ("", "/", "/plans", "%2Fx", "/plans/latest/x", "/explain", "/histograms", "/sync", "/batches",
          *(f"/plans/{version}" for version in ("0.0", "1", "1.1.1", "-1.2", "٣.٣", "9" * 30 + ".1")),
          *(f"/explain?hash={key}" for key in ("0x", "--1", "9" * 21, "", "%ff", "1&hash=2", "x" * 9000)))  # fmt: skip


def _odd_headers(random: Random) -> dict[str, str]:
    kind = random.choice((
        *["application/json"] * 9, "application/json; charset=utf-16", "application/x-protobuf", "", "/",
    ))  # fmt: skip
    headers = {"content-type": kind, "accept": random.choice(_ACCEPTED)}
    if random.random() < 0.1:
        headers["content-encoding"] = random.choice(("gzip", "identity", "x" * 200))
    if random.random() < 0.1:
        headers["if-none-match"] = random.choice(("*", '""', 'W/"x", "y"', ",", "x" * 3000))
    return headers


def _odd_body(random: Random) -> bytes:
    """JSON as nobody should write it, and what is none."""
    if random.random() < 0.3:
        return random.choice(_BYTES)
    return _filled(random, random.choice(_JSON)[2]).encode()


_BYTES = (b"", b" ", b"\0", b"null", b"[]", b"[" * 50_000, b'{"a":' * 5000, b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}",
          b'"\\ud800"', b'{"partitions": 2, "partitions": 3}', b'{"partitions": 2, "weights": [1, "\\ud800"]}',
          b'{"source": "a", "batch": 1, "counts": [], "hashes": [%s1]}' % (b"1," * 50_000))  # fmt: skip
_JSON = (
    ("PUT", "", '{"partitions": NUMBER}'),
    ("PUT", "", '{"partitions": 2, "parameters": {"factor": NUMBER}, "policy": "kip"}'),
    ("PUT", "", '{"partitions": 2, "parameters": {TEXT: TEXT}}'),
    ("PUT", "", '{"partitions": 2, "seed": NUMBER, "decay": NUMBER}'),
    ("PUT", "", '{"partitions": 2, "dsync_max_seconds": NUMBER, "key_types": [TEXT]}'),
    ("PUT", "", '{"partitions": 2, "key_types": ["TYPE", "TYPE"]}'),
    ("POST", "/explain", '{"key": [NUMBER, TEXT], "types": ["TYPE", "TYPE"]}'),
    ("POST", "/explain", '{"key": [TEXT], "types": [TEXT]}'),
    ("POST", "/explain", '{"key": ["1"], "types": ["TYPE"]}'),
    ("POST", "/explain", '{"key": [NUMBER], "types": ["TYPE"], "version": TEXT}'),
    ("POST", "/explain", '{"hash": NUMBER}'),
    ("POST", "/explain", '{"hash": TEXT}'),
    ("POST", "/plans", '{"batch": NUMBER, "fresh": true}'),
    ("POST", "/plans", '{"histogram": {"hashes": [TEXT], "counts": [NUMBER]}}'),
    ("POST", "/histograms", '{"source": "a", "batch": 1, "hashes": [NUMBER], "counts": [NUMBER]}'),
    ("POST", "/histograms", '{"source": TEXT, "batch": 1, "hashes": [TEXT], "counts": [1]}'),
    ("POST", "/plans", '{"histogram": {"hashes": [], "counts": [], "tail": {"rows": [NUMBER], "keys": [1]}}}'),
    ("POST", "/batches", '{"source": "a", "batch": NUMBER, "partitions": [{"partition": 1, "seconds": NUMBER}]}'),
    ("POST", "/batches", '{"source": "a", "batch": 1, "version": TEXT, "partitions": [{"partition": NUMBER}]}'),
    ("POST", "/sync", '{"report": {"agent": TEXT, "session": 1, "seq": 1, "dsync_seconds": NUMBER, "loads": []}}'),
)  # fmt: skip


def _filled(random: Random, text: str) -> str:
    for hole, values in _HOLES.items():
        while hole in text:
            text = text.replace(hole, random.choice(values), 1)
    return text


def _each_value(random: Random) -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
    """Each of these with each odd value in its first place, and mere bytes, once: chance would leave some out."""
    json_too, at = {"content-type": "application/json"}, f"/v1/streams/{random.choice(STREAMS)}"
    yield from ((method, at + rest, body, json_too) for method, rest in sorted(set(_TAKING)) for body in _BYTES)
    for method, rest, text in _JSON:
        hole = min((hole for hole in _HOLES if hole in text), key=text.index)
        for value in _HOLES[hole]:
            yield method, at + rest, _filled(random, text.replace(hole, value, 1)).encode(), json_too


_NUMBERS = ("1e999", "-0", "1" * 5000, "NaN", "Infinity", "1e-999", "1.0", "99999999999999999999", "1" + "0" * 400, "2")
_TYPES = ("int", "decimal(38,38)", "decimal(1,-5)", "date", "timestamp", "timestamp_ntz", "binary", "boolean", "void",
          "float", "tinyint", "varchar(99999999999)", "decimal(٣,١)", f"decimal({'9' * 5000},1)")  # fmt: skip
_HOLES = {"NUMBER": _NUMBERS, "TEXT": tuple(json.dumps(text) for text in TEXTS), "TYPE": _TYPES}
_TAKING = (("PUT", ""), ("POST", "/explain"), ("POST", "/plans"), ("POST", "/histograms"), ("POST", "/batches"),
           ("POST", "/sync"), ("PUT", ""), ("POST", "/explain"))  # fmt: skip


def _broken_off(target: Target, line: str, body: str) -> None:
    """A caller that goes away in the middle of its body: nobody is there to be answered, and the log has no error."""
    with socket.create_connection(("127.0.0.1", target.http), DEADLINE) as caller:
        head = f"{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        caller.sendall(f"{head}\r\ncontent-length: 9999\r\n\r\n{body}".encode())


def run_odd(target: Target, judge: Judge, cases: int, number: int) -> None:
    rest = Rest(target, judge)
    for request in _each_value(Random(number)):
        rest.take("", *request)
    for method, path, text in _JSON:
        _broken_off(target, f"{method} /v1/streams/{STREAMS[0]}{path}", text)
    each(st.integers(0, 2**64), cases, number, lambda drawn: rest.take("", *_odd_request(Random(drawn))))


def test_requests_that_no_document_speaks_of_are_refused_as_problems(target: Target) -> None:
    """Other methods, paths, kinds of content and bodies: 404, 405, 415 and 422 are problem documents too."""
    judge = Judge()
    for number in halves(target, judge):
        run_odd(target, judge, DOSES["odd"] // 2, number)
    assert judge.answered >= DOSES["odd"]
    for status in ("400", "404", "405", "413", "415", "422"):
        assert judge.codes[f" {status}"], f"nothing was answered {status}: {judge.codes}"


@pytest.mark.long
def test_five_times_as_many_fresh_requests(target: Target) -> None:
    """Other cases in each run; ``UNSKEW_FUZZ_SEED=<the seed that is shown>`` repeats one."""
    judge, start = Judge(), of_long()
    print(f"UNSKEW_FUZZ_SEED={start}")  # noqa: T201 - pytest shows it where the test fails
    for number in halves(target, judge, start):
        run_documented(target, judge, LONG_DOSES["documented"] // 2, number)
        run_bodies(target, judge, LONG_DOSES["bodies"] // 2, number)
        run_odd(target, judge, LONG_DOSES["odd"] // 2, number)
