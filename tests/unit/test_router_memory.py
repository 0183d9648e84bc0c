"""Every router's state is bounded: with a window it is that of the window, however long the stream, however many keys.

1,000,000 keys, all equally likely, so that nearly every row of a window has a key of its own: the worst for a router
that keeps a window's keys. 1 M tuples in `make test`, 20 M in `make test-long`.
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import pytest

from unskew.core.keys.hashing import mix
from unskew.core.routers import ROUTERS, Router, make_router

KEYS, WINDOW, SLIDE, STEP = 1_000_000, 60_000, 1_000, 100_000
LEAST_FOR_ALL = 16 * KEYS  # a table of all keys: a hash and a count each


def memory(part: object, known: set[int] | None = None) -> int:
    """Bytes of all that a router's state holds, each array and container once: what fields, slots, tuples, lists, sets
    and dicts lead to."""
    known = set() if known is None else known
    if id(part) in known:
        return 0
    known.add(id(part))
    if isinstance(part, np.ndarray):
        return part.nbytes if part.base is None else memory(part.base, known)
    if isinstance(part, dict):
        return sys.getsizeof(part) + sum(memory(each, known) for pair in part.items() for each in pair)
    if isinstance(part, (tuple, list, set, frozenset, deque)):
        return sys.getsizeof(part) + sum(memory(each, known) for each in part)
    fields = {name: getattr(part, name, None) for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())}
    inside = [*getattr(part, "__dict__", {}).values(), *fields.values()]
    return sum(memory(each, known) for each in inside)


def sizes(router: Router, rows: int) -> list[int]:
    """The state's bytes at the beginning and after each step of the stream."""
    rng, out = np.random.default_rng(1), [memory(router)]
    for _ in range(rows // STEP):
        router.route(mix(rng.integers(0, KEYS, STEP, dtype=np.uint64), 1))  # other hashes for other keys
        out.append(memory(router))
    return out


@pytest.mark.parametrize("rows", [1_000_000, pytest.param(20_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted(ROUTERS))
def test_state_is_that_of_the_window(name: str, rows: int) -> None:
    """The bytes are constant over the second half, and less than a table of all keys would need."""
    found = sizes(make_router(name, 64, 7, WINDOW, SLIDE), rows)
    assert len(set(found[len(found) // 2 :])) == 1
    assert 0 < found[-1] < LEAST_FOR_ALL


def test_bytes_are_found_wherever_they_are() -> None:
    """In fields, slots, containers and behind views; each once. Without a window DAGreedy keeps all keys, and that
    is seen."""
    array = np.zeros(1000)

    class Slotted:
        __slots__ = ("a",)

    slotted = Slotted()
    slotted.a = [array, array, {"x": (array[10:],)}]  # type: ignore[attr-defined]
    assert 8000 < memory(slotted) < 9000
    assert memory({number: number for number in range(1000)}) > 20_000
    assert memory(make_router("dagreedy", 64)) < LEAST_FOR_ALL < sizes(make_router("dagreedy", 64), 1_000_000)[-1]
