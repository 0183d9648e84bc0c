"""Consistent Grouping (CG, section 5): PoRC over virtual workers, each of which a real worker owns.

Keys are placed as ``porc`` places them, but over ``alpha`` virtual workers a worker, so that each virtual worker
carries the same load (within 1 + epsilon) and a worker's load is how many it owns. A router alone hears no signals:
every worker owns ``alpha``, and it routes for equal workers. Whoever drives ``grouping.Grouping`` tells each source
the new map between two batches with ``adopt``: the map is shared, the loads are each source's own (section 7, Q3).
Sources must have the same seed, so that a key's choices are the same everywhere.

- 5.2.1 puts virtual workers on a circle: with PoRC no position on it is ever asked for, so there is none.
- ``phase`` is ours. A capacity is a whole number, so it grows by steps, and many sources at the same step fill the same
  virtual workers at the same time: with 100 of them no slot is even (docs/decisions, 0009). A source at phase f counts
  f rows more in the mean; with phases j / P the steps of P sources are spread evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.errors import ConfigError
from unskew.core.kernels import grouping as kernels
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.routers.base import RouterSettings, check_share

__all__ = ["ConsistentGrouping"]

I32 = NDArray[np.int32]

_FIRST_ROOM = 1024
_MOST = 1000


@dataclass(eq=False)
class ConsistentGrouping:
    """``alpha`` virtual workers a worker: 10 in most of the paper's figures, 100 in its best; ``epsilon`` as there;
    ``phase`` j / P for the j-th of P sources."""

    common: RouterSettings
    alpha: int = 100
    epsilon: float = 0.01
    phase: float = 0.0
    _owners: I32 = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.alpha <= _MOST:
            raise ConfigError("alpha", self.alpha, f"1 to {_MOST} virtual workers a worker")
        check_share("epsilon", self.epsilon)
        if not 0.0 <= self.phase <= 1.0:
            raise ConfigError("phase", self.phase, "0 to 1 row a virtual worker")
        self._owners = (np.arange(self.virtual) % self.common.workers).astype(np.int32)
        windowed = self.common.window is not None
        self._rows = kernels.GroupingRows(
            np.zeros(3, np.int64),
            np.zeros(self.common.slides, np.int64),
            np.zeros(_FIRST_ROOM if windowed else 0, np.int32),
            np.zeros(self.virtual, np.int64),
            np.zeros(4, np.int64),
        )
        none = np.zeros(kernels.MEMO, np.uint64)
        self._memo = kernels.Memo(none, none.copy(), np.full((kernels.MEMO, 3), -1, np.int64))

    @property
    def virtual(self) -> int:
        """How many virtual workers there are; it never changes."""
        return int(self.alpha * self.common.workers)

    @property
    def owners(self) -> I32:
        """The real worker of each virtual worker."""
        return self._owners.copy()

    @property
    def loads(self) -> NDArray[np.int64]:
        """Rows of each virtual worker in the window, as this source sent them."""
        return self._rows.load.copy()

    def adopt(self, owners: ArrayLike) -> None:
        """Send the rows from now on by this map. Workers that joined later may be in it, so it may name n or more."""
        given = np.asarray(owners)
        if given.shape != (self.virtual,) or given.dtype.kind not in "iu":
            raise ConfigError(
                "owners", f"{given.dtype} of shape {given.shape}", f"one worker for each of the {self.virtual} virtual"
            )
        if not 0 <= (low := int(given.min())) <= (high := int(given.max())) < MAX_PARTITIONS:
            raise ConfigError("owners", low if low < 0 else high, f"workers 0 to {MAX_PARTITIONS - 1}")
        self._owners = given.astype(np.int32)

    def step(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: I32) -> None:
        self.place(keys, slides, out)
        out[:] = self._owners[out]

    def place(self, keys: NDArray[np.uint64], slides: NDArray[np.int64], out: I32) -> None:
        """The virtual worker of each tuple."""
        done, windowed, ahead = 0, int(self.common.window is not None), int(self.phase * self.virtual)
        salt, over = self.common.salt(0), float(self.epsilon)
        while True:
            done = kernels.route_virtual(keys, slides, out, done, salt, over, windowed, ahead, self._rows, self._memo)
            if done == len(keys):
                return
            self._grow()

    def _grow(self) -> None:
        """Twice the room for the rows of the window."""
        rows = self._rows
        at = np.arange(rows.books[kernels.TAIL], rows.books[kernels.HEAD])
        log = np.zeros(2 * len(rows.log), np.int32)
        log[at & (len(log) - 1)] = rows.log[at & (len(rows.log) - 1)]
        self._rows = rows._replace(log=log)
