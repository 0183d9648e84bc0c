"""Which of many connections are closed, where only so many may stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["surplus"]

C = TypeVar("C", bound=Hashable)


def surplus(holders: Mapping[C, str], most: int) -> list[C]:
    """The connections to close so that ``most`` stay: those of whoever has the most, its oldest ones.

    ``holders``: who holds each connection, the oldest first.

    >>> surplus({1: "flood", 2: "flood", 3: "office", 4: "flood", 5: "flood"}, 3)
    [2, 1]
    """
    newer: Counter[str] = Counter()
    ranked: list[tuple[int, int, C]] = []
    for at, (connection, holder) in enumerate(reversed(tuple(holders.items()))):
        ranked.append((newer[holder], at, connection))
        newer[holder] += 1
    return [connection for _, _, connection in sorted(ranked, key=lambda one: one[:2])[most:]]
