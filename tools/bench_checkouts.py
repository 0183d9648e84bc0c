"""Run benchmarks of two checkouts in turns and say whether OTHER is slower than BASE, beyond noise.

    python tools/bench_checkouts.py BASE OTHER [--bench routers plan_cost wire service_rpc spark_native] [--rounds N]

A round is four runs, BASE OTHER OTHER BASE (the next one the other way about), each in its checkout's own interpreter.
What a benchmark prints is read into figures, all as costs: less is better, a rate is turned over. The ratio of a figure
is the median of OTHER / BASE over the pairs of neighbouring runs; its noise is the spread between the two runs of the
same code in a round, and never less than what is usual in its benchmark. A figure fails where its ratio is above 1.03
even at the lower end of its noise; a benchmark with such a figure is run as many rounds again before it is said.
"all" is the mean of a benchmark's figures. Exit code 1: a figure is worse, or is in one checkout only. Figures whose
noise is above 10 % are counted: on a busy machine nothing is worse beyond noise, and that proves little.

routers, plan_cost and wire are timed by processor time, which other work on the machine hardly touches; service_rpc
says "server us", which is processor time too, beside rates. Doses are short; ``--full`` takes each benchmark's own.
Nothing is written into the checkouts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from checkouts.benches import BENCHES, LAUNCH, Figures, figures

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = math.log(1.03)
VAGUE = math.log(1.1)  # noise above which a ratio says little
WIDTH = 3.25  # standard errors: 99 % for a mean, a quarter more for a median

# -- running ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkout:
    root: Path
    python: Path
    caches: Path

    def run(self, name: str, *, full: bool) -> Figures:
        bench, away = BENCHES[name], ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        environment = {key: value for key, value in os.environ.items() if key not in away}
        environment |= {"NUMBA_CACHE_DIR": f"{self.caches}/kernels", "PYTHONPYCACHEPREFIX": f"{self.caches}/code"}
        environment |= {"PYTHONHASHSEED": "0"}
        constants, defaults = json.dumps({} if full else bench.constants), json.dumps({} if full else bench.defaults)
        dose = () if full else bench.arguments
        clock = "processor" if bench.processor_time else ""
        command = [str(self.python), "-c", LAUNCH, name, constants, defaults, clock, *dose]
        for attempt in (1, 2):  # on a busy machine a service may come up too late
            done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
            print(f"  {self.root}: {name} failed, attempt {attempt}", flush=True)
        else:
            print(f"{self.root}: {name} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
            raise SystemExit(2)
        return figures(name, done.stdout)


Round = list[tuple[str, Figures]]  # four runs, in order: "A" is BASE, "B" is OTHER


def rounds(name: str, sides: dict[str, Checkout], numbers: range, *, full: bool) -> list[Round]:
    found = []
    for number in numbers:
        order = "BAAB" if number % 2 else "ABBA"
        found.append([(side, sides[side].run(name, full=full)) for side in order])
        print(f"  {name}: round {number + 1} done", flush=True)
    return found


# -- judging ----------------------------------------------------------------------------------------------------


def spread(each: list[Round], what: str) -> float:
    """The root of the mean squared difference of two runs of the same code, and what rounding adds to it."""
    costs = [[math.log(run[what][0]) for side, run in one if side == which] for one in each for which in "AB"]
    digits = max(run[what][1] for one in each for _, run in one)
    return math.sqrt(statistics.fmean((a - b) ** 2 for a, b in costs) + 2 / 3 * digits**2)


def judged(each: list[Round]) -> dict[str, tuple[float, float]]:
    """Of each figure that all runs have: the logarithm of OTHER / BASE, and the noise of it."""
    common = [what for what in each[0][0][1] if all(what in run for one in each for _, run in one)]
    noise = {what: spread(each, what) for what in common}
    usual = statistics.median(noise[what] for what in common)
    out = {}
    for what in common:
        pairs = [{side: math.log(run[what][0]) for side, run in pair} for one in each for pair in (one[:2], one[2:])]
        least = noise[what] if what == "all" else max(noise[what], usual)
        out[what] = statistics.median(p["B"] - p["A"] for p in pairs), WIDTH * least / math.sqrt(len(pairs))
    return out


def worse(ratios: dict[str, tuple[float, float]]) -> list[str]:
    return [what for what, (ratio, noise) in ratios.items() if ratio - noise > ALLOWED]


def show(name: str, each: list[Round], ratios: dict[str, tuple[float, float]]) -> list[str]:
    """Print the figures; the lines of what fails."""
    bad, pairs = set(worse(ratios)), 2 * len(each)
    print(f"\n{name}: cost of OTHER / BASE, median of {pairs} pairs, and where it may lie for noise")
    for what, (ratio, noise) in ratios.items():
        low, middle, high = (math.exp(ratio + by) for by in (-noise, 0, noise))
        print(f"  {what:52} {middle:6.3f}   {low:6.3f} to {high:6.3f}{'   WORSE' if what in bad else ''}")
    vague = sum(noise > VAGUE for _, noise in ratios.values())
    if vague:
        print(f"  noise is above 10 % in {vague} of {len(ratios)}: a quieter machine or more --rounds would say more")
    names = {side: {what for one in each for at, run in one if at == side for what in run} for side in "AB"}
    lonely = [f"{what}: only in {'BASE' if what in names['A'] else 'OTHER'}" for what in names["A"] ^ names["B"]]
    print("".join(f"  {line}\n" for line in sorted(lonely)), end="")
    return [f"{name}: {line}" for line in (*sorted(bad), *lonely)]


def tools_ready(names: list[str]) -> None:
    """Java and Redis, as the Makefile finds them."""
    needed = {"spark_native": ("JAVA_HOME", "java.sh"), "service_rpc": ("REDIS_SERVER", "redis.sh")}
    for variable, script in (needed[name] for name in names if name in needed):
        if not os.environ.get(variable):
            found = subprocess.run(["bash", f"tools/{script}"], cwd=ROOT, capture_output=True, text=True, check=True)
            os.environ[variable] = found.stdout.strip()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("base", type=Path)
    options.add_argument("other", type=Path)
    options.add_argument("--base-python", type=Path, help="interpreter of BASE; BASE/.venv/bin/python when left out")
    options.add_argument("--other-python", type=Path, help="interpreter of OTHER; OTHER/.venv/bin/python when left out")
    options.add_argument("--bench", nargs="+", choices=BENCHES, default=list(BENCHES))
    options.add_argument("--rounds", type=int, default=3, help="of four runs each (3)")
    options.add_argument("--full", action="store_true", help="each benchmark's own dose instead of a short one")
    given = options.parse_args()
    tools_ready(given.bench)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            side: Checkout(root.resolve(), python or root.resolve() / ".venv/bin/python", Path(folder) / side)
            for side, root, python in (("A", given.base, given.base_python), ("B", given.other, given.other_python))
        }
        for name in given.bench:
            each = rounds(name, sides, range(given.rounds), full=given.full)
            if worse(judged(each)):
                each += rounds(name, sides, range(given.rounds, 2 * given.rounds), full=given.full)
            failed += show(name, each, judged(each))
    print("\n" + ("\n".join(["FAILED", *failed]) if failed else "no figure is worse by more than 3 % beyond noise"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
