"""The usual report decoded in half the time: with as few passes over its arrays as show that it is valid.

Core's checks (``round_messages.checked_report``) accept everything that is accepted here, with the same values. What is
not clearly valid is not refused here but left to them, so all rules and errors are core's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import sealed, unchecked
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.rounds.messages import Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import check_name
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["fast_report"]

_U8, _F8, _BYTES = np.dtype("<u8"), np.dtype("<f8"), 8
_MOST = 2**40  # rows in any count: far below where a sum overflows
_COUNTERS = 1 << 20  # counts of this number still sum to less than 2^63
_BEST = 2.0

U64 = NDArray[np.uint64]


def fast_report(message: pb.SyncReport) -> Report | None:
    """The report, or None where it needs the full checks."""
    table = _table(message.table)
    if table is None or not _U8.isnative:
        return None
    loads = _counts(message.loads, table.workers)
    frequent = _frequent(message.frequent)
    session, seq, records, dsync = message.session, message.seq, message.records, message.dsync_seconds
    usual = loads is not None and frequent is not None and frequent.total == records
    if not usual or not session or not seq or records > _MOST or not 0.0 < dsync < math.inf:
        return None
    try:
        agent = check_name("agent", message.agent)
    except ConfigError:
        return None
    return unchecked(
        Report,
        agent=agent,
        session=session,
        seq=seq,
        table=table,
        records=records,
        frequent=frequent,
        loads=loads,
        dsync=dsync,
        longer=message.longer,
        guest=message.guest,
    )


def _table(message: pb.QTable) -> QTable | None:
    workers, hashes, values = message.workers, _hashes(message.hashes), message.values
    if hashes is None or not 1 <= workers <= MAX_PARTITIONS or len(values) != len(hashes) * workers * _BYTES:
        return None
    cells = np.frombuffer(values, _F8)
    # A NaN makes both ends NaN, which is within no bound.
    if not (np.minimum.reduce(cells) >= UNTRIED and np.maximum.reduce(cells) <= _BEST):
        return None
    rows, held = _counts(message.rows, len(hashes)), message.held
    if rows is None or workers % _BYTES or len(held) * _BYTES != len(cells):
        return None
    bits = sealed(np.unpackbits(np.frombuffer(held, np.uint8), bitorder="little"))
    shape = len(hashes), workers
    return unchecked(
        QTable, hashes=hashes, values=cells.reshape(shape), rows=rows, held=sealed(bits.view(np.bool_)).reshape(shape)
    )


def _frequent(message: pb.FrequentItems) -> FrequentItems | None:
    hashes, capacity, error, total = _hashes(message.hashes), message.capacity, message.error, message.total
    if hashes is None or not len(hashes) <= capacity or len(hashes) > _COUNTERS or total > _MOST or message.rounding:
        return None
    counts = _counts(message.counts, len(hashes))
    if counts is None or np.count_nonzero(counts) != len(counts):
        return None
    unlisted = total - int(np.add.reduce(counts))
    if error * (capacity + 1) > unlisted:
        return None
    return unchecked(
        FrequentItems, capacity=capacity, hashes=hashes, counts=counts, error=error, total=total, rounding=0
    )


def _hashes(data: bytes) -> U64 | None:
    """One hash or more in ascending order, else None."""
    if not data or len(data) % _BYTES:
        return None
    hashes: U64 = np.frombuffer(data, _U8)
    return hashes if np.count_nonzero(hashes[1:] > hashes[:-1]) == len(hashes) - 1 else None


def _counts(data: bytes, count: int) -> NDArray[np.int64] | None:
    if len(data) != count * _BYTES:
        return None
    counts = np.frombuffer(data, _U8)
    return counts.view(np.int64) if int(np.maximum.reduce(counts)) <= _MOST else None
