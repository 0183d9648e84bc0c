"""KIP's Figures 2 and 3, with our figures beside the paper's claims.

    python benchmarks/kip_figures.py [--runs 10]

Figure 2: 4 M Zipf(1) records over 100,000 keys, planned with full knowledge; the heaviest partition in units of
max(mean load, heaviest key), which no plan that keeps keys whole can undercut.
Figure 3: 20 batches of a drifting stream on 20 partitions, state over 5 batches. Each batch is routed by the plan
made from the batches before it. Imbalance is the largest load minus max(mean load, heaviest key), in mean loads:
what a plan can still change. Migration is the share of the state whose place an update changed, without update 0,
which replaces hashing. Every planner sees the same record of past histograms. Means of re-keyed runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.core.histogram.histogram import Histogram
from unskew.core.histogram.history import History
from unskew.core.keys.hashing import hash_keys, mix
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback, Planner
from unskew.core.planners.gate import Gate
from unskew.core.planners.registry import make_planner

DATA = Path(__file__).parent / "data" / "changed_folders.parquet"
BATCHES, PARTITIONS, WINDOW = 20, 20, 5
ROWS, KEYS = 4_000_000, 100_000
SIZES = (5, 10, 15, 20, 25, 30, 35, 50, 75, 100, 150, 200)
RECORD = 0.5  # what a batch counts one batch later
POLICIES = ("hash", "kip", "scan", "readj", "redist", "mixed")
PAPER = {"hash": 0.41, "scan": 0.29, "readj": 0.26}

Counted = tuple[NDArray[np.uint64], NDArray[np.int64]]
Stream = Callable[[int], list[Counted]]
Record = Callable[[Sequence[Histogram]], Histogram]


# -- streams ------------------------------------------------------------------------------------------------


def folders(run: int) -> list[Counted]:  # noqa: ARG001 - the same rows in every run; only the keys are replaced
    """The folders changed in a code base: 323,287 rows in 20 equal batches."""
    hashes = hash_keys(pq.read_table(DATA).column("key"))
    return [np.unique(part, return_counts=True) for part in np.array_split(hashes, BATCHES)]


def walk(run: int, sigma: float = 0.2) -> list[Counted]:
    """100,000 rows a batch over 100,000 keys: Zipf(1), every key's log weight on a slowly reverting random walk,
    another in every run."""
    rng = np.random.default_rng(500 + run)
    base, drift, out = -np.log(np.arange(1, KEYS + 1)), np.zeros(KEYS), []
    for _ in range(BATCHES):
        weights = np.exp(base + drift)
        counts = rng.multinomial(100_000, weights / weights.sum())
        keys = np.flatnonzero(counts)
        out.append((mix(keys.astype(np.uint64), 99), counts[keys]))
        drift = 0.98 * drift + rng.normal(0, sigma, KEYS)
    return out


def remembering(depth: int, decay: float = 1.0) -> Record:
    """What a record of past histograms makes of the batches so far."""
    return lambda past: History(depth, decay, tuple(past[-depth:])).merged()


RECORDS: dict[str, Record] = {
    "the last batch": remembering(1),
    "decayed by 0.5": remembering(12, 0.5),
    "decayed by 0.8": remembering(12, 0.8),
    "the last 5 batches": remembering(WINDOW),
}


@dataclass(frozen=True)
class Run:
    """One re-keyed stream: each batch, what the planner knows after it, and the state after it."""

    batches: list[Histogram]
    known: list[Histogram]
    state: list[Histogram]


def rekeyed(stream: Stream, salt: int, record: Record) -> Run:
    batches = [Histogram.from_counts(mix(keys, 1000 + salt), counts) for keys, counts in stream(salt)]
    upto = [batches[: i + 1] for i in range(len(batches))]
    state = RECORDS["the last 5 batches"]
    return Run(batches, [record(past) for past in upto], [state(past) for past in upto])


# -- scores -------------------------------------------------------------------------------------------------


def floor(histogram: Histogram, partitions: int) -> float:
    """The least largest load of any plan that keeps keys whole cannot be below this."""
    return max(histogram.total / partitions, float(histogram.counts.max()))


def excess(plan: Plan, histogram: Histogram) -> float:
    """The largest load above the floor, in mean loads."""
    over = float(plan.loads(histogram).max()) - floor(histogram, plan.partitions)
    return over / (histogram.total / plan.partitions)


@dataclass(frozen=True)
class Score:
    imbalance: float
    first: float
    later: float
    total: float
    updates: float


def follow(run: Run, planner: Planner, gate: Gate | None) -> Score:
    """Route every batch by the plan from before it, update after it."""
    plan = make_planner("hash", PARTITIONS).plan(run.known[0])
    over, moved = [], []
    for i, (known, state) in enumerate(zip(run.known[:-1], run.state[:-1], strict=True)):
        new = planner.plan(known, plan, Feedback(state=state))
        if gate and not gate.judge(new, plan, known, state, np.ones(PARTITIONS)).switch:
            new = plan
        moved.append(new.moved_share(plan, state) if new is not plan else 0.0)
        plan = new
        over.append(excess(plan, run.batches[i + 1]))
    updates = float(np.count_nonzero(moved))
    return Score(float(np.mean(over)), moved[0], float(np.mean(moved[1:])), float(np.sum(moved)), updates)


def mean(scores: Iterable[Score]) -> Score:
    rows = [(s.imbalance, s.first, s.later, s.total, s.updates) for s in scores]
    return Score(*np.mean(rows, axis=0).tolist())


def planner_of(name: str, **parameters: object) -> Planner:
    forced = {"gate": False} if name == "kip" else {}
    return make_planner(name, PARTITIONS, **{**forced, **parameters})


def clairvoyant(run: Run) -> float:
    """The imbalance if each batch were planned from itself: what a plan could do that knew the future."""
    knows = make_planner("kip", PARTITIONS, host_loads="exact", slack=0.0)
    return float(np.mean([excess(knows.plan(batch), batch) for batch in run.batches[1:]]))


# -- figures ------------------------------------------------------------------------------------------------


def figure_2(runs: int) -> None:
    rng = np.random.default_rng(11)
    weights = 1 / np.arange(1, KEYS + 1)
    counts = rng.multinomial(ROWS, weights / weights.sum())
    keys = np.flatnonzero(counts).astype(np.uint64)
    drawn = [Histogram.from_counts(mix(keys, salt), counts[keys.astype(np.int64)]) for salt in range(runs)]
    columns: list[tuple[str, str, dict[str, object]]] = [
        *((name, name, {}) for name in POLICIES),
        *((f"kip l={factor}", "kip", {"factor": float(factor)}) for factor in (1, 3, 4)),
        ("listing", "kip", {"as_published": True, "slack": 0.02}),
    ]
    print(f"Figure 2: heaviest partition / max(mean load, heaviest key), worst of {runs} re-keyed runs")
    print("    N " + "".join(f"{label:>9}" for label, _, _ in columns))
    worst, outside = 0.0, []
    for n in SIZES:
        row = []
        for _, name, parameters in columns:
            planner = make_planner(name, n, **parameters)
            row.append([planner.plan(one).loads(one).max() / floor(one, n) for one in drawn])
        worst = max(worst, *row[1])
        outside += [n] if np.mean(row[0]) > 1.2 else []
        print(f"{n:5d} " + "".join(f"{max(values):9.3f}" for values in row))
    print(f"claim: KIP stays below 1.2 at every N; ours: {worst:.3f} at worst, {verdict(worst <= 1.2)}")
    print(f"hash is above 1.2 on average at N = {', '.join(map(str, outside))}")


def figure_3(name: str, stream: Stream, runs: int) -> None:
    rekeys = [rekeyed(stream, salt, remembering(12, RECORD)) for salt in range(runs)]
    forced = {p: mean(follow(run, planner_of(p), None) for run in rekeys) for p in POLICIES}
    gated = {p: mean(follow(run, planner_of(p), Gate()) for run in rekeys) for p in POLICIES}
    known = float(np.mean([clairvoyant(run) for run in rekeys]))
    print(f"\nFigure 3, {name}: {PARTITIONS} partitions, mean of {runs} re-keyed runs")
    print("          |     an update forced at every batch      |          the gate decides")
    print("          | imbalance   update 0   later, each  total | imbalance   total moved   updates")
    for policy in POLICIES:
        f, g = forced[policy], gated[policy]
        print(
            f"{policy:9s} | {f.imbalance:9.3f} {f.first:10.1%} {f.later:13.2%} {f.total:6.0%} |"
            f" {g.imbalance:9.3f} {g.total:13.1%} {g.updates:9.1f}"
        )
    print(f"a plan that knows the batch it routes: imbalance {known:.3f}")
    for peer, mark in PAPER.items():
        gain = 1 - forced["kip"].imbalance / forced[peer].imbalance
        print(f"claim: -{mark:.0%} imbalance against {peer}; ours: -{gain:.0%}, {verdict(gain >= mark)}")
    share = forced["kip"].later / forced["readj"].later
    print(f"claim: 1/4 of readj's migration; ours: {share:.3f}, {verdict(share <= 0.25)}")


def choices(stream: Stream, runs: int) -> None:
    """What each of KIP's free choices is worth."""
    rekeys = [rekeyed(stream, salt, remembering(12, RECORD)) for salt in range(runs)]
    print("\nKIP's free choices, changed folders, an update forced at every batch: imbalance, later migration")
    for label, parameters in CHOICES.items():
        score = mean(follow(run, planner_of("kip", **parameters), None) for run in rekeys)
        print(f"{label:46s} {score.imbalance:6.3f} {score.later:7.2%}")


