"""The replay: which plan routes which batch, and what is measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.command import skewed
from unskew.cli.whatif.job import Fresh, Job
from unskew.cli.whatif.replay import cut, replay, steps
from unskew.cli.whatif.results import Replay
from unskew.core import quality
from unskew.core.histogram.histogram import Histogram
from unskew.core.keys.hashing import hash_keys
from unskew.core.planners import Origin, make_planner

HASHES = hash_keys(skewed(8_000))


class Ticks:
    """A clock that moves on by a millisecond whenever it is read, and counts ticks."""

    def __init__(self) -> None:
        self.now, self.ticks = 0.0, 0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def tick(self) -> None:
        self.ticks += 1


def run(policies: str = "hash,kip,balanced", batch: int = 2_000, hashes: np.ndarray = HASHES, **more: object) -> Replay:
    job = Job(tuple(policies.split(",")), partitions=8, batch=batch, **more)  # type: ignore[arg-type]
    return replay(hashes, job, Origin(stream="test", key_types=("bigint",)), Ticks())


@given(st.integers(1, 5000), st.integers(1, 700))
def test_batches_cover_every_row_once(rows: int, batch: int) -> None:
    """In order, without gaps; none is shorter than half a batch unless it is the only one, none 1.5 times as long."""
    parts = cut(rows, batch)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(rows))
    sizes = [part.stop - part.start for part in parts]
    assert sizes[:-1] == [batch] * (len(sizes) - 1)
    assert 2 * sizes[-1] < 3 * batch
    assert len(sizes) == 1 or 2 * sizes[-1] >= batch


def test_previous_routes_each_batch_by_the_plan_of_the_one_before() -> None:
    """The loads of batch 2 are those of a plan made by hand from batch 1, following the plan from batch 0."""
    result = run("kip")
    planner = make_planner("kip", partitions=8)
    batches = HASHES.reshape(4, -1)
    first = planner.plan(Histogram.from_hashes(batches[0]))
    second = planner.plan(Histogram.from_hashes(batches[1]), first)
    loads = [quality.loads(plan.route(rows), 8).tolist() for plan, rows in ((first, batches[1]), (second, batches[2]))]
    assert [list(b.routed.loads) for b in result.policies[0].batches[:2]] == loads
    assert result.policies[0].batches[1].number == 2


def test_same_routes_each_batch_by_its_own_plan() -> None:
    """Every batch counts, and balanced is as even as its own histogram allows."""
    result = run("balanced", fresh="same")
    assert result.counted == (0, 1, 2, 3)
    assert result.policies[0].worst_imbalance < 1.15
    assert result.policies[0].plan.info.batch == 3


def test_previous_leaves_the_first_batch_out_for_all_alike() -> None:
    """No policy has a plan for it, so it would only dilute the figures."""
    result = run()
    assert result.counted == (1, 2, 3)
    assert all([b.number for b in p.batches] == [1, 2, 3] for p in result.policies)
    assert len(result.hash) == 4
    assert result.policies[0].plan.info.batch == 2


@pytest.mark.parametrize("fresh", ["previous", "same"])
def test_one_batch_can_only_plan_for_itself(fresh: Fresh) -> None:
    """Asked for or not, a single batch is planned from itself, and the result says so."""
    result = run(batch=8_000, fresh=fresh)
    assert (result.fresh, result.job.fresh, result.counted) == ("same", fresh, (0,))


def test_a_window_shows_the_planner_several_batches() -> None:
    """With a window of two, the last plan is made from twice the rows."""
    assert run("kip", window=2).policies[0].plan.info.rows <= 4_000
    assert run("redist", window=2).policies[0].plan.info.rows == 4_000
    assert run("redist", window=1).policies[0].plan.info.rows == 2_000


def test_figures_are_those_of_the_routed_rows() -> None:
    """Imbalance, KSR, BSI and BCI agree with the library's own measures of the same routing."""
    result = run("hash", fresh="same")
    plan = make_planner("hash", partitions=8).plan(Histogram.empty())
    for batch, rows in zip(result.policies[0].batches, HASHES.reshape(4, -1), strict=True):
        at = plan.route(rows)
        block = quality.block_metrics(rows, at, 8)
        assert batch.routed.imbalance == quality.imbalance(at, 8)
        assert (batch.routed.bsi, batch.routed.bci) == pytest.approx((block.bsi, block.bci))
        assert batch.routed.ksr == block.ksr == quality.replication(rows, at) == 1.0


def test_split_keys_show_as_replication() -> None:
    """A policy that splits keys has a key's rows in more than one place on average; one that does not, in one."""
    result = {p.policy: p for p in run(fresh="same").policies}
    assert result["balanced"].splits
    assert result["balanced"].replication > 1.0
    assert (result["kip"].splits, result["kip"].replication) == (False, 1.0)


def test_hash_is_the_yardstick_of_the_makespan() -> None:
    """Hash takes exactly its own time; on a skewed stream balanced takes less. Hash need not be asked for."""
    result = {p.policy: p.relative_makespan for p in run(fresh="same").policies}
    assert result["hash"] == 1.0
    assert result["balanced"] < 0.9
    assert run("balanced", fresh="same").policies[0].relative_makespan == result["balanced"]


def test_plans_are_counted_when_they_route_otherwise() -> None:
    """Hash makes the same plan for ever: one plan, nothing moved. Redist makes a new one for new rows."""
    result = {p.policy: p for p in run("hash,redist").policies}
    assert (result["hash"].plans, result["hash"].moved_share) == (1, 0.0)
    assert result["redist"].plans == 3
    assert 0.0 < result["redist"].moved_share <= 1.0
    assert [b.moved is None for b in result["redist"].planned] == [True, False, False]


def test_weights_count_in_every_figure() -> None:
    """A partition with three times the weight may hold three times the rows."""
    weights = (3.0, *[1.0] * 7)
    even, heavy = run("balanced", fresh="same"), run("balanced", fresh="same", weights=weights)
    loads = np.array(heavy.policies[0].batches[0].routed.loads)
    assert loads[0] == pytest.approx(3 * loads[1:].mean(), rel=0.2)
    assert heavy.policies[0].imbalance < 1.15
    assert heavy.policies[0].relative_makespan < 0.8
    assert even.policies[0].imbalance < 1.15


def test_the_same_rows_give_the_same_result() -> None:
    """Routing and planning are deterministic: only the clock could differ, and it is passed in."""
    first, second = run(), run()
    assert [p.batches for p in first.policies] == [p.batches for p in second.policies]
    assert [p.plan.digest for p in first.policies] == [p.plan.digest for p in second.policies]


def test_time_comes_from_the_clock_and_progress_is_told() -> None:
    """One tick for each policy and batch; build time is what the clock says."""
    clock = Ticks()
    job = Job(("hash", "kip"), partitions=8, batch=2_000)
    result = replay(HASHES, job, Origin(), clock, clock.tick)
    assert clock.ticks == steps(len(HASHES), job) == 8
    assert [p.build_ms for p in result.policies] == pytest.approx([1.0, 1.0])


def test_a_single_row_is_enough() -> None:
    """One row, one key, one partition with all of it."""
    result = run("hash,balanced", hashes=HASHES[:1])
    assert (result.rows, result.keys, result.heaviest) == (1, 1, 1.0)
    assert [p.imbalance for p in result.policies] == [8.0, 8.0]
