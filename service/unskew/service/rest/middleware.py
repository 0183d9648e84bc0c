"""What every request passes on FastAPI's router: who asks, how long it took, errors as problems, ``%2F`` in a name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import WithJsonSchema
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unskew.service.api.admission import Admission, network_of
from unskew.service.api.budget import ByteBudget, Reservation
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import Identity
from unskew.service.auth.roles import ROLE_OF
from unskew.service.events.spans import called
from unskew.service.rest.cross_site import CrossSiteRules
from unskew.service.rest.negotiation import header
from unskew.service.rest.refusals import fault_of, problem

__all__ = [
    "STREAM",
    "CheckedStreamName",
    "Observe",
    "RestMiddleware",
    "StreamName",
    "guarded_routes",
    "reservation_of",
    "who_asks",
]

Observe = Callable[[str, str, float], None]
_RESERVATION = "unskew.reservation"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

STREAM = "/v1/streams/{stream:unskew_name}"
_PATTERN, _ABOUT = "^[A-Za-z0-9._:/-]{1,200}$", "the stream's name; `/` as `%2F`"
# The pattern is for the document only: ``Calls`` judges names, for REST and gRPC in the same words.
StreamName = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": _PATTERN, "description": _ABOUT}), Path(description=_ABOUT)
]
# Where FastAPI reads other parameters too it judges the name with them, and names all that are wrong at once.
CheckedStreamName = Annotated[str, Path(pattern=_PATTERN, description=_ABOUT)]


class _OneSegment(Convertor[str]):
    """One segment of the path, in which ``%2F`` is still a part of the name."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("unskew_name", _OneSegment())


def guarded_routes(access: Access, admission: Admission, budget: ByteBudget, observe: Observe) -> type[APIRoute]:
    """Routes that check the credential before they read, give back what the body held, report how a call went, and turn
    errors into problems."""

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            inner = _plain_handler(self.endpoint) or super().get_route_handler()
            verb, path = self.name, self.path_format

            async def handler(request: Request) -> Response:
                started = perf_counter()
                called(verb, path)
                status = 499  # if the caller goes away
                try:
                    if verb in ROLE_OF:
                        _admit(access, admission, request, verb)
                        who = who_asks(request)
                        most = who.allowance.max_identity_bytes_in_flight
                        request.scope[_RESERVATION] = Reservation(budget, who.name, most)
                    response = await inner(request)
                    status = response.status_code
                except Exception as why:  # noqa: BLE001 - every error becomes a problem
                    await admission.before_refusal(why, _name_of(request), partial(_address, request))
                    response = problem(fault_of(why))
                    status = response.status_code
                finally:
                    if (reservation := request.scope.get(_RESERVATION)) is not None:
                        reservation.resize(0)
                    observe(verb, str(status), perf_counter() - started)
                return response

            return handler

    return GuardedRoute


def _plain_handler(endpoint: Callable[..., Awaitable[Response]]) -> Handler | None:
    """Of an endpoint that takes only the request and the stream's name: FastAPI's checks would cost 25 us a call."""
    if inspect.signature(endpoint).parameters.keys() - {"stream"} != {"request"}:
        return None

    async def handler(request: Request) -> Response:
        return await endpoint(request, **request.path_params)

    return handler


def _admit(access: Access, admission: Admission, request: Request, verb: str) -> None:
    who = access.identify(header(request, b"authorization") or None, request.scope.get("state", {}).get("sans", ()))
    request.scope["unskew.who"] = who
    admission.admit(who)
    access.require(who, verb, request.path_params.get("stream"))


def _name_of(request: Request) -> str:
    who: Identity | None = request.scope.get("unskew.who")
    return "" if who is None else who.name


def _address(request: Request) -> str:
    return network_of(request.client.host if request.client else "")


def who_asks(request: Request) -> Identity:
    who: Identity = request.scope["unskew.who"]
    return who


def reservation_of(request: Request) -> Reservation:
    reservation: Reservation = request.scope[_RESERVATION]
    return reservation


@dataclass(frozen=True)
class RestMiddleware:
    """Before the router: keeps ``%2F`` in the path, refuses what another site may have sent, and closes connections
    while the service drains."""

    app: ASGIApp
    draining: Callable[[], bool]
    cross_site: CrossSiteRules | None = None
    rejected: Callable[[str], None] = lambda _reason: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self.cross_site and self.cross_site.refusal(scope["method"], scope["headers"])
        if refusal:
            self.rejected("cross site")
            await problem(refusal)(scope, receive, send)
            return
        raw = scope.get("raw_path") or b""
        if b"%" in raw:
            parts = raw.decode("latin-1").partition("?")[0].split("/")
            scope["path"] = "/".join(unquote(part).replace("%", "%25").replace("/", "%2F") for part in parts)

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self.draining():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self.app(scope, receive, closing)
