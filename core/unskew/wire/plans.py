"""A plan as bytes and back: a checked envelope around the protobuf message ``unskew.v1.Plan``.

Equal plans give equal bytes. What comes back is checked twice: the envelope (is it ours, is it whole, do we know
the format) and the tables themselves (``Plan`` refuses any that could route a row nowhere).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unskew.core.errors import PlanError, PlanFormatError, UnskewError
from unskew.core.limits import MAX_BYTES
from unskew.core.plan.hot_keys import HotKeys, SplitSlots
from unskew.core.plan.lookup import Lookup
from unskew.core.plan.plan import Plan, PlanInfo
from unskew.v1 import plan_pb2 as pb
from unskew.wire.streams import version_from_message, version_to_message

__all__ = ["FORMAT", "check_plan_bytes", "plan_from_bytes", "plan_to_bytes"]

MAGIC = 0x756E736B
FORMAT = 1
_INFO_FIELDS = ("stream", "policy", "reason", "moved_rows", "moved_keys", "rows", "keys")  # as PlanInfo names them


def plan_to_bytes(plan: Plan) -> bytes:
    """The one encoding of a plan. Refuses one that would take more than 1 MB."""
    if not isinstance(plan, Plan):
        raise PlanError(f"a {type(plan).__name__} is not a plan; give what planner.plan(histogram) returned")
    try:
        body = _message(plan).SerializeToString(deterministic=True)
    except (ValueError, OverflowError) as why:
        raise PlanError(
            f"this plan's metadata cannot be written ({why}); names must be text, numbers fit 64 bits"
        ) from None
    file = pb.PlanFile(magic=MAGIC, format=FORMAT, checksum=xxhash.xxh64_intdigest(body), body=body)
    data = file.SerializeToString(deterministic=True)
    if len(data) > MAX_BYTES:
        raise PlanError(f"this plan takes {len(data):,} bytes; at most {MAX_BYTES:,} are allowed: list fewer hot keys")
    return data


def plan_from_bytes(data: bytes) -> Plan:
    """The plan in these bytes, or one clear error."""
    if len(data) > MAX_BYTES:
        raise PlanFormatError(f"{len(data):,} bytes are no plan of unskew: one has at most {MAX_BYTES:,}")
    file = _opened(data)
    try:
        return _plan(pb.Plan.FromString(file.body))
    except (DecodeError, UnskewError, ValueError, OverflowError) as why:
        raise PlanFormatError(f"the bytes are whole but hold no usable plan: {why}") from None


def check_plan_bytes(data: bytes) -> None:
    """Refuse what is not the whole of a plan's bytes; its tables are not read."""
    _opened(data)


def _opened(data: bytes) -> pb.PlanFile:
    try:
        file = pb.PlanFile.FromString(bytes(data))
    except (DecodeError, TypeError):
        raise PlanFormatError("these bytes are not a plan of unskew; give the bytes that plan_to_bytes wrote") from None
    if file.magic != MAGIC:
        raise PlanFormatError("these bytes are not a plan of unskew; give the bytes that plan_to_bytes wrote")
    if file.format != FORMAT:
        raise PlanFormatError(
            f"plan format {file.format} is not known here (this is format {FORMAT}); upgrade this side of unskew"
        )
    if xxhash.xxh64_intdigest(file.body) != file.checksum:
        raise PlanFormatError("the plan's bytes are damaged: the checksum does not match; fetch the plan again")
    return file


def _message(plan: Plan) -> pb.Plan:
    hot, slots, info = plan.hot, plan.hot.slots, plan.info
    return pb.Plan(
        partitions=plan.partitions,
        key_types=plan.key_types,
        tail=plan.tail.tolist(),
        hot_hash=hot.hashes.tolist(),
        hot_home=hot.home.tolist(),
        hot_rows=hot.rows.tolist(),
        hot_reason=hot.reason.tolist(),
        reasons=hot.reasons,
        split_bits=slots.bits.tolist(),
        split_first=slots.first.tolist(),
        split_second=slots.second.tolist(),
        split_cut=slots.cut.tolist(),
        lookup_shift=hot.lookup.shift,
        lookup_bits=hot.lookup.bits,
        lookup_displacement=hot.lookup.displacement.tolist(),
        lookup_remix=hot.lookup.remix,
        **{name: getattr(info, name) for name in _INFO_FIELDS},
        version=version_to_message(info.version),
        batch=info.batch,
        previous=None if info.previous is None else version_to_message(info.previous),
        loads=info.loads,
    )


def _plan(m: pb.Plan) -> Plan:
    slots = SplitSlots(
        _fitting(m.split_bits, np.uint8),
        _fitting(m.split_first, np.int32),
        _fitting(m.split_second, np.int32),
        np.array(m.split_cut, np.uint64),
    )
    hot = HotKeys(
        np.array(m.hot_hash, np.uint64),
        np.array(m.hot_home, np.int32),
        _fitting(m.hot_rows, np.int64),
        _fitting(m.hot_reason, np.uint8),
        tuple(m.reasons),
        slots,
        Lookup(m.lookup_shift, m.lookup_bits, np.array(m.lookup_displacement, np.uint32), m.lookup_remix),
    )
    info = PlanInfo(
        **{name: getattr(m, name) for name in _INFO_FIELDS},
        version=version_from_message(m.version),
        batch=m.batch if m.HasField("batch") else None,
        previous=version_from_message(m.previous) if m.HasField("previous") else None,
        loads=tuple(m.loads),
    )
    return Plan(m.partitions, _fitting(m.tail, np.int32), hot, tuple(m.key_types), info)


def _fitting(values: Iterable[int], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """These unsigned numbers in a narrower type, or an error: numpy would wrap them around."""
    wide = np.array(values, np.uint64)
    if len(wide) and int(wide.max()) > np.iinfo(dtype).max:
        raise PlanError(f"{int(wide.max())} is too large for where it stands")
    return wide.astype(dtype)
