"""A stream as the web page shows it, in one document: its plan, plain hashing beside it, and its history.

The document has the heaviest hot keys of a plan, and of a split key the largest fragments; it says how many there are.
The rest is in the plan itself and in ``explain``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.plan import Plan, Version
from unskew.core.plan.slots import UNITS_BITS
from unskew.service.api.verbs import Overview, Summary
from unskew.service.events.history import BatchNote, Expected, Imbalance, Observed, PlanNote, RoundNote, imbalance_of
from unskew.service.lru_cache import LruCache
from unskew.service.rest.encoder import Encoded, encode
from unskew.service.rest.models import Fragment, Model, Share, Stream, VersionText
from unskew.service.rest.models.arrays import Hash
from unskew.service.rest.plans import hot_keys, plan_facts
from unskew.service.rest.streams import stream_document

__all__ = ["OverviewPage", "Overviews", "StreamOverview", "each_once", "summaries_document"]

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
    """Makes the documents. The plan's part is encoded once for each version."""

    def __init__(self) -> None:
        self._plans: LruCache[tuple[str, Version, str], bytes] = LruCache(_PLANS)

    async def of(self, overview: Overview) -> dict[str, Any]:
        """As ``StreamOverview`` describes it."""
        stream, plan = overview.info.name, overview.plan
        return {
            "stream": stream_document(overview.info),
            "plan": None if plan is None else Encoded(await self._plan(stream, plan)),
            "expected": overview.expected,
            "observed": overview.observed,
            "plans": overview.plans,
            "batches": each_once(overview.batches),
            "rounds": overview.rounds,
        }

    async def _plan(self, stream: str, plan: Plan) -> bytes:
        key = stream, plan.version, plan.digest
        encoded = self._plans.find(key)
        if encoded is None:
            encoded = self._plans.put(key, await asyncio.to_thread(lambda: encode(_plan(plan))))
        return encoded


def _plan(plan: Plan) -> dict[str, Any]:
    info = plan.info
    heaviest = np.argsort(-plan.hot.rows, kind="stable")[:_HOT]
    return {
        **plan_facts(info, plan.digest),
        "partitions": plan.partitions,
        "loads": info.loads,
        "imbalance": imbalance_of(info.loads),
        "hot_keys": len(plan.hot),
        "hot": [
            {
                "hash": key,
                "rows": rows,
                "share": rows / info.rows if info.rows else 0.0,
                **_places(plan, home),
                "reason": reason,
            }
            for key, home, rows, reason in hot_keys(plan, heaviest)
        ],
    }


def _places(plan: Plan, home: int) -> dict[str, Any]:
    units = {home: 1 << UNITS_BITS} if home >= 0 else plan.hot.slots.units(SPLIT - home)
    largest = sorted(units.items(), key=lambda one: (-one[1], one[0]))[:_FRAGMENTS]
    fragments = [{"partition": partition, "share": unit / 2**UNITS_BITS} for partition, unit in largest]
    return {"places": len(units), "fragments": fragments}


def each_once(batches: Iterable[BatchNote]) -> list[BatchNote]:
    """Each batch once, by time: of a batch that was reported again, or that several replicas noted, the last note. The
    note of all sources together is left out if a source noted the whole batch."""
    last = {(note.source, note.batch): note for note in batches}
    whole = {batch for source, batch in last if source}
    return sorted((note for note in last.values() if note.source or note.batch not in whole), key=lambda note: note.at)


def summaries_document(summaries: Sequence[Summary], following: str) -> dict[str, Any]:
    """As ``OverviewPage`` describes it."""
    streams = [
        {
            "stream": stream_document(summary.info),
            "planned": summary.plan.imbalance if summary.plan else None,
            "by_hash": summary.plan.by_hash if summary.plan else None,
            "observed": summary.batch.imbalance if summary.batch else None,
        }
        for summary in summaries
    ]
    return {"streams": streams, "next": following}
