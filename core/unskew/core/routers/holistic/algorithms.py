"""Holistic's routers CM, AM, cAM and LM (Algorithms 2 to 5): of a key's choices the worker that is best by a rule.

All take ``choices`` workers a key, 2 or 5 in the paper, and ``cardinality``: "exact", or "hll" with 2**register_bits
registers a worker. Counts start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.kernels.holistic import BY_HYBRID, BY_KEYS, BY_ROWS
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.holistic.sets import HolisticRule, Memory, memory

__all__ = ["Affinity", "Cardinality", "Hybrid"]

_RULES = {"keys": BY_KEYS, "rows": BY_ROWS}


@dataclass(eq=False)
class Cardinality:
    """Cardinality imbalance minimization (CM, Algorithm 2): the worker with fewest keys.

    Evens distinct keys, and is blind to rows and to what it splits: a key may go to all of its choices.
    """

    common: RouterSettings
    choices: int = 2
    cardinality: str = "exact"
    register_bits: int = 12
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self._memory = memory(self.common, self.choices, HolisticRule(BY_KEYS), self.cardinality, self.register_bits)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._memory.route(keys, slides, out)


@dataclass(eq=False)
class Affinity:
    """Group affinity with imbalance minimization (AM and cAM, Algorithms 3 and 4, which differ in one word).

    A key stays in its window with the choice that has it; a new one goes to the choice with fewest keys (AM: ``by`` is
    "keys") or fewest rows (cAM: "rows"). With exact sets no key is ever split inside a window; with HyperLogLog some
    new keys are mistaken for old ones, and some old ones change their worker (``quality.split_share`` says how many).
    ``as_published`` (for "hll" alone) takes the first choice that seems to have a key instead of the likeliest one.
    """

    common: RouterSettings
    choices: int = 2
    by: str = "keys"
    cardinality: str = "exact"
    register_bits: int = 12
    as_published: bool = False
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        if self.by not in _RULES:
            raise ConfigError("by", self.by, _RULES)
        rule = HolisticRule(_RULES[self.by], affinity=True, published=self.as_published)
        self._memory = memory(self.common, self.choices, rule, self.cardinality, self.register_bits)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._memory.route(keys, slides, out)


@dataclass(eq=False)
class Hybrid:
    """Hybrid imbalance minimization (LM, Algorithm 5 and Eq. 7-9): rows and keys, weighed.

    ``H = p L' + (1 - p) C'`` with both loads min-max scaled over all workers, 0 where all are equal. ``bias`` is the
    paper's p: 1 looks at rows only, 0 at keys only. The listing of Algorithm 5 adds raw loads instead, so that rows,
    being more, decide alone: that is ``as_published=True``.
    """

    common: RouterSettings
    choices: int = 2
    bias: float = 0.5
    as_published: bool = False
    cardinality: str = "exact"
    register_bits: int = 12
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        check_range("bias", self.bias, 0, 1)
        rule = HolisticRule(BY_HYBRID, bias=float(self.bias), published=self.as_published)
        self._memory = memory(self.common, self.choices, rule, self.cardinality, self.register_bits)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        self._memory.route(keys, slides, out)
