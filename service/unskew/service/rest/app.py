"""The verbs over REST: the paths of DESIGN section 6, JSON or protobuf by content type, problems by RFC 9457.

A path names the stream, with ``/`` in its name written ``%2F``. JSON has the messages of the gRPC contract unpacked
(``models``); ``application/x-protobuf`` has the messages themselves, in the body and, by ``Accept``, in the answer. A
plan asked for so comes as the bytes of its ``PlanFile``, fit to be kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Path, Query, Request, Response
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from unskew.core.version import __version__
from unskew.service.api.calls import Calls, synced_in_bytes
from unskew.service.api.problems import MEDIA_TYPE, BodyError, Fault
from unskew.service.auth.access import Access, changing
from unskew.service.errors import FieldError
from unskew.service.rest import models
from unskew.service.rest.documents import AnswerPages, PlanPages, typed_hash
from unskew.service.rest.page import Page
from unskew.service.rest.routing import (
    JSON,
    PROTOBUF,
    Edge,
    Observe,
    answered,
    content_type,
    entity_tags,
    framework_problem,
    guarded_routes,
    json_response,
    only,
    problem,
    read_body,
    refused,
    wants_protobuf,
    who_asks,
    wrong_media_type,
)
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["RestApp"]

M = TypeVar("M", bound=Message)
B = TypeVar("B", bound=BaseModel)
_BESIDE = 1 << 18  # bytes of a body from which on reading it is worth a thread

_STREAM = "/v1/streams/{stream:unskew_name}"
Stream = Annotated[str, Path(pattern="^[A-Za-z0-9._:/-]{1,200}$", description="the stream's name; `/` as `%2F`")]


@dataclass(eq=False)
class RestApp:
    """``app`` is the ASGI application. ``store_trouble`` says why the store cannot be asked, or nothing."""

    calls: Calls
    access: Access
    store_trouble: Callable[[], Awaitable[str]]
    observe: Observe = lambda _method, _code, _seconds: None
    max_body_bytes: int = 64 << 20
    max_json_bytes: int = 8 << 20
    lame: bool = False

    def __post_init__(self) -> None:
        self._pages, self._answers = PlanPages(), AnswerPages()
        self.api = self._api()
        self.app: ASGIApp = Edge(self.api, lambda: self.lame)

    def _api(self) -> FastAPI:
        api = FastAPI(
            title="unskew",
            version=__version__,
            description="Where keys should go: report how often each key hash came, get a plan, route by it.",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        api.router.route_class = guarded_routes(self.access, self.observe)
        api.add_exception_handler(HTTPException, framework_problem)
        self._add_streams(api)
        self._add_plans(api)
        self._add_learning(api)
        Page(self.calls).add_to(api, self._add)
        self._add_health(api)
        return api

    def _add(self, api: FastAPI, verb: str, method: str, path: str, handler: Any, **more: Any) -> None:
        named = more.pop("operation_id", verb)
        codes = (400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503)
        answers: dict[int | str, dict[str, Any]] = {
            code: {"description": "a problem", "content": {MEDIA_TYPE: {"schema": _ref(models.Problem)}}}
            for code in codes
        }
        if more.pop("protobuf", True) and "response_model" in more:
            answers[200] = {"content": {PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}}
        for code, said in more.pop("responses", {}).items():
            answers[code] = {**answers.get(200, {}), **said} if code in (200, 201) else said
        api.add_api_route(
            path,
            handler,
            methods=[method],
            name=verb,
            summary=(handler.__doc__ or verb).partition(".")[0].strip(),
            operation_id=named,
            responses=answers,
            **more,
        )

    # -- streams ----------------------------------------------------------------------------------------------

    def _add_streams(self, api: FastAPI) -> None:
        made = {201: {"description": "created", "model": models.Stream}}
        body = _body(models.StreamSpec)
        self._add(api, "PutStream", "PUT", _STREAM, self._put, response_model=models.Stream, responses=made, **body)
        self._add(api, "GetStream", "GET", _STREAM, self._get, response_model=models.Stream)
        self._add(api, "ListStreams", "GET", "/v1/streams", self._list, response_model=models.StreamPage)
        self._add(api, "DeleteStream", "DELETE", _STREAM, self._delete, status_code=204)

    async def _put(self, request: Request, stream: Stream) -> Response:
        """Create a stream, or change one. The same again changes nothing."""
        with changing(who_asks(request), "PutStream", stream):  # a body that is refused is in the audit log too
            spec = (await self._json(request, models.StreamSpec)).message()
        found = await self.calls.put_stream(pb.PutStreamRequest(stream=stream, spec=spec), who_asks(request))
        return answered(request, found, models.Stream.of(found.stream), 201 if found.created else 200)

    async def _get(self, request: Request, stream: Stream) -> Response:
        """A stream as it stands."""
        found = await self.calls.get_stream(pb.GetStreamRequest(stream=stream), who_asks(request))
        return answered(request, found, models.Stream.of(found.stream))

    async def _list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str, Query(max_length=200, description="streams after this name")] = "",
    ) -> Response:
        """The streams that the caller may read, by name."""
        found = await self.calls.list_streams(pb.ListStreamsRequest(limit=limit, after=after), who_asks(request))
        page = models.StreamPage(streams=[models.Stream.of(one) for one in found.streams], next=found.next)
        return answered(request, found, page)

    async def _delete(self, request: Request, stream: Stream) -> Response:
        """Forget a stream: its plans, reports and rounds. Jobs go on with the plans they have."""
        await self.calls.delete_stream(pb.DeleteStreamRequest(stream=stream), who_asks(request))
        return Response(status_code=204)

    # -- histograms and plans ---------------------------------------------------------------------------------

    def _add_plans(self, api: FastAPI) -> None:
        plan: dict[str, Any] = {"response_model": models.PlanDocument, "responses": _PLAN_ANSWERS}
        reported = models.ReportedHistogram
        body = _body(models.ReportHistogram, "unskew.v1.ReportHistogramRequest")
        path = f"{_STREAM}/histograms"
        self._add(api, "ReportHistogram", "POST", path, self._histogram, response_model=reported, **body)
        body = _body(models.BuildPlan, "unskew.v1.BuildPlanRequest", required=False)
        self._add(api, "BuildPlan", "POST", f"{_STREAM}/plans", self._build, response_model=models.Built, **body)
        self._add(api, "GetPlan", "GET", f"{_STREAM}/plans/latest", self._latest, operation_id="GetLatestPlan", **plan)
        self._add(api, "GetPlan", "GET", f"{_STREAM}/plans/{{version}}", self._version, **plan)

    async def _histogram(self, request: Request, stream: Stream) -> Response:
        """The key counts of one part of one batch. The last report of a part (highest run) is the one that counts."""
        message = await self._message(request, stream, pb.ReportHistogramRequest, models.ReportHistogram)
        found = await self.calls.report_histogram(only(message), who_asks(request))
        return answered(request, found, models.ReportedHistogram.of(found))

    async def _build(self, request: Request, stream: Stream) -> Response:
        """A plan from what was reported for a batch, from the batches before it, or from the histogram given here."""
        message = await self._message(request, stream, pb.BuildPlanRequest, models.BuildPlan, empty=True)
        found, built = await self.calls.build_plan(message, who_asks(request))
        headers = {"location": f"/v1/streams/{quote(stream, safe='')}/plans/{built.version}"}
        if wants_protobuf(request):
            return Response(found.SerializeToString(), media_type=PROTOBUF, headers=headers)
        head = models.Built.model_construct(
            version=str(built.version), digest=built.digest, outcome=built.outcome, reason=built.reason
        ).model_dump_json(exclude={"plan"})
        page = await self._pages.of(built.plan)
        return Response(head[:-1].encode() + b',"plan":' + page + b"}", media_type=JSON, headers=headers)

    async def _latest(self, request: Request, stream: Stream) -> Response:
        """The latest plan. With If-None-Match: 304 while it is the one that the caller has."""
        return await self._plan(request, pb.GetPlanRequest(stream=stream), "no-cache")

    async def _version(
        self,
        request: Request,
        stream: Stream,
        version: Annotated[str, Path(max_length=50, description="incarnation.number")],
    ) -> Response:
        """A plan by version: it never changes."""
        wanted = pb.GetPlanRequest(stream=stream, version=models.version_of(version))
        return await self._plan(request, wanted, "max-age=31536000, immutable")

    async def _plan(self, request: Request, wanted: pb.GetPlanRequest, cache: str) -> Response:
        known = entity_tags(request.headers.get("if-none-match", ""))
        wanted.if_none_match = next(iter(known)) if len(known) == 1 and "*" not in known else ""
        found = await self.calls.get_plan(wanted, who_asks(request))
        headers = {"etag": f'W/"{found.digest}"', "vary": "accept, authorization", "cache-control": f"private, {cache}"}
        if found.stale:
            headers |= {"x-unskew-stale": "true", "cache-control": "no-store"}
        if found.not_modified or found.digest in known or "*" in known:
            return Response(status_code=304, headers=headers)
        if wants_protobuf(request):
            return Response(found.plan, media_type=PROTOBUF, headers=headers)
        return Response(await self._pages.of(found.plan), media_type=JSON, headers=headers)

    # -- learning, batches, parallelism, explanations ---------------------------------------------------------

    def _add_learning(self, api: FastAPI) -> None:
        body = _body(models.SyncRequest, "unskew.v1.SyncRequest")
        self._add(api, "Sync", "POST", f"{_STREAM}/sync", self._sync, response_model=models.SyncResponse, **body)
        body = _body(models.ReportBatch, "unskew.v1.ReportBatchRequest")
        path = f"{_STREAM}/batches"
        self._add(api, "ReportBatch", "POST", path, self._batch, response_model=models.Reported, **body)
        self._add(api, "GetScale", "GET", f"{_STREAM}/scale", self._scale, response_model=models.Scale)
        path, found = f"{_STREAM}/explain", models.Explanation
        self._add(api, "Explain", "GET", path, self._explain_hash, response_model=found, operation_id="ExplainHash")
        self._add(api, "Explain", "POST", path, self._explain, response_model=found, **_body(models.Explain))

    async def _sync(self, request: Request, stream: Stream) -> Response:
        """One agent's part in a round of cooperative learning. Repeat it with the same report until it is answered."""
        message = await self._message(request, stream, pb.SyncRequest, models.SyncRequest)
        found = await self.calls.sync(message, who_asks(request))
        if wants_protobuf(request):
            return Response(synced_in_bytes(found), media_type=PROTOBUF)
        return Response(await self._answers.of(found), media_type=JSON)

    async def _batch(self, request: Request, stream: Stream) -> Response:
        """What a finished batch took: feeds the cost model, the signals of busy and idle, the advice on parallelism."""
        message = await self._message(request, stream, pb.ReportBatchRequest, models.ReportBatch)
        found = await self.calls.report_batch(message, who_asks(request))
        return answered(request, found, models.Reported(repeated_report=found.repeated_report))

    async def _scale(self, request: Request, stream: Stream) -> Response:
        """How many map and reduce tasks the next batch should have, and why."""
        found = await self.calls.get_scale(pb.GetScaleRequest(stream=stream), who_asks(request))
        return answered(request, found, models.Scale.of(found))

    async def _explain_hash(
        self,
        request: Request,
        stream: Stream,
        hash: Annotated[str, Query(max_length=20, description="64 bits: decimal, signed or not, or 0x...")],  # noqa: A002 - the parameter's name in the URL
        version: Annotated[str, Query(max_length=50, description="incarnation.number; left out: the latest")] = "",
    ) -> Response:
        """Where the key with this hash goes under a plan, and why."""
        try:
            key = models.hash_of(hash)
        except ValueError as why:
            raise FieldError("hash", hash, str(why)) from None
        return await self._explained(request, stream, key, version)

    async def _explain(self, request: Request, stream: Stream) -> Response:
        """The same for a key by its values; they stay out of access logs so."""
        asked = await self._json(request, models.Explain)
        if (asked.key is None) == (asked.hash is None):
            raise FieldError("key", "both or none", "either a key or a hash")
        key = asked.hash
        if key is None:
            types = asked.types or await self._key_types(request, stream)
            key = typed_hash(asked.key or (), types)
        return await self._explained(request, stream, key, asked.version or "")

    async def _key_types(self, request: Request, stream: str) -> list[str]:
        found = await self.calls.get_stream(pb.GetStreamRequest(stream=stream), who_asks(request))
        if not found.stream.spec.key_types:
            raise FieldError("types", [], "Spark's type of each key column: the stream does not say them")
        return list(found.stream.spec.key_types)

    async def _explained(self, request: Request, stream: str, key: int, version: str) -> Response:
        wanted = pb.ExplainRequest(stream=stream, hash=key, version=models.version_of(version) if version else None)
        found = await self.calls.explain(wanted, who_asks(request))
        return answered(request, found, models.Explanation.of(key, found))

    # -- health and the document ------------------------------------------------------------------------------

    def _add_health(self, api: FastAPI) -> None:
        api.add_api_route("/healthz", self._live, methods=["GET"], name="Live", include_in_schema=False)
        api.add_api_route("/readyz", self._ready, methods=["GET"], name="Ready", include_in_schema=False)
        api.add_api_route("/openapi.json", self._document, methods=["GET"], name="Describe", include_in_schema=False)

    async def _live(self) -> Response:
        return Response('{"status":"live"}', media_type=JSON)

    async def _ready(self) -> Response:
        trouble = "the service is draining" if self.lame else await self.store_trouble()
        if trouble:
            return problem(Fault("UNAVAILABLE", trouble))
        return Response('{"status":"ready"}', media_type=JSON)

    async def _document(self) -> Response:
        return json_response(self.openapi())

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, with the models of the bodies that are read here and not by FastAPI."""
        document = self.api.openapi()
        inputs: list[Any] = [(model, "validation") for model in (*_BODIES, models.Problem)]
        _, extra = models_json_schema(inputs, ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in extra["$defs"].items():
            schemas.setdefault(name, schema)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}] if not self.access.open else []
        return _plain_names(document)

    # -- bodies -----------------------------------------------------------------------------------------------

    async def _message(
        self, request: Request, stream: str, kind: type[M], model: type[Any], *, empty: bool = False
    ) -> M:
        """The request's message for this stream, from protobuf or JSON."""
        if content_type(request) != PROTOBUF:
            made: M = (await self._json(request, model, empty=empty)).message(stream)
            return made
        message = kind()
        data = await read_body(request, _most(request, self.max_body_bytes), "protobuf")
        try:
            if len(data) < _BESIDE:
                message.ParseFromString(data)
            else:
                await asyncio.to_thread(message.ParseFromString, data)
        except DecodeError:
            raise BodyError(f"the body is no {kind.DESCRIPTOR.full_name}") from None
        named = getattr(message, "stream", "")
        if named and named != stream:
            raise FieldError("stream", named, f"{stream!r}, as the path says, or leave it out")
        message.stream = stream  # type: ignore[attr-defined]  # every request has it
        return message

    async def _json(self, request: Request, model: type[B], *, empty: bool = False) -> B:
        if (kind := content_type(request)) not in (JSON, ""):
            raise wrong_media_type(kind)
        data = await read_body(request, _most(request, self.max_json_bytes), "JSON")
        if empty and not data.strip():
            data = b"{}"
        try:
            if len(data) < _BESIDE:
                return model.model_validate_json(data)
            return await asyncio.to_thread(model.model_validate_json, data)
        except ValidationError as why:
            raise refused(why) from None


