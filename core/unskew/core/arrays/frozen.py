"""Frozen values made of arrays, how they are pickled, and the check of key hashes that come in.

A histogram or a plan is a value: nothing may change it, neither through the array that it was made from nor after it
was unpickled in another process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.arrays.types import U64
from unskew.core.errors import KeyTypeError

__all__ = ["by_fields", "derived", "freeze", "frozen", "hashes_of", "sealed", "unchecked"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class derived(Generic[T_co]):  # noqa: N801 - used as `property` is
    """A property that is computed on first use and stored with the value.

    Not ``functools.cached_property``: until Python 3.12 that has one lock for all instances, and a process that forks
    while another thread holds it leaves the child with a lock that is never released. Here two threads may compute the
    same property; both results are equal.
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
        result: T_co = value.__dict__.setdefault(self._name, self._make(value))
        return result


def frozen(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A contiguous, read-only array of this type; a copy where somebody else could write to the original."""
    array = np.ascontiguousarray(values, dtype)
    if _writeable(array):
        array = sealed(array.copy() if isinstance(values, np.ndarray) and np.may_share_memory(array, values) else array)
    return array


def freeze(value: object, **dtypes: Any) -> None:
    """Make these fields of a frozen dataclass ``frozen`` arrays of these types; one that is None stays None."""
    for name, dtype in dtypes.items():
        if (array := getattr(value, name)) is not None:
            object.__setattr__(value, name, frozen(array, dtype))


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only; for arrays to which only the caller has a reference."""
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
    """``__reduce__`` for a frozen dataclass: pickled as its fields and made anew.

    So arrays are frozen again after unpickling, and derived tables are not pickled.
    """
    return type(value), tuple(getattr(value, field.name) for field in fields(value) if field.init)


def unchecked(kind: type[T], /, **fields: object) -> T:
    """``kind(**fields)`` without its checks: for fields that are checked and frozen already; give all of them."""
    value = object.__new__(kind)
    value.__dict__.update(fields)
    return value


def hashes_of(values: ArrayLike, what: str) -> U64:
    """64-bit hashes as unsigned numbers.

    Signed ones, as Spark has them, are the same bits. Any other type is refused, because a cast would change where its
    rows are routed.
    """
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
