"""What rows and keys cost, from task times: the truth where tasks tell it, else the prior, and it says which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import Feedback, make_planner
from unskew.core.planners.gate import Gate
from unskew.core.planners.plan_cost import PlanCost, weighed
from unskew.core.quality.cost_fit import COST_BATCHES, CostFit, TaskTimes, fit_cost
from unskew.core.quality.measures import LinearCost, load_imbalance

ROW = 1e-5  # seconds


def batch(seed: int, per_key: float, tasks: int = 64, noise: float = 0.1, start: float = 0.0) -> TaskTimes:
    """Tasks of unlike rows and keys; one in twenty takes ten times as long."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(100, 2_000, tasks).astype(float)
    keys = np.minimum(rows, rng.integers(1, 400, tasks))
    seconds = (start + ROW * (rows + per_key * keys)) * rng.lognormal(0.0, noise, tasks)
    seconds[rng.random(tasks) < 0.05] *= 10.0
    return TaskTimes(rows, keys, seconds)


def batches(seed: int, per_key: float, **more: float) -> list[TaskTimes]:
    return [batch(at, per_key, **more) for at in range(8 * seed, 8 * seed + 8)]  # type: ignore[arg-type]


@pytest.mark.parametrize("per_key", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("start", [0.0, 0.002])
@given(seed=st.integers(0, 10_000))
def test_the_cost_of_a_key_is_fitted_within_a_quarter(per_key: float, start: float, seed: int) -> None:
    """With a tenth of noise and one task in twenty that took ten times as long."""
    fit = fit_cost(batches(seed, per_key, start=start))
    assert fit.tells_keys
    assert fit.model.per_key == pytest.approx(per_key, abs=0.25 * max(per_key, 1.0))
    assert fit.unit == pytest.approx(ROW, rel=0.25)
    assert fit.start == pytest.approx(start, abs=0.1 * 0.02)  # a tenth of what a mean task takes


def test_work_by_the_key_alone_is_understood() -> None:
    """Least squares over the same tasks had given a row a cost above 0 by chance."""
    times = batch(1, 0.0, 64)
    fit = fit_cost([TaskTimes(times.rows, times.keys, ROW * times.keys)] * 4)
    assert fit.tells_keys
    assert fit.seconds_per_key == pytest.approx(ROW, rel=0.05)
    assert fit.seconds_per_row < 0.05 * ROW


@pytest.mark.parametrize("per_key", [0.0, 20.0])
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 0.1, 0.5]))
def test_tasks_with_keys_in_proportion_to_rows_leave_the_prior(per_key: float, seed: int, noise: float) -> None:
    """Any mixture of the two explains their times: the ratio stays, and it says so; the sum is known."""
    rng, prior = np.random.default_rng(seed), LinearCost(1.0, 3.0, 0.5)
    rows = 5.0 * rng.integers(100, 400, (8, 32))
    times = [TaskTimes(n, n / 5, ROW * (n + per_key * n / 5) * rng.lognormal(0.0, noise, 32)) for n in rows]
    fit = fit_cost(times, prior)
    assert fit.model == prior
    assert "per_key" in fit.unsure
    assert "do not tell" in fit.text
    assert fit.unit * (1.0 + 3.0 / 5) == pytest.approx(ROW * (1.0 + per_key / 5), rel=0.25)


def test_tasks_that_a_plan_made_alike_leave_the_prior() -> None:
    """Plain least squares over such tasks had given 0, 0.8, 363 and 36 for a true 1."""
    rng = np.random.default_rng(5)
    rows, keys = rng.integers(9_990, 10_010, (4, 16)), rng.integers(595, 606, (4, 16))
    noisy = ROW * (rows + keys) * rng.lognormal(0.0, 0.1, rows.shape)
    fit = fit_cost([TaskTimes(*columns) for columns in zip(rows, keys, noisy, strict=True)])
    assert (fit.model, fit.unsure) == (LinearCost(), ("per_key", "start"))


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.0, 1e6, allow_subnormal=True)),
        max_size=40,
    ),
    st.floats(0.0, 100.0),
    st.floats(0.0, 100.0),
)
def test_no_cost_is_negative_whatever_tasks_took(tasks: list[tuple[int, int, float]], row: float, key: float) -> None:
    table = np.array(tasks, float).reshape(-1, 3)
    fit = fit_cost([TaskTimes(*table.T)], LinearCost(row, key))
    figures = [fit.unit, fit.start, fit.model.per_row, fit.model.per_key]
    assert all(np.isfinite(one) and one >= 0.0 for one in figures)


