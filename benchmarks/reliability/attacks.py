"""Figure 15: each attack of tests/attack on a replica of its own: its memory at the worst, and how others fare."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.reliability.taken import Dose, Taken
from tests.attack.measure import FEW, FULL, Suffered, redis_of_600_mb, suffered, tenants
from tests.attack.tenants import Beside
from tests.attack.victim import victim

__all__ = ["attacked"]

_PEAK, _SLOWER = 1536, 3.0  # the marks: megabytes, and times of the p99 before
_QUICK = ("a  140 messages of 16 MB, no credential", "c  3,000 slow headers", "i  overload by GetPlan; GetPlan")


def attacked(dose: Dose) -> Taken:
    names = [name for name in FULL if not dose.quick or name in _QUICK]
    alone = {name: one(dose.folder / str(number), name) for number, name in enumerate(names)}
    beside = {
        name: neighbour(dose.folder / f"tenant-{number}", name)
        for number, name in enumerate(tenants())
        if not dose.quick or name in _QUICK
    }
    return judged(alone, beside)


def one(folder: Path, name: str) -> Suffered:
    folder.mkdir()
    flags = FEW if name.startswith("e") else ()
    with ExitStack() as stack:
        if "Redis" in name:
            flags = ("--store", stack.enter_context(redis_of_600_mb(folder)).url)
        return suffered(stack.enter_context(victim(folder, *flags)), FULL[name])


def neighbour(folder: Path, name: str) -> tuple[Beside, int]:
    folder.mkdir()
    flags, attack = tenants()[name]
    with victim(folder, *flags) as on:
        on.forget_peak()
        return attack(on), on.peak


def judged(alone: dict[str, Suffered], beside: dict[str, tuple[Beside, int]]) -> Taken:
    peak = max([one.peak for one in alone.values()] + [held for _, held in beside.values()])
    slower = {name: one.during_p99 / one.before_p99 for name, one in alone.items()}
    slower |= {name: one.during[1] / one.before[1] for name, (one, _) in beside.items()}
    after = {name: one.after_p99 / one.before_p99 for name, one in alone.items()}
    late = [name for name, times in slower.items() if times > _SLOWER]
    back = [name for name, times in after.items() if times > _SLOWER]
    worst = max(slower, key=lambda name: slower[name])
    said = (
        f"{len(slower)} attacks: peak {peak:,} MB; p99 of the others at most {slower[worst]:.1f} times "
        f"({' '.join(worst.split())}), above {_SLOWER:.0f} times in {len(late)}, and 5 s later still in {len(back)}"
    )
    values = {"peak": peak, "slower": slower, "after": after, "rows": {n: str(o) for n, o in alone.items()}}
    values["tenants"] = {name: str(one) for name, (one, _) in beside.items()}
    return Taken(said, peak < _PEAK and not late and not back, values)
