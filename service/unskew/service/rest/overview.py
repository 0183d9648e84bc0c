"""A stream as the web page shows it, in one document: what stands, plain hashing beside it, and how it went over time.

Of a plan with more hot keys than can be looked at the heaviest are in it, and of a key in many places the largest
parts; how many there are is said. The rest is in the plan itself and in ``explain``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.plan import Plan, Version
from unskew.core.plan.slots import UNITS_BITS
from unskew.service.api.verbs import Overview, Summary
from unskew.service.engine.base import LruCache
from unskew.service.events.history import BatchNote, Expected, Imbalance, Observed, PlanNote, RoundNote, imbalance_of
from unskew.service.rest.json_arrays import Hash
from unskew.service.rest.models import Fragment, Model, Share, Stream, VersionText
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["OverviewPage", "Overviews", "StreamOverview", "etag_of", "summaries_page"]

_HOT, _FRAGMENTS = 500, 16
_PLANS = 64  # whose documents are kept


class HotKeyOverview(Model):
    """A key with a route of its own, its share of all rows, and its largest fragments of ``places``."""

    hash: Hash
    rows: int
    share: Share
    places: int
    fragments: list[Fragment]
    reason: str


class PlanOverview(Model):
    """The latest plan. ``hot`` has the heaviest of its ``hot_keys``."""

    version: VersionText
    digest: str
    policy: str
    reason: str
    batch: int | None
    previous: VersionText | None
    moved_rows: Share
    moved_keys: Share
    rows: int
    keys: int
    partitions: int
    loads: list[int] = Field(description="predicted rows per partition")
    imbalance: Imbalance
    hot_keys: int
    hot: list[HotKeyOverview]


class StreamOverview(Model):
    """A stream as it stands, and the last of what happened to it. ``expected`` is of the plan; null where it is not
    known, because the store has lost it."""

    stream: Stream
    plan: PlanOverview | None
    expected: Expected | None
    observed: Observed | None
    plans: list[PlanNote]
    batches: list[BatchNote]
    rounds: list[RoundNote]


class StreamSummary(Model):
    """A stream in a list: its imbalance as planned, by plain hashing, and as last observed."""

    stream: Stream
    planned: Imbalance
    by_hash: Imbalance
    observed: Imbalance


class OverviewPage(Model):
    """Streams by name; ``next`` is what to ask ``after``, empty at the end."""

    streams: list[StreamSummary]
    next: str


class Overviews:
    """Documents as JSON. The part that is the plan's is made once for each version."""

    def __init__(self) -> None:
        self._plans: LruCache[tuple[str, Version, str], bytes] = LruCache(_PLANS)

    async def of(self, stream: pb.Stream, found: Overview) -> bytes:
        plan = b"null" if found.plan is None else await self._plan(stream.name, found.plan)
        rest = StreamOverview.model_construct(
            stream=Stream.of(stream),
            expected=found.expected,
            observed=found.observed,
            plans=list(found.plans),
            batches=each_once(found.batches),
            rounds=list(found.rounds),
        )
        return rest.model_dump_json(exclude={"plan"})[:-1].encode() + b',"plan":' + plan + b"}"

    async def _plan(self, stream: str, plan: Plan) -> bytes:
        key = stream, plan.version, plan.digest
        had = self._plans.find(key)
        return had if had is not None else self._plans.put(key, await asyncio.to_thread(_plan_page, plan))


def _plan_page(plan: Plan) -> bytes:
    info, hot = plan.info, plan.hot
    heaviest = np.argsort(-hot.rows, kind="stable")[:_HOT].tolist()
    return (
        PlanOverview.model_construct(
            version=str(info.version),
            digest=plan.digest,
            policy=info.policy,
            reason=info.reason,
            batch=info.batch,
            previous=None if info.previous is None else str(info.previous),
            moved_rows=info.moved_rows,
            moved_keys=info.moved_keys,
            rows=info.rows,
            keys=info.keys,
            partitions=plan.partitions,
            loads=list(info.loads),
            imbalance=imbalance_of(info.loads),
            hot_keys=len(hot),
            hot=[_hot_key(plan, at) for at in heaviest],
        )
        .model_dump_json()
        .encode()
    )


def _hot_key(plan: Plan, at: int) -> HotKeyOverview:
    hot = plan.hot
    home, rows = int(hot.home[at]), int(hot.rows[at])
    units = {home: 1 << UNITS_BITS} if home >= 0 else hot.slots.units(SPLIT - home)
    largest = sorted(units.items(), key=lambda one: (-one[1], one[0]))[:_FRAGMENTS]
    parts = [Fragment.model_construct(partition=where, share=unit / 2**UNITS_BITS) for where, unit in largest]
    return HotKeyOverview.model_construct(
        hash=int(hot.hashes[at]),
        rows=rows,
        share=rows / plan.info.rows if plan.info.rows else 0.0,
        places=len(units),
        fragments=parts,
        reason=hot.reasons[int(hot.reason[at])],
    )


def each_once(batches: Iterable[BatchNote]) -> list[BatchNote]:
    """A batch that was reported again, or that several replicas wrote down, as it was told last; whose reports were put
    together only where nobody told it as a whole."""
    told = {(note.source, note.batch): note for note in batches}
    whole = {batch for source, batch in told if source}
    return sorted((note for note in told.values() if note.source or note.batch not in whole), key=lambda note: note.at)


def summaries_page(found: Sequence[tuple[pb.Stream, Summary]], following: str) -> bytes:
    streams = [
        StreamSummary.model_construct(
            stream=Stream.of(stream),
            planned=summary.plan.imbalance if summary.plan else None,
            by_hash=summary.plan.by_hash if summary.plan else None,
            observed=summary.batch.imbalance if summary.batch else None,
        )
        for stream, summary in found
    ]
    return OverviewPage.model_construct(streams=streams, next=following).model_dump_json().encode()


def etag_of(page: bytes) -> str:
    return hashlib.blake2b(page, digest_size=16).hexdigest()
