"""Errors as problems (RFC 9457): those of a body's fields, the framework's own, and all others by ``Fault``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from unskew.service.api.problems import MEDIA_TYPE, Fault, FaultError
from unskew.service.app.settings import MAX_JSON_KEYS

__all__ = ["fault_of", "framework_problem", "invalid_body", "problem"]

_TOO_MANY = (
    f"more than {MAX_JSON_KEYS:,} keys are not taken as JSON, which costs more to read than to plan from; send "
    "content-type application/x-protobuf, or stream it over gRPC"
)


def problem(fault: Fault, headers: Any = None) -> Response:
    # By the standard library: the text may repeat what a caller sent, which need not be valid UTF-8.
    document = json.dumps(fault.problem(), ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(document, fault.status, {**fault.headers(), **(headers or {})}, MEDIA_TYPE)


def fault_of(why: Exception) -> Fault:
    if isinstance(why, RequestValidationError):  # of parameters: FastAPI reads no bodies here
        return _fields([{**error, "loc": error["loc"][1:]} for error in why.errors()])
    if isinstance(why, HTTPException):
        return _of_http(why)
    if isinstance(why, ClientDisconnect):
        return Fault("CANCELLED", "the caller went away before the whole body had come")
    return Fault.of(why)


def invalid_body(why: ValidationError) -> FaultError:
    """What is wrong with a JSON body, field by field."""
    errors = why.errors(include_url=False, include_input=False, include_context=False)
    kind, path, text = errors[0]["type"], errors[0]["loc"], errors[0]["msg"]
    if kind == "json_invalid":
        text = text.removeprefix("Invalid JSON: ")
        return FaultError(Fault("INVALID_ARGUMENT", f"the body is no JSON: {text}", (), 400))
    if kind == "too_long" and path[-1] == "hashes":
        return FaultError(Fault("RESOURCE_EXHAUSTED", _TOO_MANY, ((_field(path), _TOO_MANY),), 413))
    return FaultError(_fields(errors))


def _fields(errors: Iterable[Any]) -> Fault:
    fields = tuple((_field(error["loc"]) or "body", error["msg"].removeprefix("Value error, ")) for error in errors)
    text = "; ".join(": ".join(field) for field in fields[:3])
    more = f"; and {len(fields) - 3} more" if len(fields) > 3 else ""
    return Fault("INVALID_ARGUMENT", text + more, fields[:20])


def _field(path: Iterable[int | str]) -> str:
    """``a.b[0]``"""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


async def framework_problem(request: Request, why: Exception) -> Response:
    """The framework's own: no such path, no such method."""
    assert isinstance(why, HTTPException)
    if why.status_code != 405:
        return problem(_of_http(why), why.headers)
    routes = [route for route in request.app.routes if isinstance(route, APIRoute)]
    fitting = [route for route in routes if route.path_regex.match(request.scope["path"])]
    allowed = sorted({method for route in fitting for method in route.methods or ()})
    return problem(_of_http(why), {"allow": ", ".join(allowed)})


def _of_http(why: HTTPException) -> Fault:
    texts = {404: "there is nothing under this path", 405: "this path has no such method"}
    codes = {404: "NOT_FOUND", 405: "UNIMPLEMENTED", 413: "RESOURCE_EXHAUSTED"}
    code = codes.get(why.status_code, "INVALID_ARGUMENT")
    return Fault(code, texts.get(why.status_code, why.detail), (), why.status_code)
