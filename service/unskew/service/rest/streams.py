"""Streams over REST: put, get, list, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Request, Response

from unskew.service.api.calls import Calls, created_at, stream_to_message
from unskew.service.api.verbs import StreamInfo
from unskew.service.auth.access import audited_change
from unskew.service.rest import models
from unskew.service.rest.bodies import Bodies
from unskew.service.rest.middleware import STREAM, StreamName, who_asks
from unskew.service.rest.negotiation import answer
from unskew.service.rest.operations import Operations
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["StreamOperations", "stream_document"]


@dataclass(frozen=True)
class StreamOperations:
    calls: Calls
    bodies: Bodies

    def add_to(self, to: Operations) -> None:
        created = {201: {"description": "created", "model": models.Stream}}
        body = to.body(models.StreamSpec)
        to.add("PutStream", "PUT", STREAM, self.put, models.Stream, body=body, responses=created)
        to.add("GetStream", "GET", STREAM, self.get, models.Stream)
        to.add("ListStreams", "GET", "/v1/streams", self.list, models.StreamPage)
        to.add("DeleteStream", "DELETE", STREAM, self.delete, status=204)

    async def put(self, request: Request, stream: StreamName) -> Response:
        """Create a stream, or change one. The same again changes nothing."""
        who = who_asks(request)
        with audited_change(who, "PutStream", stream):  # a body that is refused is in the audit log too
            spec = (await self.bodies.json(request, models.StreamSpec)).message()
        info, created = await self.calls.put_stream_info(stream, spec, who)
        return answer(
            request,
            lambda: pb.PutStreamResponse(stream=stream_to_message(info), created=created),
            lambda: stream_document(info),
            201 if created else 200,
        )

    async def get(self, request: Request, stream: StreamName) -> Response:
        """A stream as it stands."""
        info = await self.calls.stream_info(stream, who_asks(request))
        return answer(
            request, lambda: pb.GetStreamResponse(stream=stream_to_message(info)), lambda: stream_document(info)
        )

    async def list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str, Query(max_length=200, description="streams after this name")] = "",
    ) -> Response:
        """The streams that the caller may read, by name."""
        infos, following = await self.calls.stream_infos(after, limit, who_asks(request))
        return answer(
            request,
            lambda: pb.ListStreamsResponse(streams=map(stream_to_message, infos), next=following),
            lambda: {"streams": [stream_document(info) for info in infos], "next": following},
        )

    async def delete(self, request: Request, stream: StreamName) -> Response:
        """Forget a stream: its plans, reports and rounds. Jobs go on with the plans they have."""
        await self.calls.delete_stream(pb.DeleteStreamRequest(stream=stream), who_asks(request))
        return Response(status_code=204)


def stream_document(info: StreamInfo) -> dict[str, Any]:
    """As ``models.Stream`` describes it."""
    spec = info.spec
    return {
        "name": info.name,
        "spec": {
            "partitions": spec.partitions,
            "policy": spec.policy,
            "parameters": spec.parameters,
            "weights": spec.weights,
            "seed": spec.seed,
            "key_types": spec.key_types,
            "history": spec.history,
            "decay": spec.decay,
            "dsync_seconds": spec.dsync,
            "dsync_min_seconds": spec.dsync_min,
            "dsync_max_seconds": spec.dsync_max,
        },
        "created": created_at(info).ToJsonString(),
        "version": None if info.version is None else str(info.version),
        "plan_digest": info.digest,
        "epoch": info.epoch,
        "agents": info.agents,
        "dsync_seconds": info.dsync,
    }
