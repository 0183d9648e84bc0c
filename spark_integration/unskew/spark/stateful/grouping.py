"""Which rows have the same key: by its hash, and where two keys share one, by the key's own columns.

Floats are compared as Spark groups them: both zeros are one key, and so are all NaNs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["key_codes", "normal"]

I64 = NDArray[np.int64]


def key_codes(hashes: NDArray[np.uint64], columns: Sequence[pa.ChunkedArray]) -> I64:
    """A number for each row, the same for the same key, and ascending with the hash."""
    code = np.unique(hashes, return_inverse=True)[1].astype(np.int64)
    for column in columns:
        value = _values(column)
        if len(value) and (value != value[_first(code)][code]).any():
            code = np.unique(code * (int(value.max()) + 1) + value, return_inverse=True)[1].astype(np.int64)
    return code


def _first(code: I64) -> I64:
    """By code, a row that has it."""
    first = np.zeros(int(code.max()) + 1, np.int64)
    first[code] = np.arange(len(code))
    return first


def _values(column: pa.ChunkedArray) -> I64:
    """A number for each row, the same for equal values; NULL is a value."""
    whole = pa.chunked_array([normal(column)]).combine_chunks()
    encoded = whole.dictionary_encode(null_encoding="encode")
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    values: I64 = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def normal(column: pa.ChunkedArray) -> pa.Array:
    """In one piece; of floats the zeros and the NaNs made one each."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    if not pa.types.is_floating(whole.type):
        return whole
    plain = pc.add(whole, pa.scalar(0.0, whole.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), whole.type), plain)
