"""DAGreedy, the greedy baseline of Dalton's experiments: hot keys by load and by fragments, the rest by hash.

A key with more than 1 / (100 n) of the window's rows goes to the worker with the highest ``0.5 [it holds the key] - 0.5
(L_w - mean) / mean``, the lowest on ties; the others where ``hash`` sends them. Reconstructed from FIDELITY's line.
Frequencies, loads and holders are exact and of the same span: the sliding window, reference-counted per slide (Dalton,
section 3.3), so memory grows with the distinct (key, worker, slide) in a window. Without a window they are of the whole
stream, and memory grows with all its keys. The current row counts, so among fewer than 100 n rows every key is hot.
Scores are whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.histogram.histogram import host_of
from unskew.core.kernels import greedy as kernels
from unskew.core.kernels.key_table import copy_cells
from unskew.core.limits import host_bits
from unskew.core.parameters import check_range
from unskew.core.planners.base import common as plan_settings
from unskew.core.planners.hashed import hash_tail
from unskew.core.routers.base import Loads, RouterSettings, longer_log
from unskew.core.routers.frequent import tournament_tree

__all__ = ["Greedy"]

_FIRST_ROOM = 1024


@dataclass(eq=False)
class Greedy:
    """``share``: a key is hot over 1 / (share n) of the rows; 100 in FIDELITY's line."""

    common: RouterSettings
    share: int = 100
    _ledger: kernels.Ledger = field(init=False)

    def __post_init__(self) -> None:
        check_range("share", self.share, 1, 1_000_000)
        n = self.common.workers
        self._tail = hash_tail(plan_settings(n))
        self._loads = Loads.of(self.common)
        self._tree = tournament_tree(n)
        log = 0 if self.common.window is None else _FIRST_ROOM
        self._ledger = kernels.Ledger(
            np.zeros(_FIRST_ROOM, np.uint64), np.zeros((_FIRST_ROOM, 2), np.int64),
            np.zeros((_FIRST_ROOM, 5), np.int64), np.zeros(2 * _FIRST_ROOM, np.int64), np.zeros((log, 2), np.int64),
            np.zeros(self.common.slides, np.int64), np.zeros(7, np.int64),
        )  # fmt: skip

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        homes, routed, at = self._tail.take(host_of(keys, host_bits(self.common.workers))), 0, self._loads
        while True:
            routed = kernels.route_greedy(
                keys, homes, slides, out, routed, int(self.share), at.clock, at.ring, at.load, self._tree, self._ledger
            )
            if routed == len(keys):
                return
            self._grow()

    def _grow(self) -> None:
        """Double the log, or else the keys, the pairs and the table of keys."""
        of = self._ledger
        tail, head = int(of.books[kernels.TAIL]), int(of.books[kernels.HEAD])
        if 0 < len(of.log) == head - tail:
            self._ledger = of._replace(log=longer_log(of.log, tail, head))
            return
        full = of.slot_keys, of.entry, of.pair
        slot_keys, entry, pair = (np.concatenate([part, np.zeros_like(part)]) for part in full)
        table = np.zeros(2 * len(of.table), np.int64)
        copy_cells(slot_keys, of.table, table)
        self._ledger = of._replace(slot_keys=slot_keys, entry=entry, pair=pair, table=table)
