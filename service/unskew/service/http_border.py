"""The border of the REST face: who asks, what a body may be, and every error as a problem.

Routes look at the credential before anything is read, and tell how long a call took and how it ended.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from google.protobuf.message import Message
from pydantic import BaseModel, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from unskew.service.access import ROLE_OF, Access, Identity
from unskew.service.problems import MEDIA_TYPE, BodyError, Fault, FaultError, TooLargeError
from unskew.service.settings import MAX_JSON_KEYS

__all__ = [
    "JSON",
    "PROTOBUF",
    "Edge",
    "Observe",
    "answered",
    "content_type",
    "entity_tags",
    "framework_problem",
    "guarded_routes",
    "json_response",
    "only",
    "problem",
    "read_body",
    "refused",
    "wants_protobuf",
    "who_asks",
    "wrong_media_type",
]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
Observe = Callable[[str, str, float], None]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
M = TypeVar("M", bound=Message)
_TOO_MANY = (
    f"more than {MAX_JSON_KEYS:,} keys are not taken as JSON, which costs more to read than to plan from; send "
    f"content-type {PROTOBUF}, or stream it over gRPC"
)


class _StreamName(Convertor[str]):
    """One segment of the path, in which ``%2F`` is still a part of the name."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("unskew_name", _StreamName())


def guarded_routes(access: Access, observe: Observe) -> type[APIRoute]:
    """Routes that look at who asks before anything is read, tell how long it took, and turn errors into problems."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Handler:
            inner, verb = super().get_route_handler(), self.name

            async def handler(request: Request) -> Response:
                started = perf_counter()
                status = 499  # if the caller goes away
                try:
                    if verb in ROLE_OF:
                        _admit(access, request, verb)
                    response = await inner(request)
                    status = response.status_code
                except Exception as why:  # noqa: BLE001 - the border: every error becomes a problem
                    response = problem(_fault(why))
                    status = response.status_code
                finally:
                    observe(verb, str(status), perf_counter() - started)
                return response

            return handler

    return Guarded


def _admit(access: Access, request: Request, verb: str) -> None:
    who = access.identify(request.headers.get("authorization"), request.scope.get("state", {}).get("sans", ()))
    access.require(who, verb, request.path_params.get("stream"))
    request.scope["unskew.who"] = who


def who_asks(request: Request) -> Identity:
    who: Identity = request.scope["unskew.who"]
    return who


def _fault(why: Exception) -> Fault:
    if isinstance(why, RequestValidationError):
        return _fields([{**error, "loc": error["loc"][1:]} for error in why.errors()])
    if isinstance(why, HTTPException):
        return _of_http(why)
    return Fault.of(why)


def refused(why: ValidationError) -> FaultError:
    """What is wrong with a body, field by field."""
    errors = why.errors(include_url=False, include_input=False, include_context=False)
    kind, path, said = errors[0]["type"], errors[0]["loc"], errors[0]["msg"]
    if kind == "json_invalid":
        said = said.removeprefix("Invalid JSON: ")
        return FaultError(Fault("INVALID_ARGUMENT", f"the body is no JSON: {said}", (), 400))
    if kind == "too_long" and path[-1] == "hashes":
        return FaultError(Fault("RESOURCE_EXHAUSTED", _TOO_MANY, ((_where(path), _TOO_MANY),), 413))
    return FaultError(_fields(errors))


def _fields(errors: Iterable[Any]) -> Fault:
    found = tuple((_where(error["loc"]) or "body", error["msg"].removeprefix("Value error, ")) for error in errors)
    shown = "; ".join(": ".join(one) for one in found[:3])
    return Fault("INVALID_ARGUMENT", shown if len(found) <= 3 else f"{shown}; and {len(found) - 3} more", found[:20])


def _where(path: Iterable[int | str]) -> str:
    """``a.b[0]``"""
    found = ""
    for part in path:
        found += f"[{part}]" if isinstance(part, int) else f".{part}" if found else part
    return found


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
    said = {404: "there is nothing under this path", 405: "this path has no such method"}
    codes = {404: "NOT_FOUND", 405: "UNIMPLEMENTED", 413: "RESOURCE_EXHAUSTED"}
    return Fault(
        codes.get(why.status_code, "INVALID_ARGUMENT"), said.get(why.status_code, why.detail), (), why.status_code
    )


def problem(fault: Fault, headers: Any = None) -> Response:
    return json_response(fault.problem(), fault.status, {**fault.headers(), **(headers or {})}, MEDIA_TYPE)


def json_response(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None, kind: str = JSON
) -> Response:
    return Response(json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace"), status, headers, kind)


def answered(request: Request, message: Message, model: Any, status: int = 200) -> Response:
    if wants_protobuf(request):
        return Response(message.SerializeToString(), status, media_type=PROTOBUF)
    document: BaseModel = model if isinstance(model, BaseModel) else model()
    return Response(document.model_dump_json(), status, media_type=JSON)


def wants_protobuf(request: Request) -> bool:
    accepted = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
    return PROTOBUF in accepted and JSON not in accepted


def content_type(request: Request) -> str:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise wrong_media_type(f"content-encoding {request.headers['content-encoding'][:40]}")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_media_type(kind: str) -> BodyError:
    wrong = BodyError(f"{kind!r} is not taken; send content-type {JSON} or, for large bodies, {PROTOBUF}")
    wrong.http = 415
    return wrong


def entity_tags(header: str) -> set[str]:
    """The entity tags of If-None-Match, weak ones too."""
    return {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")} - {""}


async def read_body(request: Request, most: int, what: str) -> bytes:
    too_large = TooLargeError(f"the body has more than {most:,} bytes, the most that is taken as {what}")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > most:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


async def only(message: M) -> AsyncIterator[M]:
    yield message


class Edge:
    """Before the routes: keeps ``%2F`` in the path. After them: closes connections while the service drains."""

    def __init__(self, app: ASGIApp, lame: Callable[[], bool]) -> None:
        self._app, self._lame = app, lame

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw = scope.get("raw_path") or b""
        if b"%" in raw:
            parts = raw.decode("latin-1").partition("?")[0].split("/")
            scope["path"] = "/".join(unquote(part).replace("%", "%25").replace("/", "%2F") for part in parts)

        async def closing(message: Any) -> None:
            if message["type"] == "http.response.start" and self._lame():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, closing)
