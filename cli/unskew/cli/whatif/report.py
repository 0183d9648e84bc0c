"""A replay as text: what was replayed, its tables, and what is recommended. docs/whatif.md explains them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.text import Text

from unskew.cli.whatif.key_file import Keys
from unskew.cli.whatif.results import PolicyResult, Replay, best_policies
from unskew.cli.whatif.tables import print_tables
from unskew.core.kernels.base import COMPILED
from unskew.simulate.router_choice import Recommendation, Workload, recommend

__all__ = ["as_table", "by_rule", "heading", "recommended", "verdict", "ways_taken"]

_EVEN_ENOUGH = 1.10  # DESIGN, promise 6: within 10 % of even there is nothing to gain (the bound of policy auto)
_WORTH_IT = 0.95  # a gain of less than 5 % does not count
_CONSTANT = 2  # the keys are the same in all batches if the stream has at most so many times the keys of a batch
_WIDTH = 118


def as_table(keys: Keys, result: Replay, written: Iterable[Path] = ()) -> str:
    """The table for stdout, as wide as it needs to be where stdout is no terminal."""
    terminal = sys.stdout.isatty()
    console = Console(highlight=False) if terminal else Console(highlight=False, width=_WIDTH)
    with console.capture() as shown:
        for line in heading(keys, result):
            console.print(Text(line), soft_wrap=not terminal)
        print_tables(console, result)
        for line in (*ways_taken(result), *verdict(result), *by_rule(result)):
            console.print(Text(line), soft_wrap=not terminal)
        for path in written:
            console.print(Text(f"wrote {path}"), soft_wrap=True)
    return shown.get()


def heading(keys: Keys, result: Replay) -> list[str]:
    """What was replayed, and how."""
    job, sizes = result.job, result.batch_rows
    key = ", ".join(f"{c} {t}" for c, t in zip(keys.columns, keys.types, strict=True))
    partitions = "1 partition" if job.partitions == 1 else f"{job.partitions} partitions"
    many = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches of {sizes[0]:,} rows"
    batch = "" if len(sizes) == 1 else f", the heaviest of a batch {result.heaviest_in_batch:.1%} (median)"
    return [
        f"{keys.name}: {result.rows:,} rows, {result.keys:,} distinct keys ({key}), {many}, {partitions}",
        f"The heaviest key has {result.heaviest:.1%} of all rows{batch}; {_fair(result)}.",
        _how(result),
        *_routers_and_windows(result),
    ]


def _fair(result: Replay) -> str:
    weights = result.job.weights
    if weights is None:
        return f"an even share of a partition is {1 / result.job.partitions:.1%}"
    least, most = min(weights) / sum(weights), max(weights) / sum(weights)
    if least == most:
        return f"the fair share of a partition is {least:.1%} (the weights are equal)"
    return f"the fair share of a partition is {least:.1%} to {most:.1%}, by its weight"


def _mean(result: Replay) -> str:
    return "the mean" if result.job.weights is None else "its fair share"


def _how(result: Replay) -> str:
    window = "" if result.job.window in (None, 1) else f" over {result.job.window} batches"
    if result.fresh == "auto":
        return (
            "Each batch goes the way that would have been cheapest so far: by the batches before it, by a count of its "
            f"own rows ({result.job.count_cost:.2f} of an even share), or by plain hash (--fresh auto). The first is "
            "counted, and left out of the figures."
        )
    if result.fresh == "previous":
        return (
            f"Each batch goes by the plan made from the batches before it{window} (--fresh previous). "
            "The first finds none, goes by plain hash, and is not counted."
        )
    if result.job.fresh != "same":
        return "There is one batch only, so it goes by a plan made from itself, as with --fresh same."
    return f"Each batch goes by a plan made from itself{window} (--fresh same)."


def _routers_and_windows(result: Replay) -> list[str]:
    """How routers were run and windows measured, if there are any."""
    job, out = result.job, []
    if job.routers:
        agents = (
            ""
            if job.agents == 1
            else f", as {job.agents} agents with every {job.agents}{_ordinal_suffix(job.agents)} row each"
        )
        together = "" if job.dsync is None else f"; those that cooperate do so every {job.dsync:,} rows"
        out.append(f"Routers decide row by row{agents}{together}. The same batches are counted.")
    if job.routers and not COMPILED:
        out.append("They run as plain Python, far slower than compiled: pip install 'unskew[fast]'.")
    if job.sliding is not None:
        unit, length = "s" if result.timed else "rows", f"{job.sliding.whole:,.10g}"
        if any(p.windows for p in result.results):
            out.append(f"Windows of {length} {unit} are looked at every {job.sliding.slide:,.10g} {unit}.")
        else:
            out.append(f"There are no windows to look at: none of {length} {unit} is whole in the counted batches.")
    return out


def _ordinal_suffix(number: int) -> str:
    special = 0 if number % 100 in (11, 12, 13) else number % 10
    return {1: "st", 2: "nd", 3: "rd"}.get(special, "th")


def verdict(result: Replay) -> list[str]:
    """What to do, in a sentence or two: nothing, if hashing is even enough."""
    hashed = median(result.hash[number].imbalance for number in result.counted)
    if hashed <= _EVEN_ENOUGH:
        return [f"Do nothing: with plain hash the fullest partition is within {hashed - 1:.0%} of {_mean(result)}."]
    others = [p for p in result.results if p.policy != "hash"]
    if not others:
        return [
            f"Plain hash gives the fullest partition {hashed:.1f} times {_mean(result)}. "
            "Try other policies: --policies."
        ]
    best = best_policies(others)
    if min(p.relative_makespan for p in best) > _WORTH_IT:
        return ["Leave it at plain hash: none of these policies would make a batch more than 5 % shorter."]
    lines = [f"Best here: {_praise(best, hashed, result)}."]
    if best[0].may_split:
        lines.append(f"Where a key may not be split: {_unsplit(others, hashed, result)}.")
    return lines


def ways_taken(result: Replay) -> list[str]:
    """With ``--fresh auto``: the cost of a batch by the ways that were taken, and by each way throughout."""
    lines = []
    for p in result.policies:
        if p.ways:
            taken = Counter(p.taken)
            each = ", ".join(f"{way} {cost:.2f} ({taken[way]} taken)" for way, cost in p.ways.items())
            lines.append(
                f"{p.label}: a batch costs {p.cost:.2f} even shares; had one way been taken throughout: {each}."
            )
    return lines


def by_rule(result: Replay) -> list[str]:
    """The router that the Holistic paper's rule recommends without a replay, if the job has routers."""
    if not result.job.routers:
        return []
    rule = recommended(result)
    return [f"By Holistic's selection rule (section 7), each batch a window of its own: {rule.router}. {rule.reason}"]


