"""The benchmark of measured rewards at a small dose: every way runs, and what the pages say of it holds there."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.measured_rewards import ALIKE, PAYS, QUARTER, SAME, Cell, Figures, follow, ratios, run, stream, verdict
from benchmarks.measured_ways import NULLS, Reports, ways

ROWS, BATCHES, WARM = 6_000, 5, 3


@pytest.fixture(scope="module")
def slow() -> dict[str, Figures]:
    """Every way where a quarter of 16 workers has half the speed."""
    return run(Cell(QUARTER, costly=False, n=16, exponent=1.5), ROWS, BATCHES, WARM)


def of(cell: Cell, *names: str) -> list[float]:
    """The makespans of these ways."""
    every = list(stream(cell, ROWS, BATCHES))
    return [follow(ways(cell.n, ROWS)[name], every, WARM).makespan for name in names]


def test_every_way_places_every_batch_and_none_is_faster_than_the_ideal(slow: dict[str, Figures]) -> None:
    """The ideal is the work over all speeds, and a key is on one worker at least."""
    assert set(slow) == set(ways(16, ROWS)) > set(NULLS)
    assert all(one.makespan >= 1.0 and 1.0 <= one.copies <= 16.0 for one in slow.values())


def test_a_q_table_of_measured_seconds_is_worth_no_more_than_one_that_forgets(slow: dict[str, Figures]) -> None:
    """Within a tenth of its null baselines, where speeds differ."""
    for name, nulls in NULLS.items():
        assert slow[name].makespan > 0.9 * min(slow[null].makespan for null in nulls), name


def test_where_speeds_differ_plans_that_measure_them_beat_all_that_go_by_rows(slow: dict[str, Figures]) -> None:
    """By signals as by capacities; and the true speeds are the least."""
    by_rows = min(
        slow[name].makespan for name in ("hash", "balanced", "agents, loads", "tasks, loads", "dalton, loads")
    )
    for name in ("cg, signals", "cg, signals, alpha 10", "balanced, capacities", "truth: speeds"):
        assert slow[name].makespan < 0.8 * by_rows, name


def test_where_keys_cost_unlike_the_weight_is_best_and_signals_beat_capacities() -> None:
    """A partition is slow for the keys it got: its capacity follows them only until the next plan places them anew."""
    cell = Cell(ALIKE, costly=True, n=16, exponent=1.5)
    rows, capacities, signals, weight = of(cell, "balanced", "balanced, capacities", "cg, signals", "truth: weight")
    assert weight < signals < capacities < rows


def test_the_capacity_of_a_worker_is_its_rate_over_the_median() -> None:
    """A difference within 15 % is none, a worker that reported nothing is as the median, later batches count more."""
    rows, seconds = np.array([100, 100, 50, 0, 100, 100]), np.array([1.0, 1.1, 1.0, 0.0, 1.0, 1.0])
    assert Reports().capacities(3).tolist() == [1.0, 1.0, 1.0]
    once = Reports().plus(rows, seconds)
    assert once.capacities(6).tolist() == [1.0, 1.0, 0.5, 1.0, 1.0, 1.0]
    again = once.plus(np.array([100, 100, 100, 0, 100, 100]), np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0]))
    assert again.capacities(6)[2] == pytest.approx(125 / 150)
    assert again.capacities(6, 1).tolist() == [1.0] * 6


def test_verdicts_are_computed_from_the_figures() -> None:
    """Ten per cent in the mean decide; a ratio is against the best of the others in the same cell."""
    cell = Cell(ALIKE, costly=False, n=16, exponent=1.0)
    found = {cell: {"a": Figures(1.0, 1.0), "b": Figures(2.0, 1.0), "c": Figures(1.25, 1.0)}}
    assert ratios(found, "a", ("b", "c"), (ALIKE,), costly=False).tolist() == [0.8]
    assert verdict(PAYS, "it", np.array([0.8])) == "held: it: pays, 0.80 of the time in the mean (0.80 to 0.80)"
    assert verdict(PAYS, "it", np.array([1.25])).startswith("missed: it: loses")
    assert verdict(SAME, "it", np.array([0.95, 1.05])).startswith("held: it: within 10 %")
