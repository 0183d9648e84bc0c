"""Consistent Grouping (CG, section 5): PoRC over virtual workers, each of which a real worker owns.

Keys are placed as ``porc`` places them, but over ``alpha`` virtual workers a worker, so that each virtual worker
carries the same load (within 1 + epsilon), and a worker's load is proportional to how many it owns. A router by itself
gets no signals: every worker owns ``alpha``, so it routes for equal workers. The driver of the paper's delegation
(``papers/grouping.py``) gives each source the new map between two batches with ``adopt``: the map is shared, the loads
are each source's own (section 7, Q3). Sources must have the same seed, so that a key's choices are the same everywhere.

Deviations:
- 5.2.1 puts virtual workers on a circle. PoRC never uses a position on it, so there is no circle here.
- ``phase`` is ours. A capacity is a whole number, so it grows by steps, and sources at the same step fill the same
  virtual workers at the same time: with 100 sources no slot is even (docs/decisions, 0009). A source with phase f
  computes its capacity from f rows more a virtual worker; phases j / P spread the steps of P sources evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.kernels import grouping as kernels
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings, longer_log

__all__ = ["ConsistentGrouping"]


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
        check_range("alpha", self.alpha, 1, _MOST, f"1 to {_MOST} virtual workers a worker")
        check_range("epsilon", self.epsilon, 0, 100)
        check_range("phase", self.phase, 0, 1, "0 to 1 row a virtual worker")
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
        """The number of virtual workers; it never changes."""
        return int(self.alpha * self.common.workers)

    @property
    def owners(self) -> I32:
        """The real worker of each virtual worker."""
        return self._owners.copy()

    @property
    def loads(self) -> I64:
        """The rows in the window that this source sent to each virtual worker."""
        return self._rows.load.copy()

    def adopt(self, owners: ArrayLike) -> None:
        """Route the rows from now on by this map. It may name workers beyond n: those that joined later."""
        new_owners = np.asarray(owners)
        if new_owners.shape != (self.virtual,) or new_owners.dtype.kind not in "iu":
            raise ConfigError(
                "owners",
                f"{new_owners.dtype} of shape {new_owners.shape}",
                f"one worker for each of the {self.virtual} virtual",
            )
        if not 0 <= (low := int(new_owners.min())) <= (high := int(new_owners.max())) < MAX_PARTITIONS:
            raise ConfigError("owners", low if low < 0 else high, f"workers 0 to {MAX_PARTITIONS - 1}")
        self._owners = new_owners.astype(np.int32)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self.place(keys, slides, out)
        out[:] = self._owners[out]

    def place(self, keys: U64, slides: I64, out: I32) -> None:
        """The virtual worker of each tuple."""
        routed, windowed, ahead = 0, int(self.common.window is not None), int(self.phase * self.virtual)
        salt, over = self.common.salt(0), float(self.epsilon)
        while True:
            routed = kernels.route_virtual(
                keys, slides, out, routed, salt, over, windowed, ahead, self._rows, self._memo
            )
            if routed == len(keys):
                return
            rows = self._rows
            log = longer_log(rows.log, rows.books[kernels.TAIL], rows.books[kernels.HEAD])
            self._rows = rows._replace(log=log)
