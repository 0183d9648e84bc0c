"""Every registered planner on the inputs that break planners."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doses import some_of
from tests.planning import defaults_of, key_hashes, some_histogram, spread_of
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import MAX_ROWS, Histogram, Tail
from unskew.core.keys.hashing import hash_keys
from unskew.core.plan.plan import Plan
from unskew.core.planners import PLANNERS, Origin, make_planner
from unskew.core.quality.measures import load_imbalance
from unskew.wire import plan_from_bytes, plan_to_bytes

every_planner = pytest.mark.parametrize("policy", sorted(PLANNERS))
some_planners = pytest.mark.parametrize("policy", some_of(sorted(PLANNERS), "auto", "balanced", "cg", "kip"))  # dear


def checked(policy: str, n: int, histogram: Histogram) -> Plan:
    """A first plan and one after it, both whole."""
    planner = make_planner(policy, n)
    first = planner.plan(histogram)
    second = planner.plan(histogram, previous=first)
    for plan in (first, second):
        assert int(plan.loads(histogram).astype(object).sum()) == histogram.total
        assert plan_from_bytes(plan_to_bytes(plan)).digest == plan.digest
    return second


@every_planner
def test_no_rows(policy: str) -> None:
    """An empty histogram gives a plan that routes whatever comes evenly."""
    plan = checked(policy, 8, Histogram.empty())
    out = plan.route(key_hashes(80_000), spread_of(80_000))
    assert load_imbalance(np.bincount(out, minlength=8)) < 1.2


@every_planner
@pytest.mark.parametrize("count", [1, 5, 10**6])
def test_one_key_is_everything(policy: str, count: int) -> None:
    """One key with all rows: split evenly where the policy splits, else whole on one partition."""
    plan = checked(policy, 4, Histogram.from_counts(key_hashes(1), np.array([count])))
    loads = plan.loads(Histogram.from_counts(key_hashes(1), np.array([count])))
    if policy in ("balanced", "prompt"):
        assert loads.max() - loads.min() <= 1
    elif not PLANNERS[policy].splits:
        assert sorted(loads.tolist()) == [0, 0, 0, count]


@every_planner
@pytest.mark.parametrize("keys", [2, 7])
def test_fewer_keys_than_partitions(policy: str, keys: int) -> None:
    """Keys that are kept whole and of equal weight do not share a partition where the policy looks at them."""
    histogram = Histogram.from_counts(key_hashes(keys), np.full(keys, 1000))
    plan = checked(policy, 16, histogram)
    if policy in ("kip", "redist"):
        assert plan.loads(histogram).max() == 1000


@every_planner
def test_all_keys_equal(policy: str) -> None:
    """Ten thousand keys of ten rows: nobody is singled out so far that balance suffers."""
    histogram = Histogram.from_counts(key_hashes(10_000), np.full(10_000, 10))
    plan = checked(policy, 16, histogram)
    assert load_imbalance(plan.loads(histogram)) <= 1.25


@every_planner
def test_one_partition(policy: str) -> None:
    """With one partition everything goes there."""
    histogram = some_histogram(rows=5_000, keys=500)
    plan = checked(policy, 1, histogram)
    assert plan.loads(histogram).tolist() == [5_000]
    assert not plan.splits


@some_planners
def test_four_thousand_partitions(policy: str) -> None:
    """n = 4096 stays within the bounds of a plan, 65,536 slots and 1 MB."""
    histogram = some_histogram(rows=1_000_000, keys=100_000, exponent=1.0)
    plan = checked(policy, 4096, histogram)
    assert plan.slots <= 65_536
    assert len(plan_to_bytes(plan)) <= 1 << 20


@every_planner
def test_counts_near_the_largest(policy: str) -> None:
    """Counts whose sum is 2^63 - 1 are planned without wrapping around."""
    big = MAX_ROWS // 2
    counts = np.array([big, big // 2, big // 4, MAX_ROWS - big - big // 2 - big // 4 - 3, 1, 2])
    histogram = Histogram.from_counts(key_hashes(6), counts)
    assert histogram.total == MAX_ROWS
    plan = checked(policy, 8, histogram)
    assert plan.loads(histogram).min() >= 0


@every_planner
def test_null_is_the_hottest_key(policy: str) -> None:
    """NULL is a key like any other: its hash is the bare seed, and it is planned for as for any heavy key."""
    keys = hash_keys([None] * 5_000 + [f"user-{i}" for i in range(5_000)])
    histogram = Histogram.from_hashes(keys)
    assert histogram.top(1)[0].tolist() == [42]
    plan = checked(policy, 8, histogram)
    explained = plan.explain(42)
    assert sum(explained.shares) == pytest.approx(1.0)
    if policy in ("balanced", "prompt", "auto"):
        assert len(explained.partitions) >= 4


@every_planner
def test_keys_known_only_by_host(policy: str) -> None:
    """A histogram may list heavy keys only and count the rest by host, finer or coarser than the plan's."""
    whole = some_histogram(rows=100_000, keys=20_000)
    top, _ = whole.top(100)
    listed = np.isin(whole.hashes, top)
    for bits in (8, 12, 15):
        partial = Histogram(whole.hashes[listed], whole.counts[listed], whole.fold(listed, bits))
        assert (partial.total, partial.keys) == (whole.total, whole.keys)
        plan = checked(policy, 16, partial)
        assert int(plan.loads(partial).sum()) == whole.total


@every_planner
def test_a_tail_without_listed_keys(policy: str) -> None:
    """Nothing but host counts is still a histogram."""
    histogram = Histogram.from_counts(
        np.zeros(0, np.uint64), np.zeros(0, np.int64), Tail(np.full(4096, 25), np.full(4096, 5))
    )
    plan = checked(policy, 16, histogram)
    assert load_imbalance(plan.loads(histogram)) <= 1.25


