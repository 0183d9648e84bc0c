"""The web page at ``/``: files of this package, and the two documents that it is drawn from (``overview``).

The files hold no data, so they are open to all; the page asks for a token where the documents need one. They may come
from any replica of any release: under the digest of all of them, so that a browser keeps them for good; under another
digest, which is that of another release, they are served as they are here and not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from starlette.exceptions import HTTPException

from unskew.service.api.calls import Calls
from unskew.service.rest.overview import OverviewPage, Overviews, StreamOverview, etag_of, summaries_page
from unskew.service.rest.routing import JSON, entity_tags, who_asks

__all__ = ["Page"]

_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_OWN, _OTHERS = "public, max-age=31536000, immutable", "no-cache"
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"headers": {"etag": {"schema": {"type": "string"}, "description": "of this answer"}}},
    304: {"description": "the caller has it"},
}
_STREAM = "/v1/streams/{stream:unskew_name}/overview"
Stream = Annotated[str, Path(pattern="^[A-Za-z0-9._:/-]{1,200}$", description="the stream's name; `/` as `%2F`")]
Add = Callable[..., None]


@dataclass(frozen=True)
class _File:
    data: bytes
    kind: str


def _read() -> tuple[str, Mapping[str, _File]]:
    """The files by name, and the digest of all; the page itself names the others under that."""
    folder = files("unskew.service").joinpath("web")
    read = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS}
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in sorted(read.items()))).hexdigest()[:16]
    read["index.html"] = read["index.html"].replace(b"{web}", f"web/{digest}".encode())
    return digest, {name: _File(data, _KINDS[name.rpartition(".")[2]]) for name, data in read.items()}


class Page:
    """Adds its routes to the REST application: ``add`` is how verbs are added there."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._overviews = calls, Overviews()
        self._digest, self._files = _read()

    def add_to(self, api: FastAPI, add: Add) -> None:
        plain: dict[str, Any] = {"methods": ["GET", "HEAD"], "include_in_schema": False}
        api.add_api_route("/", self._index, name="Page", **plain)
        api.add_api_route("/web/{digest}/{name}", self._file, name="PageFile", **plain)
        shown: dict[str, Any] = {"responses": _ANSWERS, "protobuf": False}
        add(api, "GetOverview", "GET", _STREAM, self._overview, response_model=StreamOverview, **shown)
        add(api, "ListOverviews", "GET", "/v1/overview", self._list, response_model=OverviewPage, **shown)

    # -- files

    async def _index(self, request: Request) -> Response:
        return _answer(request, self._files["index.html"].data, self._files["index.html"].kind, _OTHERS, _HEADERS)

    async def _file(self, request: Request, digest: str, name: str) -> Response:
        file = self._files.get(name)
        if file is None or name == "index.html":
            raise HTTPException(404)
        return _answer(request, file.data, file.kind, _OWN if digest == self._digest else _OTHERS, _HEADERS)

    # -- documents

    async def _overview(self, request: Request, stream: Stream) -> Response:
        """A stream as it stands and as it went: what the web page shows."""
        message, found = await self._calls.get_overview(stream, who_asks(request))
        return _document(request, await self._overviews.of(message, found))

    async def _list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=200)] = 100,
        after: Annotated[str, Query(max_length=200, description="streams after this name")] = "",
    ) -> Response:
        """The streams that the caller may read, by name, with their imbalance."""
        return _document(request, summaries_page(*await self._calls.list_overviews(after, limit, who_asks(request))))


def _document(request: Request, page: bytes) -> Response:
    return _answer(request, page, JSON, "private, no-cache", {"vary": "authorization"})


def _answer(request: Request, data: bytes, kind: str, cache: str, more: Mapping[str, str]) -> Response:
    tag = etag_of(data)
    headers = {**more, "etag": f'"{tag}"', "cache-control": cache}
    known = entity_tags(request.headers.get("if-none-match", ""))
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)
