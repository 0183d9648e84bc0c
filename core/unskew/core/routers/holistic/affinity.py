"""Group affinity with imbalance minimization (AM and cAM; Holistic, Algorithms 3 and 4, which differ in one word).

A key stays in its window with the choice that has it; a new one goes to the choice with fewest keys (AM) or fewest rows
(cAM). With exact sets no key is ever split inside a window; with HyperLogLog some new keys are mistaken for old ones,
and some old ones change their worker (``quality.split_share`` says how many). Counts start anew with each window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.kernels.holistic import BY_KEYS, BY_ROWS
from unskew.core.routers.base import RouterSettings
from unskew.core.routers.holistic.sets import HolisticRule, Memory, memory

__all__ = ["Affinity"]

_RULES = {"keys": BY_KEYS, "rows": BY_ROWS}


@dataclass(eq=False)
class Affinity:
    """``choices`` workers a key: 2 or 5 in the paper. ``by`` is what a new key looks at: "keys" or "rows".

    ``cardinality`` is "exact" or "hll", with 2**register_bits registers a worker. ``as_published`` (for "hll" alone)
    takes the first choice that seems to have a key instead of the likeliest one.
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
