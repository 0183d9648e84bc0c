"""Figure 6: three replicas are replaced under load by those of another release, and back; no call may fail.

The release before is the last tag, or what stands for it (``tests/compat/previous.py``).
"""

from __future__ import annotations

from benchmarks.reliability.taken import Dose, Taken
from tests.compat.previous import name_of_previous, unpacked
from tests.service.rolling import Load, of_release, rolled

__all__ = ["rolling_restarts"]

_CALLERS = 4
VERBS = ("GetPlan", "Sync", "BuildPlan")


def rolling_restarts(dose: Dose) -> Taken:
    """Upgrade and undoing; in the full dose twice, under both ways to spread calls."""
    old = unpacked(dose.folder / "before").path
    steps = [of_release(""), of_release(old)] * dose.of(1, 2)
    loads: list[Load] = []
    for policy in ("round_robin", "pick_first")[: dose.of(1, 2)]:
        folder = dose.folder / policy
        folder.mkdir()
        loads.append(rolled(folder, steps, _CALLERS, ("grpc.lb_policy_name", policy), first=old))
    calls = sum(load.calls[verb] for load in loads for verb in VERBS)
    failed = [why for load in loads for why in load.failed]
    replaced = 3 * len(steps) * len(loads)
    said = f"{len(failed)} of {calls:,} in {replaced} replacements between {name_of_previous()[:12]} and this release"
    return Taken(said, not failed, {"calls": calls, "failed": failed[:20], "replaced": replaced})