_BODIES: list[type[BaseModel]] = []
_PLAN_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the plan; as application/x-protobuf the bytes of an unskew.v1.PlanFile. "
        "`x-unskew-stale: true` where the store could not be asked: then it is the last one known",
        "content": {PROTOBUF: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"etag": {"schema": {"type": "string"}, "description": "the plan's digest"}},
    },
    304: {"description": "the caller has it"},
}


def _most(request: Request, most: int) -> int:
    """Bytes of a body: of everybody, or less where the caller may send less."""
    return min(most, who_asks(request).allowance.max_message_bytes or most)


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _body(model: type[BaseModel], message: str = "", *, required: bool = True) -> dict[str, Any]:
    """The documentation of a body: JSON by its model, and protobuf where that is taken."""
    if model not in _BODIES:
        _BODIES.append(model)
    content: dict[str, Any] = {JSON: {"schema": _ref(model)}}
    if message:
        content[PROTOBUF] = {"schema": {"type": "string", "format": "binary", "description": f"an {message}"}}
    return {"openapi_extra": {"requestBody": {"content": content, "required": required}}}


def _plain_names(document: dict[str, Any]) -> dict[str, Any]:
    """Without FastAPI's own error models, which are never sent."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for path in list(document["paths"]):
        document["paths"][path.replace(":unskew_name", "")] = document["paths"].pop(path)
    return document
