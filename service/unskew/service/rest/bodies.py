"""Bodies of requests: read within their limits, as JSON by a model or as protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from unskew.service.api.problems import BodyError, TooLargeError
from unskew.service.concurrency import in_thread
from unskew.service.errors import FieldError
from unskew.service.rest.middleware import reservation_of, who_asks
from unskew.service.rest.negotiation import JSON, PROTOBUF, content_type, header, wrong_media_type
from unskew.service.rest.refusals import invalid_body

__all__ = ["Bodies"]

M = TypeVar("M", bound=Message)
B = TypeVar("B", bound=BaseModel)
_LARGE = 1 << 18  # bytes of a body from which on reading it is worth a thread
_PATIENCE = 5.0  # seconds to wait for room for a body
_JSON_WEIGHT = 8  # memory of what JSON is read into, to its text: numbers of a few digits as objects of Python


@dataclass(frozen=True)
class Bodies:
    """Reads bodies of at most so many bytes, or fewer where the caller may send fewer."""

    max_protobuf_bytes: int
    max_json_bytes: int

    async def message(
        self, request: Request, stream: str, kind: type[M], model: type[Any], *, empty: bool = False
    ) -> M:
        """The request's message for this stream, from protobuf or JSON. ``empty``: it may be left out."""
        if content_type(request) != PROTOBUF:
            from_json: M = (await self.json(request, model, empty=empty)).message(stream)
            return from_json
        message = await self._protobuf(request, kind)
        named = getattr(message, "stream", "")
        if named and named != stream:
            raise FieldError("stream", named, f"{stream!r}, as the path says, or leave it out")
        message.stream = stream  # type: ignore[attr-defined]  # every request has it
        return message

    async def _protobuf(self, request: Request, kind: type[M]) -> M:
        message = kind()
        data = await _read(request, _most(request, self.max_protobuf_bytes), "protobuf")
        try:
            await in_thread(partial(message.ParseFromString, data), len(data), _LARGE)
        except DecodeError:
            raise BodyError(f"the body is no {kind.DESCRIPTOR.full_name}") from None
        return message

    async def json(self, request: Request, model: type[B], *, empty: bool = False, most: int = 0) -> B:
        """``most``: bytes that this operation takes, where that is less than all take."""
        if (kind := content_type(request)) not in (JSON, ""):
            raise wrong_media_type(kind)
        most = min(most or self.max_json_bytes, self.max_json_bytes)
        data = await _read(request, _most(request, most), "JSON", _JSON_WEIGHT)
        if empty and not data.strip():
            data = b"{}"
        try:
            return await in_thread(partial(model.model_validate_json, data), len(data), _LARGE)
        except ValidationError as why:
            raise invalid_body(why) from None


def _most(request: Request, most: int) -> int:
    return min(most, who_asks(request).allowance.max_message_bytes or most)


async def _read(request: Request, most: int, what: str, weight: int = 1) -> bytes:
    """Its bytes count ``weight`` times as bytes in flight; before they come, where the request says how many."""
    too_large = TooLargeError(f"the body has more than {most:,} bytes, the most that is taken as {what}")
    length = header(request, b"content-length")
    if length.isdecimal() and int(length) > most:
        raise too_large
    reservation = reservation_of(request)
    await reservation.wait(weight * (int(length) if length.isdecimal() else 0), _PATIENCE)
    pieces, size, more = [], 0, True
    while more:
        event = await request.receive()
        if event["type"] != "http.request":
            raise ClientDisconnect
        size += len(event.get("body", b""))
        if size > most:
            raise too_large
        reservation.resize(max(reservation.size, weight * size))
        pieces.append(event.get("body", b""))
        more = event.get("more_body", False)
    return b"".join(pieces)
