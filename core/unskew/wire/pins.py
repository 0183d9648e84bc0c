"""How a query routes its batches, as stored beside the checkpoint (``proto/unskew/v1/pins.proto``)."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash
from google.protobuf.message import DecodeError

from unskew.core.errors import PlanFormatError, UnskewError
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.in_flight.layout import ContentLayout
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.v1 import pins_pb2 as pb
from unskew.wire.plans import plan_from_bytes, plan_to_bytes
from unskew.wire.round_messages import table_from_message, table_to_message

__all__ = ["StoredPin", "pinned_from_bytes", "pinned_to_bytes"]

_SUM = 8  # bytes of XXH64 in front of the message


@dataclass(frozen=True, eq=False)
class StoredPin:
    """A query routes its rows by ``bound`` from batch ``bound.batch`` on.

    ``key`` and ``spread`` are the settings of the query; ``spread_columns`` the columns that ``spread`` meant then, and
    ``kinds`` the names and types of all these columns.
    """

    bound: RoutingChoice
    stream: str
    name: str
    key: tuple[str, ...]
    spread: tuple[str, ...]
    began: int = 0
    reason: str = ""
    spread_columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


def pinned_to_bytes(pinned: StoredPin) -> bytes:
    bound = pinned.bound
    message = pb.Pin(
        first_batch=bound.batch,
        stream=pinned.stream,
        name=pinned.name,
        partitions=bound.partitions,
        key=pinned.key,
        spread=pinned.spread,
        plan=b"" if bound.plan is None else plan_to_bytes(bound.plan),
        table=None if bound.table is None else table_to_message(bound.table),
        records=bound.records,
        incarnation=bound.version[0],
        epoch=bound.version[1],
        seed=bound.seed,
        began=pinned.began,
        reason=pinned.reason,
        told=pinned.spread_columns,
        kinds=pinned.kinds,
        cells=None if bound.cells is None else _cells_to_message(bound.cells),
    )
    body = message.SerializeToString(deterministic=True)
    return xxhash.xxh64_digest(body) + body


def pinned_from_bytes(data: bytes) -> StoredPin:
    """The pin in these bytes, or one clear error."""
    body = data[_SUM:]
    if xxhash.xxh64_digest(body) != data[:_SUM]:
        raise PlanFormatError("these bytes are no pin of unskew, or not whole: their checksum does not fit")
    try:
        m = pb.Pin.FromString(body)
        plan = plan_from_bytes(m.plan) if m.plan else None
        table = table_from_message(m.table) if m.HasField("table") else None
        version = m.incarnation, m.epoch
        cells = _cells_from_message(m.cells) if m.HasField("cells") else None
        bound = RoutingChoice(m.partitions, plan, table, m.records, version, m.first_batch, m.seed, cells=cells)
        return StoredPin(
            bound, m.stream, m.name, tuple(m.key), tuple(m.spread), m.began, m.reason, tuple(m.told), tuple(m.kinds)
        )
    except (DecodeError, UnskewError, ValueError) as why:
        raise PlanFormatError(f"the bytes are whole but hold no usable pin: {why}") from None


def _cells_to_message(cells: CellTable) -> pb.CellTable:
    layout = cells.layout
    return pb.CellTable(hosts=layout.hosts, pieces=layout.pieces, firsts=cells.firsts, key_types=cells.key_types)


def _cells_from_message(message: pb.CellTable) -> CellTable:
    return CellTable(ContentLayout(message.hosts, message.pieces), tuple(message.firsts), tuple(message.key_types))
