"""Values made of arrays: frozen for good, pickled as their fields, and key hashes as they come in.

A histogram or a plan is a value: nobody may change it, neither through the array it was made from nor after it was
unpickled in another process.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.errors import KeyTypeError

__all__ = ["by_fields", "frozen", "hashes_of", "sealed", "unchecked"]

T = TypeVar("T")


def frozen(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A contiguous array of this type that nobody can write to; a copy where somebody could."""
    array = np.ascontiguousarray(values, dtype)
    if _writeable(array):
        array = sealed(array.copy() if isinstance(values, np.ndarray) and np.may_share_memory(array, values) else array)
    return array


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only from now on: for arrays that only the caller holds."""
    array.setflags(write=False)
    return array


def _writeable(array: NDArray[Any]) -> bool:
    """Whether the array, or one that it is a view of, can be written to."""
    at: object = array
    while isinstance(at, np.ndarray):
        if at.flags.writeable:
            return True
        at = at.base
    return False


def by_fields(value: Any) -> tuple[Any, tuple[Any, ...]]:
    """``__reduce__`` for a frozen dataclass: pickled as its fields and made anew, so that arrays are frozen again and
    tables that were derived on first use do not travel."""
    return type(value), tuple(getattr(value, field.name) for field in fields(value) if field.init)


def unchecked(kind: type[T], /, **fields: object) -> T:
    """``kind(**fields)``, all of them given, without its checks: of fields that are known to be right and frozen."""
    value = object.__new__(kind)
    value.__dict__.update(fields)
    return value


def hashes_of(values: ArrayLike, what: str) -> NDArray[np.uint64]:
    """64-bit hashes as unsigned numbers. Signed ones, as Spark has them, are the same bits; anything else is refused,
    because a cast would route it somewhere else."""
    array = np.asarray(values)
    if array.dtype == np.int64 and array.ndim == 1:
        return np.ascontiguousarray(array).view(np.uint64)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.uint64)
    if array.dtype != np.uint64 or array.ndim != 1:
        raise KeyTypeError(
            f"{what}: an array of {array.ndim} dimensions and type {array.dtype} holds no 64-bit hashes; give a flat "
            "uint64 (or Spark's signed int64) array, as hash_keys returns it"
        )
    return np.ascontiguousarray(array)
