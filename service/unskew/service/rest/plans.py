"""Histograms and plans over REST. A plan that is asked for in protobuf is the bytes of its ``PlanFile``, to be kept.

Many callers ask for a plan that seldom changes, so its JSON is kept here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import numpy as np
from fastapi import Path, Request, Response
from google.protobuf.message import Message
from numpy.typing import NDArray

from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.service.api.calls import Calls
from unskew.service.concurrency import SingleFlight
from unskew.service.rest import models
from unskew.service.rest.bodies import Bodies
from unskew.service.rest.encoder import Encoded, decimals, encode_with
from unskew.service.rest.middleware import STREAM, CheckedStreamName, StreamName, who_asks
from unskew.service.rest.negotiation import JSON, PROTOBUF, answer, entity_tags, json_answer, wants_protobuf
from unskew.service.rest.operations import BYTES, Operations
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import plan_from_bytes

__all__ = ["PlanOperations", "hot_keys", "plan_facts"]

M = TypeVar("M", bound=Message)
_MOST_KEPT = 32 << 20  # bytes of plans and of their JSON
_FOREVER = "max-age=31536000, immutable"
_STALE = {"x-unskew-stale": "true", "cache-control": "no-store"}
_RESPONSES: dict[int, dict[str, Any]] = {
    200: {
        "description": "the plan; as application/x-protobuf the bytes of an unskew.v1.PlanFile. "
        "`x-unskew-stale: true` where the store could not be asked: then it is the last one known",
        "content": {PROTOBUF: {"schema": BYTES}},
        "headers": {"etag": {"schema": {"type": "string"}, "description": "the plan's digest"}},
    },
    304: {"description": "the caller has it"},
}


class EncodedPlans:
    """The JSON of plans by their bytes: of those that were asked for last, as many as fit."""

    def __init__(self) -> None:
        self._size = 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._encoding: SingleFlight[bytes] = SingleFlight()

    async def of(self, plan: bytes) -> bytes:
        document = self._kept.get(plan)
        if document is None:
            return await self._encoding.once(plan, lambda: self._encode(plan))
        self._kept.move_to_end(plan)
        return document

    async def _encode(self, plan: bytes) -> bytes:
        document = await encode_with(lambda data: plan_document(plan_from_bytes(data)), plan, len(plan))
        self._kept[plan] = document
        self._size += len(plan) + len(document)
        while self._size > _MOST_KEPT:
            oldest, dropped = self._kept.popitem(last=False)
            self._size -= len(oldest) + len(dropped)
        return document


@dataclass(frozen=True)
class PlanOperations:
    calls: Calls
    bodies: Bodies
    encoded: EncodedPlans = field(default_factory=EncodedPlans)

    def add_to(self, to: Operations) -> None:
        body = to.body(models.ReportHistogram, "unskew.v1.ReportHistogramRequest")
        path = f"{STREAM}/histograms"
        to.add("ReportHistogram", "POST", path, self.report, models.ReportedHistogram, body=body)
        body = to.body(models.BuildPlan, "unskew.v1.BuildPlanRequest", required=False)
        path = f"{STREAM}/plans"
        to.add("BuildPlan", "POST", path, self.build, models.Built, body=body)
        plan: dict[str, Any] = {"answer": models.PlanDocument, "responses": _RESPONSES}
        to.add("GetPlan", "GET", f"{path}/latest", self.latest, operation_id="GetLatestPlan", **plan)
        to.add("GetPlan", "GET", f"{path}/{{version}}", self.by_version, **plan)

    async def report(self, request: Request, stream: StreamName) -> Response:
        """The key counts of one part of one batch. The last report of a part (highest run) is the one that counts."""
        message = await self.bodies.message(request, stream, pb.ReportHistogramRequest, models.ReportHistogram)
        report = await self.calls.report_histogram(_only(message), who_asks(request))
        return answer(
            request,
            lambda: report,
            lambda: {"rows": report.rows, "keys": report.keys, "repeated_report": report.repeated_report},
        )

    async def build(self, request: Request, stream: StreamName) -> Response:
        """A plan from what was reported for a batch, from the batches before it, or from the histogram given here."""
        message = await self.bodies.message(request, stream, pb.BuildPlanRequest, models.BuildPlan, empty=True)
        response, built = await self.calls.build_plan(message, who_asks(request))
        headers = {"location": f"/v1/streams/{quote(stream, safe='')}/plans/{built.version}"}
        if built.stale:
            headers |= _STALE
        if wants_protobuf(request):
            return Response(response.SerializeToString(), media_type=PROTOBUF, headers=headers)
        document = {
            "version": str(built.version),
            "digest": built.digest,
            "outcome": built.outcome,
            "reason": built.reason,
            "advice": built.advice,
            "stale": built.stale,
            "plan": Encoded(await self.encoded.of(built.plan)),
        }
        return json_answer(document, headers=headers)

    async def latest(self, request: Request, stream: StreamName) -> Response:
        """The latest plan. With If-None-Match: 304 while it is the one that the caller has."""
        return await self._plan(request, pb.GetPlanRequest(stream=stream), "no-cache")

    async def by_version(
        self,
        request: Request,
        stream: CheckedStreamName,
        version: Annotated[str, Path(max_length=50, description="incarnation.number")],
    ) -> Response:
        """A plan by version: it never changes."""
        message = pb.GetPlanRequest(stream=stream, version=models.version_of(version))
        return await self._plan(request, message, _FOREVER)

    async def _plan(self, request: Request, message: pb.GetPlanRequest, cache: str) -> Response:
        tags = entity_tags(request)
        message.if_none_match = next(iter(tags)) if len(tags) == 1 and "*" not in tags else ""
        response = await self.calls.get_plan(message, who_asks(request))
        headers = _plan_headers(response, cache)
        if response.not_modified or not tags.isdisjoint((response.digest, "*")):
            return Response(status_code=304, headers=headers)
        if wants_protobuf(request):
            return Response(response.plan, media_type=PROTOBUF, headers=headers)
        return Response(await self.encoded.of(response.plan), media_type=JSON, headers=headers)


def _plan_headers(response: pb.GetPlanResponse, cache: str) -> Mapping[str, str]:
    headers = {"etag": f'W/"{response.digest}"', "vary": "accept, authorization", "cache-control": f"private, {cache}"}
    if response.stale:
        headers |= _STALE
    return headers


async def _only(message: M) -> AsyncIterator[M]:
    yield message


def plan_document(plan: Plan) -> dict[str, Any]:
    """As ``models.PlanDocument`` describes it."""
    info = plan.info
    hot = [
        {"hash": key, **_route(plan, home), "rows": rows, "reason": reason}
        for key, home, rows, reason in hot_keys(plan, slice(None))
    ]
    return {
        "stream": info.stream,
        **plan_facts(info, plan.digest),
        "loads": info.loads,
        "partitions": plan.partitions,
        "key_types": plan.key_types,
        "hot": hot,
        "tail": plan.tail,
    }


def plan_facts(info: PlanInfo, digest: str) -> dict[str, Any]:
    """The fields that a plan has alike in its own document and on the page."""
    return {
        "version": str(info.version),
        "digest": digest,
        "policy": info.policy,
        "reason": info.reason,
        "batch": info.batch,
        "previous": None if info.previous is None else str(info.previous),
        "moved_rows": info.moved_rows,
        "moved_keys": info.moved_keys,
        "rows": info.rows,
        "keys": info.keys,
    }


def hot_keys(plan: Plan, at: slice | NDArray[np.intp]) -> Iterator[tuple[str, int, int, str]]:
    """The hot keys at these places: hash, home (below 0: split), rows, reason."""
    hot = plan.hot
    reasons = (hot.reasons[number] for number in hot.reason[at].tolist())
    return zip(decimals(hot.hashes[at]), hot.home[at].tolist(), hot.rows[at].tolist(), reasons, strict=True)


def _route(plan: Plan, home: int) -> dict[str, Any]:
    if home >= 0:
        return {"partition": home, "split": None}
    slots, key = plan.hot.slots, SPLIT - home
    at = slice(int(slots.offset[key]), int(slots.offset[key + 1]))
    cut = decimals(slots.cut[at])
    split = {"bits": int(slots.bits[key]), "first": slots.first[at], "second": slots.second[at], "cut": cut}
    return {"partition": None, "split": split}
