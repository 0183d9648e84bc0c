"""Watches that are open here: bounded as a whole, and no identity has more of them than there is room left.

So one identity alone has half of the bound, two have a third each, and there is room for one that has none yet. Where
nobody needs a credential all are one identity, and only the whole is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from unskew.service.errors import LimitError

__all__ = ["Watchers"]


class Watchers:
    def __init__(self, most: int, *, fair: bool) -> None:
        self._most, self._fair = most, fair
        self._of: Counter[str] = Counter()

    @contextmanager
    def one_more(self, name: str, own: int | None = None) -> Iterator[None]:
        """A watch of this identity while the block lasts; a ``LimitError`` where there is no room for it. ``own``: how
        many it may have, if its credential says so."""
        left = self._most - self._of.total()
        if left <= 0 or self._of[name] >= (own or (left if self._fair else self._most)):
            bound = "than there is room left" if own is None else f"than {own}"
            raise LimitError(
                f"{self._of.total()} of at most {self._most} watches are open here, {self._of[name]} of {name}, which "
                f"may not have more {bound}; try again, perhaps elsewhere",
                reason="watches",
                retry=1.0,
            )
        self._of[name] += 1
        try:
            yield
        finally:
            self._of[name] -= 1
            self._of = +self._of
