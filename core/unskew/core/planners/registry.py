"""Planners by name. Registering one here is all it takes: the shared check suite finds it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from numpy.typing import ArrayLike

from unskew.core.errors import ConfigError
from unskew.core.planners.auto import Auto
from unskew.core.planners.balanced import Balanced
from unskew.core.planners.base import Algorithm, Planner, common
from unskew.core.planners.cg import Cg
from unskew.core.planners.hashed import Hashed
from unskew.core.planners.kip import Kip
from unskew.core.planners.mixed import Mixed
from unskew.core.planners.prompt import Prompt
from unskew.core.planners.readj import Readj
from unskew.core.planners.redist import Redist
from unskew.core.planners.scan import Scan

__all__ = ["PLANNERS", "Entry", "make_planner", "parameters_of"]


@dataclass(frozen=True)
class Entry:
    """One line of ``unskew policies``."""

    algorithm: type[Algorithm]
    summary: str
    splits: bool


PLANNERS: dict[str, Entry] = {
    "hash": Entry(Hashed, "plain hashing: the baseline and the last fallback", splits=False),
    "balanced": Entry(Balanced, "ours: within one row of even, at most n - 1 cuts", splits=True),
    "prompt": Entry(Prompt, "Prompt, Algorithm 2: even blocks, even cardinality, few fragments", splits=True),
    "kip": Entry(Kip, "KIP: heavy keys isolated, never split, few moves between plans", splits=False),
    "readj": Entry(Readj, "Gedik's Readj, rebuilt: moves and swaps of heavy keys; for comparison", splits=False),
    "redist": Entry(Redist, "Gedik's Redist, rebuilt: heavy keys anew on the least loaded", splits=False),
    "scan": Entry(Scan, "Gedik's Scan, rebuilt: heavy keys by balance against migration", splits=False),
    "mixed": Entry(Mixed, "Fang's Mixed, rebuilt: a bounded table, best load per migration", splits=False),
    "cg": Entry(Cg, "CG: virtual workers that change hands between busy and idle partitions", splits=True),
    "auto": Entry(
        Auto, "ours: does nothing where hashing is good enough, else the cheapest of the others", splits=True
    ),
}


def parameters_of(name: str) -> dict[str, object]:
    """The parameters of a planner beyond the common ones, and their defaults."""
    every = fields(PLANNERS[name].algorithm)  # type: ignore[arg-type]
    return {field.name: field.default for field in every if field.init and field.name != "common"}


def _like(default: object, value: object) -> bool:
    """Whether a value is of the kind that the default is of; None stands for an optional whole number."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if default is None:
        return value is None or isinstance(value, int)
    return isinstance(value, type(default))


def make_planner(
    name: str, partitions: int, seed: int = 7, weights: ArrayLike | None = None, **parameters: object
) -> Planner:
    """The planner of this name. Unknown names and parameters raise ``ConfigError``.

    >>> make_planner("kip", partitions=16, slack=0.1).name
    'kip'
    """
    entry = PLANNERS.get(name)
    if entry is None:
        raise ConfigError("policy", name, PLANNERS)
    known = parameters_of(name)
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ConfigError(f"{name} parameter", parameter, known or "none: it has no parameters")
        if not _like(known[parameter], value):
            raise ConfigError(parameter, value, f"a value like its default, {known[parameter]!r}")
    return Planner(name, entry.algorithm(common(partitions, seed, weights), **parameters))  # type: ignore[call-arg]
