"""Figure 10: somebody offers five times what one may; those within their limits are measured before and during.

The limit of the one who offers too much is set (``--max-calls-per-second``), so that what two cores can offer is five
times of it. He does not wait after a refusal. The other makes 20 calls a second, open loop: a call that fails or is not
answered counts as infinitely long. Where the machine is too busy for five times, the figure is not measured.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.reliability.taken import Dose, Taken
from tests.attack.tenants import Beside, Call, beside, flood_of, get_plan, small_plan
from tests.attack.victim import ATTACKER, victim

__all__ = ["overloaded"]

_LIMIT, _TIMES = 90, 5.0  # the neighbour and who measures the victim make 80 calls a second in one name
_GOODPUT, _SLOWER = 0.90, 5.0  # the marks
CASES: dict[str, tuple[str, Call]] = {"GetPlan": ("GetPlan", get_plan), "BuildPlan": ("BuildPlan", small_plan)}


def overloaded(dose: Dose) -> Taken:
    found = {name: one(dose.folder / name, verb, call, dose.of(8, 30)) for name, (verb, call) in CASES.items()}
    offered = min(flood for _, flood in found.values()) / _LIMIT
    goodput = min(one.goodput for one, _ in found.values())
    slower = max(one.during[1] / one.before[1] for one, _ in found.values())
    said = "; ".join(
        f"{name}: {flood / _LIMIT:.1f} times the limit, goodput {100 * one.goodput:.1f} %, p99 "
        f"{1000 * one.before[1]:.0f} to {1000 * one.during[1]:.0f} ms"
        for name, (one, flood) in found.items()
    )
    values = {"offered": offered, "goodput": goodput, "slower": slower}
    values["cases"] = {name: str(one) for name, (one, _) in found.items()}
    met = goodput >= _GOODPUT and slower <= _SLOWER
    return Taken(said, met if offered >= _TIMES else None, values)


def one(folder: Path, verb: str, call: Call, seconds: float) -> tuple[Beside, float]:
    """What the neighbour got, and how many calls a second were offered beside."""
    folder.mkdir()
    with victim(folder, "--max-calls-per-second", str(_LIMIT)) as on:
        found = beside(on, call, flood_of(verb, ATTACKER, 2, 400, seconds), alone=seconds)
    return found, sum(float(number.replace(",", "")) for number in re.findall(r"([\d,]+)/s", found.more))