def recommended(result: Replay) -> Recommendation:
    """Holistic's rule for the median batch. The keys count as constant if all batches have few more than one has."""
    rows = round(median(result.batch_rows))
    keys = round(median(sum(batch.keys) for batch in result.hash))
    heaviest = max(round(result.heaviest_in_batch * rows), ceil(rows / keys))
    constant = result.keys <= _CONSTANT * keys
    return recommend(Workload(rows, keys, result.job.partitions, heaviest, constant=constant))


def _unsplit(policies: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    """The best of the policies that never split a key."""
    whole = [p for p in policies if not p.may_split]
    if not whole:
        return "none of these policies; try --policies kip"
    best = best_policies(whole)
    if min(p.relative_makespan for p in best) <= _WORTH_IT:
        return _praise(best, hashed, result)
    of = "the rows" if len(result.batch_rows) == 1 else "the rows of a batch"
    return f"leave it at plain hash (the heaviest key is {result.heaviest_in_batch:.1%} of {of})"


def _praise(equal: Sequence[PolicyResult], hashed: float, result: Replay) -> str:
    p, *others = equal
    same = f"; about equal: {', '.join(other.label for other in others)}" if others else ""
    return (
        f"{p.label}, with batches in {p.relative_makespan:.2f} of the time that plain hash is predicted to take "
        f"(fullest partition {p.imbalance:.2f} times {_mean(result)} instead of {hashed:.2f}){same}"
    )
