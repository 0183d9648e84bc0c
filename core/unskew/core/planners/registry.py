"""Planners by name. To add a planner, register it here: the shared check suite then tests it too."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from unskew.core.errors import ConfigError
from unskew.core.parameters import checked
from unskew.core.planners.auto import Auto
from unskew.core.planners.balanced import Balanced
from unskew.core.planners.base import Planner, PlannerAlgorithm, common
from unskew.core.planners.cg import Cg
from unskew.core.planners.dalton import DaltonPlanner
from unskew.core.planners.explicit.mixed import Mixed
from unskew.core.planners.explicit.readj import Readj
from unskew.core.planners.explicit.redist import Redist
from unskew.core.planners.explicit.scan import Scan
from unskew.core.planners.hashed import HashPlanner
from unskew.core.planners.kip import Kip
from unskew.core.planners.prompt import Prompt

__all__ = ["PLANNERS", "PlannerEntry", "make_planner"]


@dataclass(frozen=True)
class PlannerEntry:
    """A planner as ``unskew policies`` lists it; ``splits``: whether its plans may split keys."""

    algorithm: type[PlannerAlgorithm]
    summary: str
    splits: bool


PLANNERS: dict[str, PlannerEntry] = {
    "hash": PlannerEntry(HashPlanner, "plain hashing: the baseline and the last fallback", splits=False),
    "balanced": PlannerEntry(Balanced, "ours: within one row of even, at most n - 1 cuts", splits=True),
    "prompt": PlannerEntry(Prompt, "Prompt, Algorithm 2: even blocks, even cardinality, few fragments", splits=True),
    "kip": PlannerEntry(Kip, "KIP: heavy keys isolated, never split, few moves between plans", splits=False),
    "readj": PlannerEntry(Readj, "Gedik's Readj, rebuilt: moves and swaps of heavy keys; for comparison", splits=False),
    "redist": PlannerEntry(Redist, "Gedik's Redist, rebuilt: heavy keys anew on the least loaded", splits=False),
    "scan": PlannerEntry(Scan, "Gedik's Scan, rebuilt: heavy keys by balance against migration", splits=False),
    "mixed": PlannerEntry(Mixed, "Fang's Mixed, rebuilt: a bounded table, best load per migration", splits=False),
    "cg": PlannerEntry(Cg, "CG: virtual workers that change hands between busy and idle partitions", splits=True),
    "dalton": PlannerEntry(
        DaltonPlanner, "Dalton: hot keys where partitioners learned that they are worth most", splits=True
    ),
    "auto": PlannerEntry(
        Auto, "ours: does nothing where hashing is good enough, else the cheapest of the others", splits=True
    ),
}


def make_planner(
    name: str, partitions: int, seed: int = 7, weights: ArrayLike | None = None, **parameters: object
) -> Planner:
    """Make a planner by name.

    Parameters
    ----------
    name
        One of ``PLANNERS``, such as "kip" or "auto".
    partitions
        How many partitions its plans have, 1 to 8192.
    seed
        Planners with the same seed and input make the same plan.
    weights
        The relative capacity of each partition; equal where left out.
    **parameters
        The policy's own parameters.

    Returns
    -------
    Planner

    Raises
    ------
    ConfigError
        If the name or a parameter is unknown, or a value is not allowed.

    Examples
    --------
    >>> make_planner("kip", partitions=16, slack=0.1).name
    'kip'
    """
    entry = PLANNERS.get(name)
    if entry is None:
        raise ConfigError("policy", name, PLANNERS)
    chosen = checked(name, entry.algorithm, parameters)
    settings = common(partitions, seed, weights)
    algorithm = entry.algorithm(settings, **chosen)  # type: ignore[call-arg]  # a Protocol has no constructor
    return Planner(name, algorithm, entry.splits)
