"""The small dose of a check, which ``make test`` runs; ``make test-long`` runs all of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pytest

__all__ = ["diagonal", "new_seeds", "some_of"]


def some_of(values: Iterable[Any], *small: Any) -> list[Any]:
    """All values, a tuple for several arguments; those that are not of the small dose are marked long."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=() if value in small else pytest.mark.long
        )
        for value in values
    ]


def diagonal(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of these values; in the small dose is each value at least once, in few combinations."""
    each = [list(axis) for axis in axes]
    small = set(_diagonal([len(axis) for axis in each]))
    places = product(*(range(len(axis)) for axis in each))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(each, at, strict=True)), marks=() if at in small else pytest.mark.long
        )
        for at in places
    ]


def new_seeds(count: int, check: Callable[[int], None]) -> None:
    """A check of so many seeds, new ones each time; which one failed is said."""
    first = random.SystemRandom().randrange(1 << 20)
    for seed in range(first, first + count):
        try:
            check(seed)
        except Exception as why:
            raise AssertionError(f"seed {seed}: {why}") from why


def _diagonal(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The longest axis is gone along once; the others turn over as digits of a number do."""
    longest = sizes.index(max(sizes))
    strides, stride = [1] * len(sizes), 1
    for at, size in enumerate(sizes):
        if at != longest:
            strides[at], stride = stride, stride * size
    turns = max(*sizes, *(s * size for s, size in zip(strides, sizes, strict=True)))
    return [tuple(i // s % size for s, size in zip(strides, sizes, strict=True)) for i in range(turns)]
