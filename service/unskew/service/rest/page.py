"""The web page at ``/``: its files, and the two documents that it draws (``overview``).

The files hold no data, so anybody may read them; the page asks for a token where the documents need one. Their address
has the digest of all files, so that a browser may keep them for ever. A file under another digest is asked for by the
page of another release: it is served as it is here, and not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from starlette.exceptions import HTTPException

from unskew.service.api.calls import Calls
from unskew.service.rest.encoder import encode
from unskew.service.rest.middleware import STREAM, StreamName, who_asks
from unskew.service.rest.negotiation import JSON, caller_has
from unskew.service.rest.operations import Operations
from unskew.service.rest.overview import OverviewPage, Overviews, StreamOverview, summaries_document

__all__ = ["PageOperations"]

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
_FOREVER, _CHECK = "public, max-age=31536000, immutable", "no-cache"
_RESPONSES: dict[int, dict[str, Any]] = {
    200: {"headers": {"etag": {"schema": {"type": "string"}, "description": "of this answer"}}},
    304: {"description": "the caller has it"},
}


def _read() -> tuple[str, Mapping[str, bytes]]:
    """The digest of all files, and the files by name; the page itself names the others under that digest."""
    folder = files("unskew.service").joinpath("web")
    read = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS}
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in sorted(read.items()))).hexdigest()[:16]
    read["index.html"] = read["index.html"].replace(b"{web}", f"web/{digest}".encode())
    return digest, read


class PageOperations:
    def __init__(self, calls: Calls) -> None:
        self._calls, self._overviews = calls, Overviews()
        self._digest, self._files = _read()

    def add_files_to(self, api: FastAPI) -> None:
        plain: dict[str, Any] = {"methods": ["GET", "HEAD"], "include_in_schema": False}
        api.add_api_route("/", self._index, name="Page", **plain)
        api.add_api_route("/web/{digest}/{name}", self._file, name="PageFile", **plain)

    def add_to(self, to: Operations) -> None:
        plain: dict[str, Any] = {"responses": _RESPONSES, "protobuf": False}
        to.add("GetOverview", "GET", f"{STREAM}/overview", self.overview, StreamOverview, **plain)
        to.add("ListOverviews", "GET", "/v1/overview", self.list, OverviewPage, **plain)

    async def _index(self, request: Request) -> Response:
        return self._answer_file(request, "index.html", _CHECK)

    async def _file(self, request: Request, digest: str, name: str) -> Response:
        if name not in self._files or name == "index.html":
            raise HTTPException(404)
        return self._answer_file(request, name, _FOREVER if digest == self._digest else _CHECK)

    def _answer_file(self, request: Request, name: str, cache: str) -> Response:
        return _answer(request, self._files[name], _KINDS[name.rpartition(".")[2]], cache, _HEADERS)

    async def overview(self, request: Request, stream: StreamName) -> Response:
        """A stream as it stands and as it went: what the web page shows."""
        overview = await self._calls.get_overview(stream, who_asks(request))
        return _document(request, await self._overviews.of(overview))

    async def list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=200)] = 100,
        after: Annotated[str, Query(max_length=200, description="streams after this name")] = "",
    ) -> Response:
        """The streams that the caller may read, by name, with their imbalance."""
        summaries, following = await self._calls.list_overviews(after, limit, who_asks(request))
        return _document(request, summaries_document(summaries, following))


def _document(request: Request, document: Mapping[str, Any]) -> Response:
    return _answer(request, encode(document), JSON, "private, no-cache", {"vary": "authorization"})


def _answer(request: Request, data: bytes, kind: str, cache: str, headers: Mapping[str, str]) -> Response:
    tag = hashlib.blake2b(data, digest_size=16).hexdigest()
    headers = {**headers, "etag": f'"{tag}"', "cache-control": cache}
    if caller_has(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)
