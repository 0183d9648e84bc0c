"""``relabelled``: the same split of the rows under other numbers, heaviest first."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core import Histogram, make_planner
from unskew.core.errors import PlanError
from unskew.core.plan.plan import Plan
from unskew.core.plan.relabel import relabelled

POLICIES = ["hash", "kip", "balanced", "prompt"]
RNG = np.random.default_rng(5)
HASHES = RNG.integers(0, 2**64, 900, dtype=np.uint64)[np.minimum(RNG.zipf(1.3, 40_000), 900) - 1]
SPREAD = RNG.integers(0, 2**64, len(HASHES), dtype=np.uint64)
HISTOGRAM = Histogram.from_hashes(HASHES)


def plan_of(policy: str) -> Plan:
    return make_planner(policy, 24).plan(HISTOGRAM)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_row_goes_with_its_partition(policy: str) -> None:
    """One old number, one new number, for whole, split and tail keys; the predicted loads go along, descending."""
    plan = plan_of(policy)
    made = relabelled(plan, plan.info.loads)
    before, after = plan.route(HASHES, SPREAD), made.route(HASHES, SPREAD)
    pairs = np.unique(np.stack([before, after]), axis=1)
    assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
    assert list(made.info.loads) == sorted(plan.info.loads, reverse=True)
    assert made.loads(HISTOGRAM).tolist() == list(made.info.loads)
    assert [made.route_one(int(h), int(s)) for h, s in zip(HASHES[:50], SPREAD[:50], strict=True)] == after[
        :50
    ].tolist()


def test_digest_and_explanation_are_the_new_plans() -> None:
    """It routes otherwise, so it has another digest; explain names the new partition and keeps its reason."""
    plan = plan_of("kip")
    made = relabelled(plan, plan.info.loads)
    assert made.digest != plan.digest
    heaviest = int(HISTOGRAM.top(1)[0][0])
    assert made.explain(heaviest).partitions == (0,)
    assert made.explain(heaviest).reason == plan.explain(heaviest).reason
    assert made.explain(heaviest).rows == plan.explain(heaviest).rows
    assert made.info.reason.endswith("partitions numbered by descending load")
    assert (made.version, made.key_types, made.info.previous) == (plan.version, plan.key_types, None)


def test_the_same_order_is_the_same_plan() -> None:
    """Ties keep their number: a plan numbered already stays as it is; other loads may be given, seconds say."""
    made = relabelled(plan_of("kip"), plan_of("kip").info.loads)
    assert relabelled(made, made.info.loads).digest == made.digest
    assert relabelled(made, np.zeros(24)).digest == made.digest
    assert relabelled(made, np.arange(24.0)).route(HASHES).tolist() == (23 - made.route(HASHES)).tolist()


@pytest.mark.parametrize("loads", [[1.0] * 23, [float("nan")] * 24, []])
def test_loads_must_fit(loads: list[float]) -> None:
    """One finite number a partition."""
    with pytest.raises(PlanError, match="loads for 24 partitions"):
        relabelled(plan_of("kip"), loads)
