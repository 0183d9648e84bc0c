"""Routers by name. To add a router, register it here: the shared check suite then tests it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unskew.core.errors import ConfigError
from unskew.core.parameters import checked
from unskew.core.routers.base import Router, RouterAlgorithm, common
from unskew.core.routers.cg import ConsistentGrouping
from unskew.core.routers.consistent.ch import ConsistentHash
from unskew.core.routers.consistent.chbl import BoundedConsistentHash
from unskew.core.routers.dagreedy import Greedy
from unskew.core.routers.dalton import DaltonRouter
from unskew.core.routers.dchoices import FewestChoices
from unskew.core.routers.hashed import HashRouter
from unskew.core.routers.holistic.affinity import Affinity
from unskew.core.routers.holistic.cm import Cardinality
from unskew.core.routers.holistic.lm import Hybrid
from unskew.core.routers.pk import PartialKey
from unskew.core.routers.porc import RandomChoices
from unskew.core.routers.potc import TwoRandom
from unskew.core.routers.shuffle import Shuffle
from unskew.core.routers.wchoices import AllChoices

__all__ = ["ROUTERS", "RouterEntry", "make_router"]


@dataclass(frozen=True)
class RouterEntry:
    """A router as ``unskew policies`` lists it. ``preset`` are the parameters that its name implies."""

    algorithm: type[RouterAlgorithm]
    summary: str
    splits: bool
    preset: Mapping[str, object] = field(default_factory=dict)


ROUTERS: dict[str, RouterEntry] = {
    "hash": RouterEntry(HashRouter, "key grouping: every key on one worker, by its hash", splits=False),
    "shuffle": RouterEntry(Shuffle, "workers in turn: perfectly even, every key everywhere", splits=True),
    "ch": RouterEntry(ConsistentHash, "consistent hashing: few keys move when workers come and go", splits=False),
    "chbl": RouterEntry(
        BoundedConsistentHash, "consistent hashing, no worker over 1 + epsilon of the mean", splits=True
    ),
    "potc": RouterEntry(TwoRandom, "two random workers a message, the less loaded gets it", splits=True),
    "pk2": RouterEntry(PartialKey, "partial key grouping: the less loaded of a key's two workers", splits=True),
    "pk5": RouterEntry(PartialKey, "the same with five workers a key", splits=True, preset={"choices": 5}),
    "dchoices": RouterEntry(FewestChoices, "two workers a key, for hot keys as many as balance needs", splits=True),
    "wchoices": RouterEntry(AllChoices, "two workers a key, for hot keys the least loaded of all", splits=True),
    "cm": RouterEntry(Cardinality, "Holistic's CM: of a key's two workers the one with fewer keys", splits=True),
    "am": RouterEntry(Affinity, "Holistic's AM: whole inside a window, new keys where fewer keys are", splits=True),
    "cam": RouterEntry(
        Affinity,
        "Holistic's cAM: whole inside a window, new keys where fewer rows are",
        splits=True,
        preset={"by": "rows"},
    ),
    "lm": RouterEntry(Hybrid, "Holistic's LM: rows and keys weighed", splits=True),
    "dagreedy": RouterEntry(Greedy, "hot keys by load and by who holds them already, the rest by hash", splits=True),
    "porc": RouterEntry(RandomChoices, "PoRC: a key's salted hashes until a worker has room", splits=True),
    "dalton": RouterEntry(DaltonRouter, "Dalton: where to send hot keys is learned, the rest by hash", splits=True),
    "cg": RouterEntry(
        ConsistentGrouping, "CG: PoRC over virtual workers, which real workers own by capacity", splits=True
    ),
}


def make_router(
    name: str,
    workers: int,
    seed: int = 7,
    window: float | None = None,
    slide: float | None = None,
    **parameters: object,
) -> Router:
    """Make a router by name.

    Parameters
    ----------
    name
        One of ``ROUTERS``, such as "pk2" or "dalton".
    workers
        How many workers there are, 1 to 8192.
    seed
        Routers with the same seed and stream give the same answers.
    window, slide
        The length of the sliding window of loads and of its slides, in tuples, or in seconds where tuples have times.
        Without a window, loads count from the beginning.
    **parameters
        The algorithm's own parameters.

    Returns
    -------
    Router

    Raises
    ------
    ConfigError
        If the name or a parameter is unknown, or a value is not allowed.

    Examples
    --------
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
