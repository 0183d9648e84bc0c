"""The messages of a round: an agent's ``Report``, the service's ``Answer``, and back.

A Q-table of 64 hot keys by 64 workers is 33 kB, packed; both ways together cost tens of microseconds
(``benchmarks/wire.py``). Core's own checks of ``QTable``, ``FrequentItems`` and ``Report`` are used, not repeated;
which field is wrong is determined only where one of them fails.

A report is refused where its counts could make a round's sums overflow: a sealed round that cannot be merged would
stop its stream for good. 2^48 rows between two reports of one agent are a billion a second for three days, and 32,768
such agents still fit 64 bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.ranking import ascending
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import UnskewError, WireError
from unskew.core.histogram.histogram import MAX_ROWS
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import check_name
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import packed
from unskew.wire.fast_reports import fast_report
from unskew.wire.refusals import encoder, parsed, refusal, serialized

__all__ = [
    "MAX_REPORTED", "Received", "answer_from_bytes", "answer_from_message", "answer_to_bytes", "answer_to_message",
    "answer_to_response", "checked_report", "report_as_sent", "report_from_bytes", "report_from_message",
    "report_to_bytes", "report_to_message", "table_from_message", "table_to_message",
]  # fmt: skip

MAX_REPORTED = 2**48

Name = tuple[str, int, int]
_ANSWER_FIELD = pb.SyncResponse.ANSWER_FIELD_NUMBER
_AS_SENT = {"dsync": "dsync_seconds"}


class Received(NamedTuple):
    """An answer as one agent gets it: whether its own report is in it, and how old the answer is."""

    answer: Answer
    incarnation: int
    merged: bool
    age: float


def table_to_message(table: QTable) -> pb.QTable:
    return pb.QTable(
        workers=table.workers,
        hashes=packed.pack_numbers(table.hashes),
        values=packed.pack_floats(table.values),
        rows=packed.pack_numbers(table.rows),
        held=packed.pack_bits(table.held),
    )


def table_from_message(message: pb.QTable, field: str = "table", most: int = MAX_ROWS) -> QTable:
    """``most``: rows that a key may have."""
    workers = message.workers
    if not 1 <= workers <= MAX_PARTITIONS:
        raise WireError(f"{field}.workers", f"{workers} is not allowed; use 1 to {MAX_PARTITIONS}")
    hashes = packed.unpack_hashes(message.hashes, f"{field}.hashes")
    values = packed.unpack_floats(message.values, f"{field}.values", len(hashes), workers)
    rows = packed.unpack_counts(message.rows, f"{field}.rows", len(hashes), most=most)
    held = packed.unpack_bits(message.held, f"{field}.held", len(hashes), workers)
    try:
        return QTable(hashes, values, rows, held)
    except UnskewError:
        if not ascending(hashes):
            raise WireError(
                f"{field}.hashes", "not in ascending order without repeats; sort the rows by hash"
            ) from None
        raise WireError(f"{field}.values", f"each must be a number from {UNTRIED} (never tried) to 2") from None


@encoder("report")
def report_to_message(report: Report) -> pb.SyncReport:
    frequent = report.frequent
    return pb.SyncReport(
        agent=report.agent,
        session=report.session,
        seq=report.seq,
        table=table_to_message(report.table),
        records=report.records,
        frequent=pb.FrequentItems(
            capacity=frequent.capacity,
            hashes=packed.pack_numbers(frequent.hashes),
            counts=packed.pack_numbers(frequent.counts),
            error=frequent.error,
            total=frequent.total,
            rounding=frequent.rounding,
        ),
        loads=packed.pack_numbers(report.loads),
        dsync_seconds=report.dsync,
        longer=report.longer,
        guest=report.guest,
    )


def report_from_message(message: pb.SyncReport, field: str = "report") -> Report:
    """The report, or a ``WireError`` whose field begins with ``field``."""
    fast = fast_report(message)
    return fast if fast is not None else checked_report(message, field)


def checked_report(message: pb.SyncReport, field: str = "report") -> Report:
    """The same, with all of core's checks."""
    if message.records > MAX_REPORTED:
        raise WireError(f"{field}.records", f"{message.records} is not allowed; use 0 to {MAX_REPORTED}")
    try:
        agent = check_name("agent", message.agent)
        table = table_from_message(message.table, f"{field}.table", MAX_REPORTED)
        loads = packed.unpack_counts(message.loads, f"{field}.loads", table.workers, most=MAX_REPORTED)
        frequent = _frequent(message.frequent, f"{field}.frequent")
        return Report(
            agent, message.session, message.seq, table, message.records, frequent, loads, message.dsync_seconds,
            message.longer, message.guest,
        )  # fmt: skip
    except UnskewError as why:
        raise refusal(field, why, _AS_SENT) from None


def _frequent(message: pb.FrequentItems, field: str) -> FrequentItems:
    hashes = packed.unpack_hashes(message.hashes, f"{field}.hashes")
    counts = packed.unpack_counts(message.counts, f"{field}.counts", len(hashes))
    try:
        return FrequentItems(message.capacity, hashes, counts, message.error, message.total, message.rounding)
    except UnskewError as why:
        raise refusal(field, why) from None


