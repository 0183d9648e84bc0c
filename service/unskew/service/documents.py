"""What REST makes of the service's values beyond their messages: a plan as JSON, a typed key as its hash."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from unskew.core.errors import UnskewError
from unskew.core.hashing import hash_keys
from unskew.core.hotkeys import SPLIT
from unskew.core.keytypes import arrow_of, parse
from unskew.core.plan import Plan
from unskew.service.errors import FieldError
from unskew.wire import plan_from_bytes

__all__ = ["PlanPages", "plan_document", "typed_hash"]


def plan_document(data: bytes) -> dict[str, Any]:
    """The plan in these bytes, as ``models.PlanDocument`` describes it."""
    plan = plan_from_bytes(data)
    info = plan.info
    return {
        "stream": info.stream,
        "version": str(info.version),
        "digest": plan.digest,
        "policy": info.policy,
        "reason": info.reason,
        "batch": info.batch,
        "previous": None if info.previous is None else str(info.previous),
        "moved_rows": info.moved_rows,
        "moved_keys": info.moved_keys,
        "rows": info.rows,
        "keys": info.keys,
        "loads": list(info.loads),
        "partitions": plan.partitions,
        "key_types": list(plan.key_types),
        "hot": [_hot_key(plan, at) for at in range(len(plan.hot))],
        "tail": plan.tail.tolist(),
    }


def _hot_key(plan: Plan, at: int) -> dict[str, Any]:
    hot = plan.hot
    home = int(hot.home[at])
    return {
        "hash": str(int(hot.hashes[at])),
        "partition": home if home >= 0 else None,
        "split": None if home >= 0 else _split(plan, SPLIT - home),
        "rows": int(hot.rows[at]),
        "reason": hot.reasons[int(hot.reason[at])],
    }


def _split(plan: Plan, key: int) -> dict[str, Any]:
    slots = plan.hot.slots
    at = slice(int(slots.offset[key]), int(slots.offset[key + 1]))
    return {
        "bits": int(slots.bits[key]),
        "first": slots.first[at].tolist(),
        "second": slots.second[at].tolist(),
        "cut": [str(cut) for cut in slots.cut[at].tolist()],
    }


class PlanPages:
    """The JSON of the plans asked for last: made once, beside the event loop."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._pages: OrderedDict[bytes, bytes] = OrderedDict()

    async def of(self, data: bytes) -> bytes:
        page = self._pages.get(data)
        if page is None:
            page = await asyncio.to_thread(lambda: json.dumps(plan_document(data), separators=(",", ":")).encode())
            self._pages[data] = page
            if len(self._pages) > self._most:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(data)
        return page


def typed_hash(key: Sequence[object], types: Sequence[str]) -> int:
    """The hash that Spark's ``xxhash64`` gives this key, one value for each column, in these types."""
    if len(key) != len(types):
        raise FieldError("key", len(key), f"one value for each of the {len(types)} key columns: {', '.join(types)}")
    columns = [_column(value, name) for value, name in zip(key, types, strict=True)]
    return int(hash_keys(*columns, types=types)[0])


def _column(value: object, name: str) -> pa.Array:
    try:
        wanted = arrow_of(parse(name))
    except UnskewError as why:
        raise FieldError("types", name, f"one of Spark's simple type names ({why})") from None
    text = value if value is None or isinstance(value, str) else _written(value)
    try:
        return pa.array([text], pa.string()).cast(wanted)
    except (pa.ArrowException, UnicodeEncodeError, ValueError):
        raise FieldError("key", value, f"a value of type {name}, or null") from None


def _written(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
