"""Routers by name. Registering one here is all it takes: the shared check suite finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unskew.core.errors import ConfigError
from unskew.core.parameters import checked
from unskew.core.routers.affinity import Affinity
from unskew.core.routers.base import Algorithm, Router, common
from unskew.core.routers.cg import ConsistentGrouping
from unskew.core.routers.ch import ConsistentHash
from unskew.core.routers.chbl import BoundedConsistentHash
from unskew.core.routers.cm import Cardinality
from unskew.core.routers.dagreedy import Greedy
from unskew.core.routers.dalton import Dalton
from unskew.core.routers.dchoices import FewestChoices
from unskew.core.routers.hashed import Hashed
from unskew.core.routers.lm import Hybrid
from unskew.core.routers.pk import PartialKey
from unskew.core.routers.porc import RandomChoices
from unskew.core.routers.potc import TwoRandom
from unskew.core.routers.shuffle import Shuffle
from unskew.core.routers.wchoices import AllChoices

__all__ = ["ROUTERS", "Entry", "make_router"]


@dataclass(frozen=True)
class Entry:
    """One line of ``unskew policies``. ``preset`` are parameters that the name stands for."""

    algorithm: type[Algorithm]
    summary: str
    splits: bool
    preset: Mapping[str, object] = field(default_factory=dict)


ROUTERS: dict[str, Entry] = {
    "hash": Entry(Hashed, "key grouping: every key on one worker, by its hash", splits=False),
    "shuffle": Entry(Shuffle, "workers in turn: perfectly even, every key everywhere", splits=True),
    "ch": Entry(ConsistentHash, "consistent hashing: few keys move when workers come and go", splits=False),
    "chbl": Entry(BoundedConsistentHash, "consistent hashing, no worker over 1 + epsilon of the mean", splits=True),
    "potc": Entry(TwoRandom, "two random workers a message, the less loaded gets it", splits=True),
    "pk2": Entry(PartialKey, "partial key grouping: the less loaded of a key's two workers", splits=True),
    "pk5": Entry(PartialKey, "the same with five workers a key", splits=True, preset={"choices": 5}),
    "dchoices": Entry(FewestChoices, "two workers a key, for hot keys as many as balance needs", splits=True),
    "wchoices": Entry(AllChoices, "two workers a key, for hot keys the least loaded of all", splits=True),
    "cm": Entry(Cardinality, "Holistic's CM: of a key's two workers the one with fewer keys", splits=True),
    "am": Entry(Affinity, "Holistic's AM: whole inside a window, new keys where fewer keys are", splits=True),
    "cam": Entry(
        Affinity,
        "Holistic's cAM: whole inside a window, new keys where fewer rows are",
        splits=True,
        preset={"by": "rows"},
    ),
    "lm": Entry(Hybrid, "Holistic's LM: rows and keys weighed", splits=True),
    "dagreedy": Entry(Greedy, "hot keys by load and by who holds them already, the rest by hash", splits=True),
    "porc": Entry(RandomChoices, "PoRC: a key's salted hashes until a worker has room", splits=True),
    "dalton": Entry(Dalton, "Dalton: where to send hot keys is learned, the rest by hash", splits=True),
    "cg": Entry(ConsistentGrouping, "CG: PoRC over virtual workers, which real workers own by capacity", splits=True),
}


def make_router(
    name: str,
    workers: int,
    seed: int = 7,
    window: float | None = None,
    slide: float | None = None,
    **parameters: object,
) -> Router:
    """The router of this name. Unknown names and parameters raise ``ConfigError``.

    >>> import numpy as np
    >>> router = make_router("pk2", workers=4, window=60_000, slide=1_000)
    >>> router.route(np.array([1, 2, 1], np.uint64)).shape
    (3,)
    """
    entry = ROUTERS.get(name)
    if entry is None:
        raise ConfigError("router", name, ROUTERS)
    chosen = checked(name, entry.algorithm, {**entry.preset, **parameters})
    settings = common(workers, seed, window, slide)
    return Router(name, entry.algorithm(settings, **chosen))  # type: ignore[call-arg]  # a Protocol has no constructor
