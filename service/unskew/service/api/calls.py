"""Every verb as a call of gRPC or REST: a message and its sender in, a message out.

Only here the caller's role, names and sizes are checked, and changes are written to the audit log.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.timestamp_pb2 import Timestamp

from unskew.core.rounds.round_digests import SeenRound
from unskew.core.stream_spec import check_name
from unskew.service.api.problems import TooLargeError
from unskew.service.api.verbs import BuiltPlan, NameFilter, Overview, ScaleAnswer, StreamInfo, Summary, Synced, Verbs
from unskew.service.auth.access import Access, audited_change
from unskew.service.auth.credentials import Identity
from unskew.service.concurrency import in_thread
from unskew.service.errors import FieldError
from unskew.service.events.spans import note
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import ACTIONS, OUTCOMES, histograms, round_messages, streams
from unskew.wire.ways import choice_to_message

__all__ = ["Calls", "check_size", "created_at", "stream_to_message", "synced_in_bytes"]

_LARGE = 1 << 20  # bytes from which on decoding a message is worth a thread
_MOST_LISTED, _LISTED = 1000, 100
_LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Calls:
    """The verbs over messages. The limits apply to identities that have none of their own."""

    verbs: Verbs
    access: Access
    max_streams: int = 1000
    max_histogram_keys: int = 4_000_000
    max_histogram_bytes: int = 128 << 20

    def _allowed(self, who: Identity, verb: str, stream: str) -> str:
        check_name("stream", stream)
        note("stream", stream)
        self.access.require(who, verb, stream)
        return stream

    def _most_keys(self, who: Identity) -> int:
        return who.allowance.max_histogram_keys or self.max_histogram_keys

    # -- streams ----------------------------------------------------------------------------------------------

    async def put_stream(self, request: pb.PutStreamRequest, who: Identity) -> pb.PutStreamResponse:
        info, created = await self.put_stream_info(request.stream, request.spec, who)
        return pb.PutStreamResponse(stream=stream_to_message(info), created=created)

    async def put_stream_info(self, stream: str, message: pb.StreamSpec, who: Identity) -> tuple[StreamInfo, bool]:
        with audited_change(who, "PutStream", stream) as change:
            self._allowed(who, "PutStream", stream)
            spec = streams.spec_from_message(message)
            most = who.allowance.max_streams or self.max_streams
            info, created = await self.verbs.put_stream(stream, spec, who.name, most)
            change.outcome = "created" if created else "changed"
            change.more = {"policy": spec.policy, "partitions": spec.partitions}
        return info, created

    async def get_stream(self, request: pb.GetStreamRequest, who: Identity) -> pb.GetStreamResponse:
        return pb.GetStreamResponse(stream=stream_to_message(await self.stream_info(request.stream, who)))

    async def stream_info(self, stream: str, who: Identity) -> StreamInfo:
        return await self.verbs.get_stream(self._allowed(who, "GetStream", stream))

    async def list_streams(self, request: pb.ListStreamsRequest, who: Identity) -> pb.ListStreamsResponse:
        infos, following = await self.stream_infos(request.after, request.limit, who)
        return pb.ListStreamsResponse(streams=map(stream_to_message, infos), next=following)

    async def stream_infos(self, after: str, limit: int, who: Identity) -> tuple[Sequence[StreamInfo], str]:
        """Those that the caller may read, and the ``after`` that asks for more."""
        if limit > _MOST_LISTED:
            raise FieldError("limit", limit, f"1 to {_MOST_LISTED}, or 0 for {_LISTED}")
        self.access.require(who, "ListStreams")
        limit = limit or _LISTED
        infos = await self.verbs.list_streams(after, limit, _readable_by(who, "ListStreams"))
        return infos, infos[-1].name if len(infos) >= limit else ""

    async def delete_stream(self, request: pb.DeleteStreamRequest, who: Identity) -> pb.DeleteStreamResponse:
        with audited_change(who, "DeleteStream", request.stream) as change:
            await self.verbs.delete_stream(self._allowed(who, "DeleteStream", request.stream))
            change.outcome = "deleted"
        return pb.DeleteStreamResponse()

    # -- for the page: over REST only -------------------------------------------------------------------------

    async def get_overview(self, stream: str, who: Identity) -> Overview:
        return await self.verbs.overview(self._allowed(who, "GetOverview", stream))

    async def list_overviews(self, after: str, limit: int, who: Identity) -> tuple[Sequence[Summary], str]:
        """Those that the caller may read, and the ``after`` that asks for more."""
        summaries = await self.verbs.summaries(after, limit, _readable_by(who, "ListOverviews"))
        return summaries, summaries[-1].info.name if len(summaries) >= limit else ""

    # -- histograms and plans ---------------------------------------------------------------------------------

    async def report_histogram(
        self, chunks: AsyncIterator[pb.ReportHistogramRequest], who: Identity
    ) -> pb.ReportHistogramResponse:
        """The role is checked at the first chunk: without it the others are not read."""
        assembler = histograms.Assembler(self._most_keys(who), self.max_histogram_bytes)
        size = 0
        async for chunk in chunks:
            if not assembler.stream:
                self._allowed(who, "ReportHistogram", chunk.stream)
            chunk_size = len(chunk.hashes)  # a copy each time
            size += chunk_size
            await in_thread(partial(assembler.add, chunk), chunk_size, _LARGE)
        stream, part, histogram = await in_thread(assembler.finish, size, _LARGE)
        repeated = await self.verbs.report_histogram(stream, part, histogram)
        return pb.ReportHistogramResponse(rows=histogram.total, keys=len(histogram.hashes), repeated_report=repeated)

    async def build_plan(self, request: pb.BuildPlanRequest, who: Identity) -> tuple[pb.BuildPlanResponse, BuiltPlan]:
        """The answer, and the same in values: REST puts the version into a header."""
        stream = self._allowed(who, "BuildPlan", request.stream)
        histogram = None
        if request.HasField("histogram"):
            decode = partial(histograms.histogram_from_message, request.histogram, max_keys=self._most_keys(who))
            histogram = await in_thread(decode, len(request.histogram.hashes), _LARGE)
        batch = request.batch if request.HasField("batch") else None
        built = await self.verbs.build_plan(stream, batch, fresh=request.fresh, histogram=histogram)
        response = pb.BuildPlanResponse(
            plan=built.plan,
            digest=built.digest,
            outcome=OUTCOMES[built.outcome],
            reason=built.reason,
            advice=None if built.advice is None else choice_to_message(built.advice),
            stale=built.stale,
        )
        return response, built

    async def get_plan(self, request: pb.GetPlanRequest, who: Identity) -> pb.GetPlanResponse:
        stream = self._allowed(who, "GetPlan", request.stream)
        version = streams.version_from_message(request.version) if request.HasField("version") else None
        plan = await self.verbs.get_plan(stream, version, request.if_none_match)
        return pb.GetPlanResponse(plan=plan.plan, digest=plan.digest, not_modified=plan.not_modified, stale=plan.stale)

    def watch_plans(self, request: pb.WatchPlansRequest, who: Identity) -> AsyncIterator[pb.WatchPlansResponse]:
        stream = self._allowed(who, "WatchPlans", request.stream)
        return self._plans(stream, request.if_none_match)

    async def _plans(self, stream: str, if_none_match: str) -> AsyncIterator[pb.WatchPlansResponse]:
        async for plan in self.verbs.watch_plans(stream, if_none_match):
            yield pb.WatchPlansResponse(plan=plan.plan, digest=plan.digest)

    # -- learning ---------------------------------------------------------------------------------------------

    async def sync(self, request: pb.SyncRequest, who: Identity, left: float | None = None) -> Synced:
        """``left``: seconds until the caller gives up; before that it gets the answer "not yet". The transport encodes
        the result (``synced_in_bytes``, ``rest.documents``): the table for all agents of a round is encoded once."""
        stream = self._allowed(who, "Sync", request.stream)
        wait = request.wait_seconds
        if not 0.0 <= wait <= _LONGEST_WAIT:
            raise FieldError("wait_seconds", wait, f"0 to {_LONGEST_WAIT:g}")
        table = request.report.table
        size = len(table.hashes) * table.workers if table.workers else 0  # of its values, or they are refused
        report, data = await in_thread(partial(round_messages.report_as_sent, request.report), size, _LARGE)
        seen = SeenRound(request.incarnation, request.epoch, request.digest)
        if left is not None:
            wait = min(wait, max(0.0, 0.9 * left - 0.05))
        synced = await self.verbs.sync(stream, report, wait, seen, data)
        if synced.answer is not None:
            note("round", synced.answer.epoch)
        return synced

    # -- batches, parallelism, explanations -------------------------------------------------------------------

    async def report_batch(self, request: pb.ReportBatchRequest, who: Identity) -> pb.ReportBatchResponse:
        stream = self._allowed(who, "ReportBatch", request.stream)
        part, work = streams.part_from_message(request.part), streams.work_from_message(request)
        return pb.ReportBatchResponse(repeated_report=await self.verbs.report_batch(stream, part, work))

    async def get_scale(self, request: pb.GetScaleRequest, who: Identity) -> pb.GetScaleResponse:
        scale = await self.scale(request.stream, who)
        return pb.GetScaleResponse(
            map_tasks=scale.map_tasks,
            reduce_tasks=scale.reduce_tasks,
            action=ACTIONS[scale.action],
            zone=scale.zone,
            reason=scale.reason,
        )

    async def scale(self, stream: str, who: Identity) -> ScaleAnswer:
        """The advice in values, for KEDA (``grpc.keda``), as the two below."""
        return await self.verbs.get_scale(self._allowed(who, "GetScale", stream))

    def watch_scale(self, stream: str, who: Identity) -> AsyncIterator[ScaleAnswer]:
        return self.verbs.watch_scale(self._allowed(who, "GetScale", stream))

    def may_scale(self, stream: str, who: Identity) -> None:
        self._allowed(who, "GetScale", stream)

    async def explain(self, request: pb.ExplainRequest, who: Identity) -> pb.ExplainResponse:
        """By the latest version, if none is given: the answer says which that was."""
        stream = self._allowed(who, "Explain", request.stream)
        version = streams.version_from_message(request.version) if request.HasField("version") else None
        explanation = await self.verbs.explain(stream, request.hash, version)
        version = explanation.version or version
        places = zip(explanation.partitions, explanation.shares, strict=True)
        fragments = [pb.KeyFragment(partition=partition, share=share) for partition, share in places]
        return pb.ExplainResponse(
            version=None if version is None else streams.version_to_message(version),
            hot=explanation.kind != "tail",
            rows=explanation.rows or 0,
            share=explanation.share_of_rows or 0.0,
            fragments=fragments,
            reason=explanation.reason,
        )


def synced_in_bytes(synced: Synced) -> bytes:
    """The bytes of a ``SyncResponse``."""
    if synced.answer is None:
        return b""
    return round_messages.answer_to_response(synced.answer, synced.incarnation, synced.merged, synced.age)


def check_size(who: Identity, size: int) -> None:
    """Refuse a message that is larger than this caller may send; what all may send is checked by the transport."""
    most = who.allowance.max_message_bytes
    if most is not None and size > most:
        raise TooLargeError(f"the message has {size:,} bytes, {who.name} may send {most:,}; send less, or in chunks")


def _readable_by(who: Identity, verb: str) -> NameFilter | None:
    """None where the caller may read all. Streams of others are not even looked at, and their names are not shown."""
    return None if who.may_everywhere(verb) else partial(who.may, verb)


def stream_to_message(info: StreamInfo) -> pb.Stream:
    return pb.Stream(
        name=info.name,
        spec=streams.spec_to_message(info.spec),
        created=created_at(info),
        version=None if info.version is None else streams.version_to_message(info.version),
        plan_digest=info.digest,
        epoch=info.epoch,
        agents=info.agents,
        dsync_seconds=info.dsync,
    )


def created_at(info: StreamInfo) -> Timestamp:
    created = Timestamp()
    created.FromNanoseconds(math.floor(info.created * 1e6) * 1000)
    return created