@some_planners
@pytest.mark.parametrize("n", [1_000, pytest.param(4_096, marks=pytest.mark.long)])
def test_uniform_keys_over_many_partitions(policy: str, n: int) -> None:
    """The hosts are fine enough: on rows never seen before, imbalance is within 1.1 of their own scatter."""
    seen = Histogram.from_counts(key_hashes(200_000, 3), np.ones(200_000, np.int64))
    rows = 400 * n
    out = make_planner(policy, n).plan(seen).route(key_hashes(rows, 4), spread_of(rows))
    scatter = np.random.default_rng(5).multinomial(rows, np.full(n, 1 / n)).max() / 400
    assert load_imbalance(np.bincount(out, minlength=n)) <= 1.1 * scatter


@every_planner
@pytest.mark.parametrize("n", [0, -1, 8193, 2.5, True, "16"])
def test_partitions_that_cannot_be_are_refused(policy: str, n: object) -> None:
    """The error names the parameter, the value and the range."""
    with pytest.raises(ValueError, match=r"partitions.*1 to 8192"):
        make_planner(policy, n)  # type: ignore[arg-type]


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="policy: 'magic' is not allowed; use one of hash, balanced"):
        make_planner("magic", 4)


@every_planner
def test_parameters_of_the_wrong_kind_are_refused(policy: str) -> None:
    """Every parameter of every planner: a value of another kind, or a number out of range, is one clear error."""
    with pytest.raises(ConfigError, match="seed"):
        make_planner(policy, 4, seed="x")  # type: ignore[arg-type]
    for parameter, default in defaults_of(PLANNERS[policy].algorithm).items():
        with pytest.raises(ConfigError, match=parameter):
            make_planner(policy, 4, **{parameter: ["nonsense"]})
        if isinstance(default, (bool, str)):
            continue
        for bad in (float("nan"), -1e300) if isinstance(default, float) else (-1, 10**9):
            with pytest.raises(ConfigError, match=parameter):
                make_planner(policy, 4, **{parameter: bad})


def test_an_unknown_parameter_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="kip parameter: 'lamda' is not allowed; use one of factor"):
        make_planner("kip", 4, lamda=2)


@every_planner
@pytest.mark.parametrize("rows", some_of([1, 3, 20, 100], 1, 20))
def test_a_tiny_batch_says_little_about_the_keys_to_come(policy: str, rows: int) -> None:
    """After a handful of rows, keys that nobody has seen still spread over all partitions."""
    seen = Histogram.from_counts(key_hashes(rows, 8), np.ones(rows, np.int64))
    out = make_planner(policy, 64).plan(seen).route(key_hashes(200_000, 9), spread_of(200_000))
    assert load_imbalance(np.bincount(out, minlength=64)) <= 1.25


@every_planner
def test_a_plan_for_other_key_types_is_no_start(policy: str) -> None:
    """The same key has other hashes in another type: following such a plan is refused, not routed."""
    planner, histogram = make_planner(policy, 4), some_histogram(rows=1_000, keys=50)
    first = planner.plan(histogram, origin=Origin(key_types=("int",)))
    with pytest.raises(PlanError, match="keys of type int, this one for bigint"):
        planner.plan(histogram, first, origin=Origin(key_types=("bigint",)))
    assert planner.plan(histogram, first).key_types == ("int",)


@every_planner
def test_the_largest_plan_stays_within_a_megabyte(policy: str) -> None:
    """n = 8192, many heavy keys, hosts nearly full: slots and bytes are budgeted, and it does not take minutes."""
    keys = 3_000
    tail = Tail(np.full(1 << 18, 400), np.full(1 << 18, 20))
    histogram = Histogram.from_counts(key_hashes(keys), np.full(keys, 103), tail)
    plan = make_planner(policy, 8192).plan(histogram)
    assert len(plan_to_bytes(plan)) <= 1 << 20


@pytest.mark.parametrize("policy", some_of(["balanced", "prompt"], "balanced"))
@pytest.mark.parametrize(
    ("n", "keys", "rows"),
    [
        pytest.param(1000, 1_000_000, 1, marks=pytest.mark.slow),
        pytest.param(200, 1_500_000, 1, marks=pytest.mark.long),
        pytest.param(1000, 1_400_000, 3, marks=pytest.mark.long),
    ],
)
def test_equal_small_keys_leave_no_partition_over(policy: str, n: int, keys: int, rows: int) -> None:
    """No key is heavy and a million are equal: hosts are all there is to level with, and it is within one row."""
    histogram = Histogram.from_counts(key_hashes(keys), np.full(keys, rows))
    loads = make_planner(policy, n).plan(histogram).loads(histogram)
    assert loads.max() - histogram.total / n <= max(1, rows)


@pytest.mark.parametrize("policy", ["balanced", "prompt", "cg"])
def test_no_key_is_cut_finer_than_its_spread_values_allow(policy: str) -> None:
    """640 distinct values are good for 40 fragments, also where weights make some rooms tiny."""
    counts = np.array([50_000, *[10] * 500])
    spread = np.array([640, *[10] * 500])
    histogram = Histogram(np.arange(501, dtype=np.uint64) << np.uint64(55), counts, spread=spread)
    for weights in (None, np.geomspace(1, 1e4, 64)):
        assert len(make_planner(policy, 64, weights=weights).plan(histogram).explain(0).partitions) <= 40


def test_huge_weights_are_weights() -> None:
    """Only their ratio counts, also where their sum would overflow."""
    histogram = some_histogram()
    for policy in PLANNERS:
        huge, plain = make_planner(policy, 4, weights=[1e308] * 4), make_planner(policy, 4)
        assert huge.plan(histogram).digest == plain.plan(histogram).digest
