"""Where a key goes, over REST: by its hash, or by its values and Spark's types of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
from fastapi import Query, Request, Response

from unskew.core.errors import UnskewError
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import arrow_of, parse
from unskew.service.api.calls import Calls
from unskew.service.errors import FieldError
from unskew.service.rest import models
from unskew.service.rest.bodies import Bodies
from unskew.service.rest.middleware import STREAM, CheckedStreamName, StreamName, who_asks
from unskew.service.rest.models.arrays import hash_of
from unskew.service.rest.negotiation import answer
from unskew.service.rest.operations import Operations
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["ExplainOperations"]

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class ExplainOperations:
    calls: Calls
    bodies: Bodies

    def add_to(self, to: Operations) -> None:
        path = f"{STREAM}/explain"
        to.add("Explain", "GET", path, self.by_hash, models.Explanation, operation_id="ExplainHash")
        to.add("Explain", "POST", path, self.by_key, models.Explanation, body=to.body(models.Explain))

    async def by_hash(
        self,
        request: Request,
        stream: CheckedStreamName,
        hash: Annotated[str, Query(max_length=20, description="64 bits: decimal, signed or not, or 0x...")],  # noqa: A002 - the parameter's name in the URL
        version: Annotated[str, Query(max_length=50, description="incarnation.number; left out: the latest")] = "",
    ) -> Response:
        """Where the key with this hash goes under a plan, and why."""
        try:
            key = hash_of(hash)
        except ValueError as why:
            raise FieldError("hash", hash, str(why)) from None
        return await self._explain(request, stream, key, version)

    async def by_key(self, request: Request, stream: StreamName) -> Response:
        """The same for a key by its values; they stay out of access logs so."""
        body = await self.bodies.json(request, models.Explain, most=_MOST_BYTES)
        if (body.key is None) == (body.hash is None):
            raise FieldError("key", "both or none", "either a key or a hash")
        key = body.hash
        if key is None:
            types = body.types or await self._key_types(request, stream)
            key = _typed_hash(body.key or (), types)
        return await self._explain(request, stream, key, body.version or "")

    async def _key_types(self, request: Request, stream: str) -> Sequence[str]:
        info = await self.calls.stream_info(stream, who_asks(request))
        if not info.spec.key_types:
            raise FieldError("types", [], "Spark's type of each key column: the stream does not say them")
        return info.spec.key_types

    async def _explain(self, request: Request, stream: str, key: int, version: str) -> Response:
        message = pb.ExplainRequest(stream=stream, hash=key, version=models.version_of(version) if version else None)
        explanation = await self.calls.explain(message, who_asks(request))
        return answer(request, lambda: explanation, lambda: _document(key, explanation))


def _document(key: int, explanation: pb.ExplainResponse) -> dict[str, Any]:
    """As ``models.Explanation`` describes it."""
    version = explanation.version
    return {
        "hash": str(key),
        "version": f"{version.incarnation}.{version.number}" if explanation.HasField("version") else None,
        "hot": explanation.hot,
        "rows": explanation.rows,
        "share": explanation.share,
        "fragments": [{"partition": one.partition, "share": one.share} for one in explanation.fragments],
        "reason": explanation.reason,
    }


def _typed_hash(key: Sequence[object], types: Sequence[str]) -> int:
    """The hash that Spark's ``xxhash64`` gives this key, one value for each column, in these types."""
    if len(key) != len(types):
        raise FieldError("key", len(key), f"one value for each of the {len(types)} key columns: {', '.join(types)}")
    columns = [_column(value, name) for value, name in zip(key, types, strict=True)]
    return int(hash_keys(*columns, types=types)[0])


def _column(value: object, name: str) -> pa.Array:
    try:
        arrow_type = arrow_of(parse(name))
    except UnskewError as why:
        raise FieldError("types", name, f"one of Spark's simple type names ({why})") from None
    text = value if value is None or isinstance(value, str) else _text(value)
    try:
        return pa.array([text], pa.string()).cast(arrow_type)
    except (pa.ArrowException, UnicodeEncodeError, ValueError):
        raise FieldError("key", value, f"a value of type {name}, or null") from None


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
