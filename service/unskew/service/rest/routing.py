"""The border of the REST face: who asks, what a body may be, and every error as a problem.

Routes look at the credential before anything is read, and tell how long a call took and how it ended.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from google.protobuf.message import Message
from pydantic import BaseModel, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from unskew.service.api.problems import MEDIA_TYPE, BodyError, Fault, FaultError, TooLargeError
from unskew.service.app.settings import MAX_JSON_KEYS
from unskew.service.auth.access import ROLE_OF, Access, Identity
from unskew.service.events.spans import called

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

_STREAMS = "/v1/streams/"
_ONE_STREAM = f"{_STREAMS}{{stream:"
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
        direct: Handler | None = None  # what ``Edge`` may call by itself

        def get_route_handler(self) -> Handler:
            itself, verb, path = _reading_itself(self.endpoint), self.name, self.path_format
            inner = itself or super().get_route_handler()

            async def handler(request: Request) -> Response:
                started = perf_counter()
                called(verb, path)
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

            self.direct = handler if itself is not None else None
            return handler

    return Guarded


def _reading_itself(endpoint: Any) -> Handler | None:
    """The handler of an endpoint that takes the request and the stream's name, and reads all else itself: there is
    nothing that FastAPI could do for it. What the name may be is judged where all faces have it judged (``calls``)."""
    if inspect.signature(endpoint).parameters.keys() - {"stream"} != {"request"}:
        return None

    async def handler(request: Request) -> Response:
        found: Response = await endpoint(request, **request.path_params)
        return found

    return handler


def _admit(access: Access, request: Request, verb: str) -> None:
    who = access.identify(_header(request, b"authorization") or None, request.scope.get("state", {}).get("sans", ()))
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
    if isinstance(why, ClientDisconnect):
        return Fault("CANCELLED", "the caller went away before the whole body had come")
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
    header = _header(request, b"accept")
    if PROTOBUF not in header.lower():
        return False
    accepted = [kind.partition(";")[0].strip().lower() for kind in header.split(",")]
    return PROTOBUF in accepted and JSON not in accepted


def content_type(request: Request) -> str:
    encoding = _header(request, b"content-encoding")
    if encoding and encoding.lower() != "identity":
        raise wrong_media_type(f"content-encoding {encoding[:40]}")
    return _header(request, b"content-type").partition(";")[0].strip().lower()


def _header(request: Request, name: bytes) -> str:
    """The first of this name; empty if there is none. Without ``Headers``, which encodes and compares all each time."""
    for key, value in request.scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return ""


def wrong_media_type(kind: str) -> BodyError:
    wrong = BodyError(f"{kind!r} is not taken; send content-type {JSON} or, for large bodies, {PROTOBUF}")
    wrong.http = 415
    return wrong


def entity_tags(header: str) -> set[str]:
    """The entity tags of If-None-Match, weak ones too."""
    return {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")} - {""}


async def read_body(request: Request, most: int, what: str) -> bytes:
    too_large = TooLargeError(f"the body has more than {most:,} bytes, the most that is taken as {what}")
    length = _header(request, b"content-length")
    if length.isdecimal() and int(length) > most:
        raise too_large
    pieces, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        size += len(message.get("body", b""))
        if size > most:
            raise too_large
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def only(message: M) -> AsyncIterator[M]:
    yield message


def _short_cuts(app: FastAPI) -> dict[tuple[str, str], Handler]:
    """By method, and by path after the stream's name."""
    found: dict[tuple[str, str], Handler] = {}
    for route in app.routes:
        handler = getattr(route, "direct", None)
        if handler is not None and isinstance(route, APIRoute) and route.path.startswith(_ONE_STREAM):
            after = route.path.removeprefix(_ONE_STREAM).partition("}")[2]
            if "{" not in after:
                found.update(((method, after), handler) for method in route.methods or ())
    return found


class Edge:
    """Before the routes: keeps ``%2F`` in the path. After them: closes connections while the service drains.

    A route that reads its request itself and turns its own errors into problems gains nothing on the way through the
    framework's layers, which take longer than most calls do: it is found here in one step. Every other path, and what
    is no path, is the framework's.
    """

    def __init__(self, app: FastAPI, lame: Callable[[], bool]) -> None:
        self._app, self._lame = app, lame
        self._short_cuts = _short_cuts(app)

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

        handler = self._short_cut(scope)
        if handler is None:
            await self._app(scope, receive, closing)
        else:
            response = await handler(Request(scope, receive, closing))
            await response(scope, receive, closing)

    def _short_cut(self, scope: Scope) -> Handler | None:
        path: str = scope["path"]
        if not path.startswith(_STREAMS):
            return None
        name, slash, after = path.removeprefix(_STREAMS).partition("/")
        handler = self._short_cuts.get((scope["method"], slash + after)) if name else None
        if handler is not None:
            scope["path_params"] = {"stream": unquote(name)}
        return handler