CHOICES: dict[str, dict[str, object]] = {
    "the defaults": {},
    "slack 0.02": {"slack": 0.02},
    "slack 0.1": {"slack": 0.1},
    "slack 0.2": {"slack": 0.2},
    "slack 0.5": {"slack": 0.5},
    "keys that cool go home (keep 1)": {"keep": 1.0},
    "hosts by their own rows": {"host_loads": "exact"},
    "hosts by the average": {"host_loads": "average"},
    "lambda 1": {"factor": 1.0},
    "lambda 4": {"factor": 4.0},
    "the paper's listing, slack 0.2": {"as_published": True, "slack": 0.2},
    "the paper's listing, slack 0.02": {"as_published": True, "slack": 0.02},
}


def records(stream: Stream, runs: int) -> None:
    """What the planners plan from."""
    print("\nThe record of past histograms, changed folders: imbalance and later migration")
    print(" " * 22 + "".join(f"{policy:>16}" for policy in ("kip", "scan", "readj")))
    for label, record in RECORDS.items():
        rekeys = [rekeyed(stream, salt, record) for salt in range(runs)]
        cells = [mean(follow(run, planner_of(p), None) for run in rekeys) for p in ("kip", "scan", "readj")]
        print(f"{label:22s}" + "".join(f"{c.imbalance:9.3f} {c.later:6.2%}" for c in cells))


def novelty(stream: Sequence[Counted]) -> float:
    """The share of a batch's rows whose key the batch before it did not have, on average."""
    shares = [counts[~np.isin(keys, before)].sum() / counts.sum() for (before, _), (keys, counts) in pairwise(stream)]
    return float(np.mean(shares))


def verdict(holds: bool) -> str:  # noqa: FBT001 - a word for it
    return "reached" if holds else "NOT reached"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    figure_2(runs)
    streams: dict[str, Stream] = {"changed folders": folders, "a Zipf(1) walk": walk}
    for name, stream in streams.items():
        figure_3(name, stream, runs)
        print(f"rows of a batch whose key was not in the batch before: {novelty(stream(0)):.0%}")
    choices(folders, runs)
    records(folders, runs)


if __name__ == "__main__":
    main()
