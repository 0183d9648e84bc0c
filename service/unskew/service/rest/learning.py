"""Cooperative learning over REST, and what a job reports of finished batches and is advised on parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from fastapi import Request, Response

from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Answer
from unskew.service.api.calls import Calls, synced_in_bytes
from unskew.service.api.verbs import Synced
from unskew.service.concurrency import SingleFlight
from unskew.service.rest import models
from unskew.service.rest.bodies import Bodies
from unskew.service.rest.encoder import Encoded, decimals, encode_with
from unskew.service.rest.middleware import STREAM, StreamName, who_asks
from unskew.service.rest.negotiation import PROTOBUF, answer, json_answer, wants_protobuf
from unskew.service.rest.operations import Operations
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import ACTIONS

__all__ = ["EncodedTables", "LearningOperations", "sync_document"]

_ACTION_NAMES = {number: name for name, number in ACTIONS.items()}


class EncodedTables:
    """The JSON of rounds' Q-tables: encoded once for all agents of a round, and kept while anybody holds the answer."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Answer, bytes] = WeakKeyDictionary()
        self._encoding: SingleFlight[bytes] = SingleFlight()

    async def of(self, answer: Answer) -> bytes:
        table = self._kept.get(answer)
        if table is None:
            size = answer.table.values.nbytes
            encoding = self._encoding.once(id(answer), lambda: encode_with(_table, answer.table, size))
            table = self._kept[answer] = await encoding
        return table


def _table(table: QTable) -> dict[str, Any]:
    """As ``models.QTable`` describes it."""
    holders = np.nonzero(table.held)[1].tolist()
    ends = [0, *np.cumsum(table.held.sum(axis=1, dtype=np.int64)).tolist()]
    return {
        "workers": table.workers,
        "hashes": decimals(table.hashes),
        "values": table.values,
        "rows": table.rows,
        "held": [holders[start:end] for start, end in pairwise(ends)],
    }


@dataclass(frozen=True)
class LearningOperations:
    calls: Calls
    bodies: Bodies
    tables: EncodedTables = field(default_factory=EncodedTables)

    def add_to(self, to: Operations) -> None:
        body = to.body(models.SyncRequest, "unskew.v1.SyncRequest")
        to.add("Sync", "POST", f"{STREAM}/sync", self.sync, models.SyncResponse, body=body)
        body = to.body(models.ReportBatch, "unskew.v1.ReportBatchRequest")
        to.add("ReportBatch", "POST", f"{STREAM}/batches", self.report, models.Reported, body=body)
        to.add("GetScale", "GET", f"{STREAM}/scale", self.scale, models.Scale)

    async def sync(self, request: Request, stream: StreamName) -> Response:
        """One agent's part in a round of cooperative learning. Repeat it with the same report until it is answered."""
        message = await self.bodies.message(request, stream, pb.SyncRequest, models.SyncRequest)
        synced = await self.calls.sync(message, who_asks(request))
        if wants_protobuf(request):
            return Response(synced_in_bytes(synced), media_type=PROTOBUF)
        return json_answer(await sync_document(synced, self.tables))

    async def report(self, request: Request, stream: StreamName) -> Response:
        """What a finished batch took: feeds the cost model, the signals of busy and idle, the advice on parallelism."""
        message = await self.bodies.message(request, stream, pb.ReportBatchRequest, models.ReportBatch)
        report = await self.calls.report_batch(message, who_asks(request))
        return answer(request, lambda: report, lambda: {"repeated_report": report.repeated_report})

    async def scale(self, request: Request, stream: StreamName) -> Response:
        """How many map and reduce tasks the next batch should have, and why."""
        advice = await self.calls.get_scale(pb.GetScaleRequest(stream=stream), who_asks(request))
        return answer(request, lambda: advice, lambda: _scale_document(advice))


async def sync_document(synced: Synced, tables: EncodedTables) -> dict[str, Any]:
    """As ``models.SyncResponse`` describes it."""
    answer = synced.answer
    if answer is None:
        return {"answer": None}
    return {
        "answer": {
            "incarnation": synced.incarnation,
            "epoch": answer.epoch,
            "table": Encoded(await tables.of(answer)),
            "records": answer.records,
            "unsure": [str(key) for key in sorted(answer.unsure)],
            "split": decimals(answer.split),
            "loads": answer.loads,
            "dsync_seconds": answer.dsync,
            "merged": synced.merged,
            "age_seconds": synced.age,
            "digest": str(answer.digest),
        }
    }


def _scale_document(advice: pb.GetScaleResponse) -> dict[str, Any]:
    """As ``models.Scale`` describes it."""
    plain = {name: getattr(advice, name) for name in ("map_tasks", "reduce_tasks", "zone", "reason")}
    return {**plain, "action": _ACTION_NAMES[advice.action]}