def report_to_bytes(report: Report) -> bytes:
    return serialized(report_to_message(report))


def report_as_sent(message: pb.SyncReport, field: str = "report") -> tuple[Report, bytes]:
    """The report, and its bytes as ``report_from_bytes`` reads them: quicker than encoding it again.

    The bytes are the message's own, without the fields that this release does not know.
    """
    report = report_from_message(message, field)
    message.DiscardUnknownFields()
    return report, serialized(message)


def report_from_bytes(data: bytes) -> Report:
    return report_from_message(parsed(pb.SyncReport, data, "report"))


@encoder("answer")
def answer_to_message(
    answer: Answer,
    incarnation: int | None = None,
    merged: bool = False,  # noqa: FBT001, FBT002 - a field of the message, in its order
    age: float = 0.0,
) -> pb.SyncAnswer:
    """The answer for one agent; ``merged``: whether its report is among those of the round, which are not listed."""
    message = pb.SyncAnswer()
    message.CopyFrom(_packed_answer(answer))
    message.incarnation = answer.incarnation if incarnation is None else incarnation
    message.merged, message.age_seconds = merged, age + 0.0
    return message


def answer_to_response(answer: Answer, incarnation: int, merged: bool, age: float) -> bytes:  # noqa: FBT001 - as above
    """The same as the bytes of a ``SyncResponse``.

    All agents of a round get the same table: that part is encoded once, and joined with the fields of each agent.
    """
    cached = _COMMON.get(answer)
    if cached is None or cached[0] != incarnation:
        first = pb.SyncAnswer(incarnation=incarnation).SerializeToString()
        cached = _COMMON[answer] = incarnation, first + serialized(_packed_answer(answer))
    tail = pb.SyncAnswer(merged=merged, age_seconds=age + 0.0).SerializeToString()
    head = packed.field_head(_ANSWER_FIELD, len(cached[1]) + len(tail))
    return b"".join((head, cached[1], tail))


# Cached as long as the answer lives: it is frozen, and equal to itself only.
_PACKED: WeakKeyDictionary[Answer, pb.SyncAnswer] = WeakKeyDictionary()
_COMMON: WeakKeyDictionary[Answer, tuple[int, bytes]] = WeakKeyDictionary()


def _packed_answer(answer: Answer) -> pb.SyncAnswer:
    message = _PACKED.get(answer)
    if message is None:
        message = _PACKED[answer] = _answer(answer)
    return message


@encoder("answer")
def _answer(answer: Answer) -> pb.SyncAnswer:
    return pb.SyncAnswer(
        epoch=answer.epoch,
        table=table_to_message(answer.table),
        records=answer.records,
        unsure=packed.pack_numbers(np.array(sorted(answer.unsure), np.uint64)),
        split=packed.pack_numbers(answer.split),
        loads=packed.pack_numbers(answer.loads),
        dsync_seconds=answer.dsync,
        digest=answer.digest,
    )


def answer_from_message(message: pb.SyncAnswer, name: Name | None = None, field: str = "answer") -> Received:
    """``name`` is that of the sent report: ``answer.merged`` contains it if the report is in the answer."""
    age = message.age_seconds
    if not 0.0 <= age < math.inf:
        raise WireError(f"{field}.age_seconds", f"{age!r} is not allowed; use 0 or more")
    names = (name,) if name is not None and message.merged else ()
    return Received(_answer_of(message, names, field), message.incarnation, message.merged, age + 0.0)


def _answer_of(message: pb.SyncAnswer, names: tuple[Name, ...], field: str) -> Answer:
    if not 0.0 < message.dsync_seconds < math.inf:
        raise WireError(f"{field}.dsync_seconds", f"{message.dsync_seconds!r} is not allowed; use a number above 0")
    if message.records > MAX_ROWS:
        raise WireError(f"{field}.records", f"{message.records} is not allowed; use 0 to {MAX_ROWS}")
    table = table_from_message(message.table, f"{field}.table")
    return Answer(
        message.epoch, names, table, message.records, frozenset(_sorted(message.unsure, f"{field}.unsure").tolist()),
        packed.unpack_counts(message.loads, f"{field}.loads", table.workers), message.dsync_seconds,
        _sorted(message.split, f"{field}.split"), message.incarnation, message.digest,
    )  # fmt: skip


def _sorted(data: bytes, field: str) -> NDArray[np.uint64]:
    hashes = packed.unpack_hashes(data, field)
    if not ascending(hashes):
        raise WireError(field, "not in ascending order without repeats; sort the hashes")
    return hashes


def answer_to_bytes(answer: Answer) -> bytes:
    """The bytes of an answer without the names of its reports, which are stored beside them (``Commit.names``)."""
    return serialized(answer_to_message(answer))


def answer_from_bytes(data: bytes, merged: tuple[Name, ...] = ()) -> Answer:
    """``merged``: the names of the reports in it."""
    return _answer_of(parsed(pb.SyncAnswer, data, "answer"), merged, "answer")