@given(seed=st.integers(0, 1_000), scale=st.sampled_from([1e-9, 1e-3, 60.0, 1e9]))
def test_another_unit_of_time_gives_the_same_costs(seed: int, scale: float) -> None:
    times = batches(seed, 5.0)
    scaled = [TaskTimes(one.rows, one.keys, scale * one.seconds) for one in times]
    fit, other = fit_cost(times), fit_cost(scaled)
    assert other.model.per_key == pytest.approx(fit.model.per_key, rel=1e-6)
    assert (other.unit, other.start) == pytest.approx((scale * fit.unit, scale * fit.start), rel=1e-6)


@given(seed=st.integers(0, 1_000), order=st.permutations(range(64)))
def test_the_order_of_tasks_makes_no_difference(seed: int, order: list[int]) -> None:
    """Nor does how the tasks of one batch are listed; of batches the later ones count more."""
    times = batches(seed, 5.0)
    mixed = [TaskTimes(one.rows[order], one.keys[order], one.seconds[order]) for one in times]
    assert fit_cost(mixed).model.per_key == pytest.approx(fit_cost(times).model.per_key, rel=1e-6)


def test_the_last_batches_count_most() -> None:
    old, new = batches(1, 1.0), batches(2, 9.0)
    assert fit_cost([*old, *new]).model == fit_cost(new[-COST_BATCHES:]).model
    half = len(old) // 2
    assert fit_cost([*old[:half], *new[:half]]).model.per_key > fit_cost([*new[:half], *old[:half]]).model.per_key


@pytest.mark.parametrize("times", [[], [TaskTimes([], [], [])], [batch(1, 5.0, 7)]])
def test_without_tasks_the_prior_is_left(times: list[TaskTimes]) -> None:
    prior = LinearCost(2.0, 3.0)
    assert fit_cost(times, prior) == CostFit(prior)
    assert "no task times" in fit_cost(times).text


# -- what goes by it ----------------------------------------------------------------------------------------


def dear_keys() -> Histogram:
    """Half of the rows in forty keys of unlike weight, half in 20,000 keys."""
    heavy = np.linspace(2_000, 8_000, 40).astype(int)
    hashes = np.random.default_rng(3).integers(0, 2**64 - 1, 20_040, dtype=np.uint64)
    return Histogram.from_counts(hashes, np.concatenate([heavy, np.full(20_000, 10)]))


def test_auto_evens_out_cost_where_keys_are_dear() -> None:
    """Partitions of as many rows have unlike keys, of which each costs as much as 100 rows."""
    histogram, planner = dear_keys(), make_planner("auto", 16, splits=False)
    feedback = Feedback(times=batches(3, 100.0))
    true = PlanCost.of(planner.algorithm.common, LinearCost(per_key=100.0))
    before, after = planner.decide(histogram), planner.decide(histogram, feedback=feedback)
    assert true.share(before.plan, histogram) > 1.25
    assert true.share(after.plan, histogram) < 1.05
    assert "even in cost" in after.reason
    assert "a key" in after.reason


def test_auto_without_a_fit_is_what_it_was() -> None:
    """Times that do not tell rows from keys change no plan."""
    histogram, planner = dear_keys(), make_planner("auto", 16)
    alike = TaskTimes(np.full(64, 1_000.0), np.full(64, 50.0), np.full(64, 0.5))
    assert planner.plan(histogram, feedback=Feedback(times=[alike])).digest == planner.plan(histogram).digest


def test_a_histogram_weighed_by_cost_has_as_many_rows() -> None:
    histogram = dear_keys().shortened(30, 6)
    other = weighed(histogram, LinearCost(per_key=100.0))
    assert other.total == pytest.approx(histogram.total, rel=1e-3)
    assert other.keys == histogram.keys
    light, heavy = np.argsort(histogram.counts)[[0, -1]]
    assert other.counts[light] / other.counts[heavy] > histogram.counts[light] / histogram.counts[heavy]
    assert weighed(Histogram.empty(), LinearCost()) == Histogram.empty()


def test_the_gate_weighs_cost_and_says_seconds() -> None:
    """Rows are even by the plan in force, keys are not; a new plan pays where keys cost, and not where rows do."""
    histogram = dear_keys()
    rows, relative = make_planner("kip", 16).plan(histogram), np.ones(16)
    cost = make_planner("auto", 16, splits=False).plan(histogram, feedback=Feedback(times=batches(3, 100.0)))
    gate, fit = Gate(cost=0.0), fit_cost(batches(3, 100.0))
    by_rows = gate.judge(cost, rows, histogram, histogram, relative)
    by_cost = gate.judge(cost, rows, histogram, histogram, relative, fit)
    assert load_imbalance(rows.loads(histogram)) < 1.05
    assert not by_rows.switch
    assert by_cost.switch
    assert " s" in by_cost.reason
    unsure = CostFit(LinearCost(), unit=1.0, tasks=64)
    assert gate.judge(cost, rows, histogram, histogram, relative, unsure) == by_rows
