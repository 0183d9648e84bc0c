"""Values made of arrays: frozen for good, pickled as their fields, and key hashes as they come in.

A histogram or a plan is a value: nobody may change it, neither through the array it was made from nor after it was
unpickled in another process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.errors import KeyTypeError

__all__ = ["by_fields", "derived", "frozen", "hashes_of", "sealed", "unchecked"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class derived(Generic[T_co]):  # noqa: N801 - used as `property` is
    """A property of a value that is worked out on first use and kept with it.

    Not ``functools.cached_property``: until Python 3.12 that has a lock for all instances together, and a process that
    forks while another thread works one out leaves it locked in the child for good. Here two threads may work out the
    same; of a value both get equal ones.
    """

    def __init__(self, make: Callable[[Any], T_co]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, value: None, owner: type) -> derived[T_co]: ...

    @overload
    def __get__(self, value: object, owner: type) -> T_co: ...

    def __get__(self, value: object | None, owner: type) -> derived[T_co] | T_co:
        if value is None:
            return self
        made: T_co = value.__dict__.setdefault(self._name, self._make(value))
        return made


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
