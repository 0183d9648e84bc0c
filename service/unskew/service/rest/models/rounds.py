"""Cooperative learning: an agent's report, and the answer of its round."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from unskew.core.errors import WireError
from unskew.core.limits import MAX_PARTITIONS
from unskew.service.app.settings import MAX_JSON_KEYS
from unskew.service.rest.models.arrays import AllHashes, Count, Counts, Hash, Hashes, Matrix, PerWorker, no_numbers
from unskew.service.rest.models.base import Model, packed
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["FrequentItems", "QTable", "SyncAnswer", "SyncReport", "SyncRequest", "SyncResponse"]


class QTable(Model):
    """Rows of a Q-table in ascending order of hash: for each key a value per worker (-2: never tried), its rows, and
    the workers that hold it."""

    workers: int = Field(ge=1, le=MAX_PARTITIONS)
    hashes: Hashes = Field(default_factory=no_numbers)
    values: Matrix = Field(default_factory=lambda: no_numbers().reshape(0, 0))
    rows: Counts = Field(default_factory=no_numbers)
    held: list[list[int]] = Field(default_factory=list, max_length=MAX_JSON_KEYS, description="numbers of workers")

    def message(self) -> pb.QTable:
        keys, workers = len(self.hashes), self.workers
        if self.values.size != keys * workers or len(self.values) != keys or len(self.held) != keys:
            raise WireError("report.table.values", f"give {workers} values, and one list in held, for each key")
        return pb.QTable(
            workers=workers,
            hashes=packed(self.hashes),
            values=self.values.astype("<f8", copy=False).tobytes(),
            rows=packed(self.rows),
            held=np.packbits(self._held_bits(), axis=1, bitorder="little").tobytes(),
        )

    def _held_bits(self) -> NDArray[np.bool_]:
        """A row of bits for each key."""
        bits = np.zeros((len(self.held), self.workers), np.bool_)
        counts = [len(workers) for workers in self.held]
        try:
            holders = np.fromiter(chain.from_iterable(self.held), np.int64, sum(counts))
        except OverflowError:
            holders = np.array([-1])
        if len(holders) and not 0 <= int(holders.min()) <= int(holders.max()) < self.workers:
            raise WireError("report.table.held", f"use workers 0 to {self.workers - 1}")
        bits[np.repeat(np.arange(len(counts)), counts), holders] = True
        return bits


class FrequentItems(Model):
    """The mergeable summary of the keys that came: no key has more than ``error`` rows beyond its count."""

    capacity: int = Field(ge=1, lt=2**32)
    hashes: Hashes = Field(default_factory=no_numbers)
    counts: Counts = Field(default_factory=no_numbers)
    error: Count = 0
    total: Count = 0
    rounding: Count = 0

    def message(self) -> pb.FrequentItems:
        return pb.FrequentItems(**{**vars(self), "hashes": packed(self.hashes), "counts": packed(self.counts)})


class SyncReport(Model):
    """An agent's report: everything since its report before."""

    agent: str = Field(min_length=1, max_length=200)
    session: int = Field(ge=1, lt=2**64)
    seq: int = Field(ge=1, lt=2**64)
    table: QTable
    records: Count = 0
    frequent: FrequentItems
    loads: PerWorker
    dsync_seconds: float = Field(gt=0)
    longer: bool = False
    guest: bool = Field(default=False, description="no round waits for it: an agent that reports after it holds that")

    def message(self) -> pb.SyncReport:
        parts = {"table": self.table.message(), "frequent": self.frequent.message(), "loads": packed(self.loads)}
        return pb.SyncReport(**{**vars(self), **parts})


class SyncRequest(Model):
    """A report, how long to wait for its round, and ``incarnation``, ``epoch`` and ``digest`` of the newest answer."""

    report: SyncReport
    wait_seconds: float = Field(0.0, ge=0.0, le=60.0)
    incarnation: int = Field(0, ge=0, lt=2**64)
    epoch: int = Field(0, ge=0, lt=2**64)
    digest: Hash = 0

    def message(self, stream: str) -> pb.SyncRequest:
        return pb.SyncRequest(**{**vars(self), "stream": stream, "report": self.report.message()})


class SyncAnswer(Model):
    """The global state after a round: news if (incarnation, epoch) is greater than what the agent has."""

    incarnation: int
    epoch: int
    table: QTable
    records: int
    unsure: AllHashes
    split: AllHashes
    loads: PerWorker
    dsync_seconds: float
    merged: bool
    age_seconds: float
    digest: Hash


class SyncResponse(Model):
    """No answer: not yet; ask again with the same report."""

    answer: SyncAnswer | None
