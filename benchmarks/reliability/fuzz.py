"""Figure 9: inputs of tests/fuzz over both faces, until there were so many; fresh ones in each run.

A service in a process of its own; what it holds and logs is looked at after each turn. The faces take turns. Most
inputs go over gRPC, where one costs half a millisecond and a request over HTTP some.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.reliability.taken import Dose, Taken
from tests.fuzz.judge import Judge
from tests.fuzz.runs import halves, of_long, warm
from tests.fuzz.target import Target, started
from tests.fuzz.test_grpc import run_broken, run_built, run_bytes
from tests.fuzz.test_openapi import run_bodies, run_documented, run_odd

__all__ = ["fuzzed"]

Run = Callable[[Target, Judge, int, int], None]
SHARES: dict[str, dict[Run, float]] = {
    "gRPC": {run_built: 0.25, run_broken: 0.45, run_bytes: 0.2},
    "HTTP": {run_bodies: 0.06, run_odd: 0.03, run_documented: 0.01},
}
_TURN = 20_000  # inputs of both halves of a turn, over both faces


def fuzzed(dose: Dose) -> Taken:
    wanted, seed = 6_000 if dose.quick else dose.inputs, of_long()
    answered, faults = dict.fromkeys(SHARES, 0), list[str]()
    with started("memory") as target:
        warm(target)
        while sum(answered.values()) < wanted:
            for face in SHARES:
                judge = turn(target, face, min(_TURN, wanted), seed + sum(answered.values()), faults)
                answered[face] += judge.answered
    total = sum(answered.values())
    more = "" if dose.quick or wanted >= 1_000_000 else f", of the {1_000_000:,} of the mark"
    each = ", ".join(f"{count:,} over {face}" for face, count in answered.items())
    said = f"{len(faults)} of {total:,} ({each}; seed {seed}){more}"
    return Taken(said, not faults, {"inputs": answered, "faults": faults[:20], "seed": seed})


def turn(target: Target, face: str, inputs: int, seed: int, faults: list[str]) -> Judge:
    """Two halves of one face, alike; after them what the service holds must not have grown."""
    judge = Judge()
    try:
        for number in halves(target, judge, seed):
            for run, share in SHARES[face].items():
                run(target, judge, max(24, round(inputs * share / 2)), number)
    except AssertionError as why:
        faults.append(str(why)[:2000])
    return judge
