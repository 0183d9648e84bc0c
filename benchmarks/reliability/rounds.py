"""Figures 4 and 5: rounds over failovers of a real Redis, and rounds in a world that is checked at every step."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

from benchmarks.failovers import Books, run, topology_of
from benchmarks.reliability.taken import Dose, Taken
from tests.property.checked_rounds.walks import random_walk

__all__ = ["failed_over", "walked"]

_STEPS = 600
_KINDS = ("sentinel", "cluster")


def failed_over(dose: Dose) -> Taken:
    """As many failovers of each kind, under the load of real clients."""
    logging.getLogger("unskew").setLevel(logging.ERROR)  # of agents whose calls fail, as they should here
    times = dose.of(3, 100)
    found = {kind: asyncio.run(_failovers(kind, times)) for kind in _KINDS}
    lost, doubled = (sum(getattr(books, what) for books in found.values()) for what in ("lost", "doubled"))
    said = f"{lost} lost, {doubled} doubled in {times} failovers of Sentinel and {times} of a cluster"
    return Taken(said, lost + doubled == 0, {kind: str(books) for kind, books in found.items()} | {"times": times})


async def _failovers(kind: str, times: int) -> Books:
    with tempfile.TemporaryDirectory() as folder:
        async with topology_of(kind, Path(folder)) as (topology, url):
            return await run(topology, url, times)


def walked(dose: Dose) -> Taken:
    """Random walks of as many steps; a walk ends with the first promise that is broken."""
    wanted, steps, broken = dose.of(20_000, 1_000_000), 0, []
    seed = 0
    while steps < wanted:
        walk = random_walk(seed, _STEPS)
        steps += walk.steps
        if walk.broken:
            broken.append(f"seed {seed}: {walk.broken}")
        seed += 1
    more = f": {broken[0]}" if broken else ""
    return Taken(f"{len(broken)} of {steps:,}{more}", not broken, {"steps": steps, "walks": seed, "broken": broken})
