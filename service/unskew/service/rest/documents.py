"""What REST makes of the service's values beyond their messages: a plan as JSON, a typed key as its hash.

Plans and answers are asked for by many and change seldom: their JSON is kept. It is made in small pieces, in a thread
where it is large: one piece holds up everybody else for as long as it takes.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pydantic_core import to_json

from unskew.core.errors import UnskewError
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import arrow_of, parse
from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.plan import Plan
from unskew.core.rounds.messages import Answer
from unskew.service.api.verbs import Synced
from unskew.service.engine.base import SingleFlight
from unskew.service.errors import FieldError
from unskew.service.rest.models import SyncAnswer
from unskew.wire import plan_from_bytes
from unskew.wire.round_messages import answer_to_message

__all__ = ["AnswerPages", "PlanPages", "plan_document", "typed_hash"]

_BESIDE = 1 << 16  # bytes from which on making JSON of them is worth a thread


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


class _Pages:
    """JSON by what it was made from: what was asked for last, so many bytes of it."""

    def __init__(self, most: int = 32 << 20) -> None:
        self._most, self._size = most, 0
        self._pages: OrderedDict[bytes, bytes] = OrderedDict()
        self._making: SingleFlight[bytes] = SingleFlight()

    async def of(self, data: bytes, make: Callable[[bytes], bytes]) -> bytes:
        page = self._pages.get(data)
        if page is not None:
            self._pages.move_to_end(data)
            return page
        if len(data) < _BESIDE:
            return self._keep(data, make(data))
        return await self._making.once(data, lambda: self._beside(data, make))

    async def _beside(self, data: bytes, make: Callable[[bytes], bytes]) -> bytes:
        return self._keep(data, await asyncio.to_thread(make, data))

    def _keep(self, data: bytes, page: bytes) -> bytes:
        self._pages[data] = page
        self._size += len(data) + len(page)
        while self._size > self._most:
            oldest, dropped = self._pages.popitem(last=False)
            self._size -= len(oldest) + len(dropped)
        return page


class PlanPages:
    """Plans as JSON, as ``models.PlanDocument`` describes them."""

    def __init__(self) -> None:
        self._pages = _Pages()

    async def of(self, data: bytes) -> bytes:
        return await self._pages.of(data, _plan_page)


def _plan_page(data: bytes) -> bytes:
    document = plan_document(data)
    hot = _in_pieces(document.pop("hot"))
    return to_json(document)[:-1] + b',"hot":' + hot + b"}"


class AnswerPages:
    """Answers to syncs as JSON, as ``models.SyncResponse`` describes them. What is of the round, and so the same for
    all its agents, is made once, and kept as long as somebody holds the answer."""

    def __init__(self) -> None:
        self._pages: WeakKeyDictionary[Answer, tuple[int, bytes]] = WeakKeyDictionary()
        self._making: SingleFlight[bytes] = SingleFlight()

    async def of(self, found: Synced) -> bytes:
        answer, incarnation = found.answer, found.incarnation
        if answer is None:
            return b'{"answer":null}'
        had = self._pages.get(answer)
        if had is None or had[0] != incarnation:
            page = await self._made(answer, incarnation)
            had = self._pages[answer] = incarnation, page
        own = to_json({"merged": found.merged, "age_seconds": found.age})
        return b'{"answer":' + had[1][:-1] + b"," + own[1:] + b"}"

    async def _made(self, answer: Answer, incarnation: int) -> bytes:
        if answer.table.values.nbytes < _BESIDE:
            return _answer_page(answer, incarnation)
        return await self._making.once(
            (id(answer), incarnation), lambda: asyncio.to_thread(_answer_page, answer, incarnation)
        )


def _answer_page(answer: Answer, incarnation: int) -> bytes:
    """Without what is of one agent only."""
    model = SyncAnswer.of(answer_to_message(answer, incarnation))
    page = model.model_dump_json(exclude={"merged": True, "age_seconds": True, "table": {"values"}}).encode()
    values = _in_pieces([row.tolist() for row in model.table.values], 1)
    return page.replace(b'"table":{', b'"table":{"values":' + values + b",", 1)


def _in_pieces(parts: list[Any], together: int = 1000) -> bytes:
    """A list as JSON."""
    pieces = (to_json(parts[at : at + together])[1:-1] for at in range(0, len(parts), together))
    return b"[" + b",".join(pieces) + b"]"


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
