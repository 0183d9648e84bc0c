"""Headers: which content type comes in and goes out, and what of an answer the caller has already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response
from google.protobuf.message import Message

from unskew.service.api.problems import BodyError
from unskew.service.rest.encoder import encode

__all__ = [
    "JSON", "PROTOBUF", "answer", "caller_has", "content_type", "entity_tags", "header", "json_answer",
    "wants_protobuf", "wrong_media_type",
]  # fmt: skip

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def header(request: Request, name: bytes) -> str:
    """The first of this name; empty if there is none. Without ``Headers``, which encodes and compares all each time."""
    for key, value in request.scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return ""


def wants_protobuf(request: Request) -> bool:
    accept = header(request, b"accept")
    if PROTOBUF not in accept.lower():
        return False
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    return PROTOBUF in kinds and JSON not in kinds


def content_type(request: Request) -> str:
    encoding = header(request, b"content-encoding")
    if encoding and encoding.lower() != "identity":
        raise wrong_media_type(f"content-encoding {encoding[:40]}")
    return header(request, b"content-type").partition(";")[0].strip().lower()


def wrong_media_type(kind: str) -> BodyError:
    wrong = BodyError(f"{kind!r} is not taken; send content-type {JSON} or, for large bodies, {PROTOBUF}")
    wrong.http = 415
    return wrong


def entity_tags(request: Request) -> set[str]:
    """The entity tags of If-None-Match, weak ones too."""
    tags = header(request, b"if-none-match").split(",")
    return {tag.strip().removeprefix("W/").strip('"') for tag in tags} - {""}


def caller_has(request: Request, tag: str) -> bool:
    return not entity_tags(request).isdisjoint((tag, "*"))


def answer(
    request: Request, message: Callable[[], Message], document: Callable[[], Mapping[str, Any]], status: int = 200
) -> Response:
    """The message or the JSON document, whichever the caller accepts; the other is not made."""
    if wants_protobuf(request):
        return Response(message().SerializeToString(), status, media_type=PROTOBUF)
    return json_answer(document(), status)


def json_answer(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(document), status, headers, JSON)
