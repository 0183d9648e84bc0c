"""The one JSON encoder of answers (decision 0026): dicts, numpy arrays, history notes, and JSON that was kept.

An answer is a dict as its model in ``models`` describes it. What many callers ask for is encoded once, kept, and put
into later answers as it is: ``Encoded``. Problems and the OpenAPI document are written by the standard library, which
also takes text that is not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel

from unskew.service.concurrency import in_thread

__all__ = ["LARGE", "Encoded", "decimals", "encode", "encode_with"]

V = TypeVar("V")
Encoded = orjson.Fragment
"""JSON that was encoded before, as a part of a document."""
LARGE = 1 << 16  # bytes of a plan or a Q-table from which on making JSON of it is worth a thread


def encode(document: object) -> bytes:
    return orjson.dumps(document, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: object) -> Any:
    """What the encoder does not know: a history note as its fields, a view of an array as a list."""
    if isinstance(value, BaseModel):
        return vars(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value).__name__)


async def encode_with(make: Callable[[V], object], value: V, size: int) -> bytes:
    """The document that ``make`` gives of ``value``, in a thread if ``value`` has many bytes."""
    return await in_thread(lambda: encode(make(value)), size, LARGE)


def decimals(hashes: NDArray[np.uint64]) -> list[str]:
    """Key hashes as JSON has them: a JavaScript number does not hold 64 bits."""
    return list(map(str, hashes.tolist()))
