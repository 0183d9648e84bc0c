"""The page of REST, from the service's own OpenAPI document, with the examples that are sent to it by a test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import grpc
from fastapi.routing import APIRoute

from tools.reference.examples import BODIES
from tools.reference.page import anchor, folded, number, paragraphs, prose, table
from unskew.service.api.budget import ByteBudget
from unskew.service.api.calls import Calls
from unskew.service.api.problems import Fault
from unskew.service.auth.access import Access
from unskew.service.auth.roles import ROLE_OF
from unskew.service.rest.app import RestApp

__all__ = ["face", "page"]

Json = Mapping[str, Any]
HEAD = """# REST

Port 8080. Bodies and answers are JSON; where the table of an operation says protobuf, the message of the gRPC
contract is taken with `content-type: application/x-protobuf`, and given with `accept: application/x-protobuf`. A
token goes into `authorization: Bearer <token>`. A `/` in a stream's name is written `%2F`. The service has this as a
document at `/openapi.json`; the messages are explained in [gRPC](grpc.md). `GET /healthz` and `GET /readyz` need no
credential.
"""
BIG = """Key hashes are 64 bits: a string or a number, signed or not; strings where a language has no whole numbers of
that size. Integers are below 2^63 where nothing else is said."""


async def _fine() -> str:
    return ""


def face() -> RestApp:
    """Of no service: it is only asked what it could answer."""
    verbs: Any = None
    return RestApp(Calls(verbs, Access()), Access(), _fine, ByteBudget(0, 0))


def page() -> str:
    rest = face()
    document = rest.openapi()
    routes = [route for route in rest.app.routes if isinstance(route, APIRoute)]
    names = {(_path(route), method.lower()): route.name for route in routes for method in route.methods}
    blocks = [paragraphs(HEAD), *_overview(document, names), BIG]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            blocks += _operation(method, path, operation, names[path, method])
    blocks += ["## Problems", _problems()]
    blocks.append("## Models")
    for name, schema in sorted(document["components"]["schemas"].items()):
        blocks += _model(name, schema)
    return "\n\n".join(blocks)


def _path(route: APIRoute) -> str:
    """As the document has it: without how a part of it is read."""
    return re.sub(r":\w+(?=})", "", route.path)


def _overview(document: Json, names: Mapping[tuple[str, str], str]) -> Iterator[str]:
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            title = _title(method, path)
            role = ROLE_OF[names[path, method]].name.lower()
            rows.append((f"[{title}]({anchor(title)})", role, operation["summary"]))
    yield table(("operation", "role", "what it does"), rows)


def _title(method: str, path: str) -> str:
    return f"{method.upper()} {path}"


def _operation(method: str, path: str, operation: Json, verb: str) -> Iterator[str]:
    yield f"## {_title(method, path)}"
    yield paragraphs(operation["description"])
    rows = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), _default(one), one.get("description", ""))
        for one in operation.get("parameters", ())
        if one["name"] != "stream"
    ]
    if rows:
        yield table(("parameter", "in", "type", "default", "meaning"), rows)
    if body := operation.get("requestBody"):
        needed = "" if body["required"] else ", may be left out"
        yield f"Body{needed}: {_content(body['content'])}."
        for example in BODIES.get((verb, method.upper()), ()):
            yield f"```json\n{folded(example)}\n```"
    told = [(code, answer) for code, answer in operation["responses"].items() if int(code) < 400]
    yield table(
        ("answer", "body", "meaning"), [(code, _content(one.get("content", {})), _about(one)) for code, one in told]
    )


def _about(answer: Json) -> str:
    said = answer.get("description", "")
    return "" if said == "Successful Response" else said


def _default(parameter: Json) -> str:
    schema = parameter["schema"]
    if parameter.get("required"):
        return "needed"
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") not in (None, "") else ""


def _content(content: Json) -> str:
    """The models of these media types."""
    found = []
    for kind, about in sorted(content.items()):
        said = about["schema"].get("description", "")
        what = "protobuf" + (f" ({said})" if said else "")
        found.append(what if kind.endswith("protobuf") else _type(about["schema"]))
    return " or ".join(found)


def _problems() -> str:
    rows = []
    for code in grpc.StatusCode:
        try:
            status = Fault(code.name, "").status
        except KeyError:
            continue
        if code is not grpc.StatusCode.CANCELLED:
            rows.append((str(status), HTTPStatus(status).phrase, f"`{code.name}`"))
    extra = [
        ("400", "a body that is not what its content type says", "`INVALID_ARGUMENT`"),
        ("413", "a body that is too large", "`RESOURCE_EXHAUSTED`"),
        ("415", "a content type that is not taken", "`INVALID_ARGUMENT`"),
    ]
    said = paragraphs(
        "What is refused is answered with a problem (RFC 9457), `application/problem+json`: the [Problem](#problem) "
        "below. `code` is the status that the same call over gRPC gets; `errors` names the fields that are to blame. "
        "After 429 and 503 the same request may be sent again, not before `retry-after`."
    )
    return f"{said}\n\n{table(('status', 'meaning', 'code'), sorted([*rows, *extra]))}"


# -- models ---------------------------------------------------------------------------------------------------


def _model(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}"
    if said := schema.get("description"):
        yield paragraphs(said)
    needed = set(schema.get("required", ()))
    rows = []
    for field, about in schema.get("properties", {}).items():
        default = "needed" if field in needed else json.dumps(about["default"]) if "default" in about else ""
        shown = default if default in ("needed", "") else f"`{default}`"
        rows.append((f"`{field}`", _type(about), "" if shown in ("`null`", '`""`') else shown, _said(about)))
    yield table(("field", "type", "default", "meaning"), rows)


def _said(about: Json) -> str:
    said = str(about.get("description", ""))
    examples = about.get("examples", ())
    return f"{said}: `{json.dumps(examples[0])}`" if said and examples else said


def _type(schema: Json) -> str:
    """In words: what it is, and what it may be."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({anchor(name)})"
    if "anyOf" in schema:
        kinds = [_type(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = schema.get("type", "any")
    if kind == "array":
        most = f", at most {number(schema['maxItems'])}" if "maxItems" in schema else ""
        return f"list of {_type(schema.get('items', {}))}{most}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return prose(f"{kind} {_range(schema)}")


def _range(schema: Json) -> str:
    low = _bound(schema, "minimum", "", "exclusiveMinimum", "above ")
    high = _bound(schema, "maximum", "", "exclusiveMaximum", "below ")
    if low and high:
        return f"{low} to {high}"
    if "maxLength" in schema:
        return f"of at most {number(schema['maxLength'])}"
    return f"from {low}" if low and not low.startswith("above") else low or high


def _bound(schema: Json, inner: str, word: str, outer: str, beyond: str) -> str:
    if inner in schema:
        return word + number(schema[inner])
    return beyond + number(schema[outer]) if outer in schema else ""
