"""How full a store is, and what it still takes: the large is refused before the small, so that small calls go on."""

from __future__ import annotations

from time import monotonic

from unskew.service.errors import QuotaError

__all__ = ["Fullness"]

_LARGE = 1 << 20
_MOST_LARGE, _MOST = 0.8, 0.9  # share of the store up to which what is large is taken, and histograms and plans at all
_FRESH = 0.5  # seconds for which a reading serves large writes; and a fiftieth of the store


class Fullness:
    """``store``: what it is called in errors; ``bound``: what bounds it. Of 0 bytes in all nothing is known."""

    def __init__(self, store: str, bound: str) -> None:
        self._store, self._bound = store, bound
        self.used = self.most = 0
        self._at, self._since = 0.0, 0

    @property
    def share(self) -> float:
        return self.used / self.most if self.most else 0.0

    def read(self, used: int, most: int) -> None:
        """So many bytes of so many are in use."""
        self.used, self.most, self._at, self._since = used, most, monotonic(), 0

    def wrote(self, size: int) -> None:
        """This replica has added so much since."""
        self.used += size
        self._since += size

    def stale(self, size: int) -> bool:
        """Whether to read it before a write of this size."""
        old = monotonic() - self._at > _FRESH or self._since > self.most // 50
        return size >= _LARGE // 16 and old

    def check(self, size: int, *, small: bool = False) -> None:
        """Refuse a write of this size where it is too large for what is left. ``small``: reports of batches and of
        agents, which are only refused where they are large."""
        most = _MOST_LARGE if size >= _LARGE else 1.0 if small else _MOST
        if self.most and self.used + size > most * self.most:
            what = "reports and plans of 1 MiB" if size >= _LARGE else "histograms and plans"
            raise QuotaError(
                "store",
                f"store: {self._store} has {self.used:,} of {self.most:,} bytes in use ({self._bound}), and takes "
                f"{what} up to {most:.0%} only, so that small reports have room; delete streams, or give it more",
            )
