"""REST as the fuzz speaks it: any request of the contract, as a body of protobuf or as a path and a query; and what an
answer must be, whatever was sent: documented, of the documented shape, and a problem document where it is none.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import requests
from google.protobuf.message import DecodeError, Message

from tests.fuzz.judge import Judge
from tests.fuzz.target import DEADLINE, Target
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["Rest", "fault_of_response", "written"]

PROTOBUF = "application/x-protobuf"
PROBLEM = "application/problem+json"
_BODIES = {"ReportHistogram": "histograms", "BuildPlan": "plans", "Sync": "sync", "ReportBatch": "batches"}
_ANSWERS: dict[str, type[Message]] = {
    "ReportHistogram": pb.ReportHistogramResponse,
    "BuildPlan": pb.BuildPlanResponse,
    "Sync": pb.SyncResponse,
    "ReportBatch": pb.ReportBatchResponse,
}
_FIELDS = {"type", "title", "status", "detail", "code", "errors"}


def fault_of_response(response: requests.Response) -> str:
    """What no answer may be, if it is that."""
    status, kind = response.status_code, response.headers.get("content-type", "")
    if status >= 500:
        return f"{status}: {response.text[:300]}"
    if status < 400:
        return ""
    if kind != PROBLEM:
        return f"{status} as {kind!r}, not {PROBLEM}: {response.text[:300]}"
    if response.request.method == "HEAD":
        return ""
    try:
        said: dict[str, Any] = response.json()
    except ValueError:
        return f"{status}: no JSON: {response.text[:300]}"
    if not {"type", "title", "status", "detail", "code"} <= set(said) <= _FIELDS or said["status"] != status:
        return f"{status}: no problem document: {response.text[:300]}"
    if len(response.content) > 20_000:
        return f"{status}: a problem of {len(response.content):,} bytes"
    if any(not one["field"] or not one["detail"] for one in said.get("errors", ())):
        return f"{status}: an error without a field: {response.text[:300]}"
    return ""


class Rest:
    """One connection, judged."""

    def __init__(self, target: Target, judge: Judge) -> None:
        self._target, self._judge = target, judge
        self._session = requests.Session()
        self._session.trust_env = False

    def send(self, verb: str, message: Message) -> None:
        self.take(verb, *written(verb, message))

    def take(self, verb: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        response = self._session.request(
            method, self._target.base + path, data=body, headers=headers, timeout=DEADLINE, allow_redirects=False
        )
        fault = fault_of_response(response) or _fault_of_body(verb, response)
        self._judge.took(verb, str(response.status_code), fault, (method, path, headers, (body or b"").hex()))


def _fault_of_body(verb: str, response: requests.Response) -> str:
    """A good answer is of the kind that it says it is."""
    if not 200 <= response.status_code < 300 or response.status_code == 204:
        return ""
    if response.headers["content-type"] == PROTOBUF and verb in _ANSWERS:
        try:
            _ANSWERS[verb].FromString(response.content)
        except DecodeError:
            return f"{response.status_code}: no {_ANSWERS[verb].DESCRIPTOR.name}"
    elif response.headers["content-type"] == "application/json":
        json.loads(response.content, parse_constant=_no_constant)
    return ""


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def written(verb: str, message: Any) -> tuple[str, str, bytes | None, dict[str, str]]:
    path = f"/v1/streams/{quote(getattr(message, 'stream', ''), safe='') or 'x'}"
    if verb in _BODIES:
        stream = message.stream
        message.stream = ""
        accept = PROTOBUF if len(stream) % 2 else "*/*"
        headers = {"content-type": PROTOBUF, "accept": accept}
        return "POST", f"{path}/{_BODIES[verb]}", message.SerializeToString(), headers
    if verb == "PutStream":
        return "PUT", path, json.dumps(_spec(message.spec)).encode(), {"content-type": "application/json"}
    if verb == "GetPlan":
        version = f"{message.version.incarnation}.{message.version.number}" if message.HasField("version") else "latest"
        return "GET", f"{path}/plans/{version}", None, {"if-none-match": _header(message.if_none_match)}
    if verb == "ListStreams":
        return "GET", "/v1/streams?" + urlencode({"limit": message.limit, "after": message.after}), None, {}
    if verb == "Explain":
        return "GET", f"{path}/explain?" + urlencode({"hash": message.hash}), None, {}
    if verb == "GetScale":
        return "GET", f"{path}/scale", None, {}
    return {"DeleteStream": "DELETE", "GetStream": "GET"}[verb], path, None, {}


def _header(text: str) -> str:
    return "".join(letter for letter in text if " " < letter < "\x7f")[:100]


def _spec(spec: pb.StreamSpec) -> dict[str, Any]:
    """As JSON, NaN and infinity with it: a sender that does not know better writes them so."""
    names = ("partitions", "policy", "seed", "history", "dsync_seconds", "dsync_min_seconds", "dsync_max_seconds")
    plain = {name: getattr(spec, name) for name in names if getattr(spec, name)}
    parameters = {name: value for name, value in spec.parameters.items() if isinstance(value, (int, float, str, bool))}
    return {**plain, "parameters": parameters, "weights": list(spec.weights), "key_types": list(spec.key_types)}
