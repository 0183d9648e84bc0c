"""Advice on joins goes by both sides and the type: a key that is rare on one side may be most of the output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unskew.core import hash_keys
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.operators.advice import Advice, Job
from unskew.core.operators.job_seconds import costs_of
from unskew.core.operators.join_advice import SKEW_JOIN, SPREAD_NULLS, NullKeys, SkewJoin, advise_join
from unskew.core.operators.join_plan import Bounds, JoinRows, cost_histogram, join_plan

KEYS = 2_000
HASHES = np.sort(hash_keys(list(range(KEYS))))
JOB = Job(partitions=64, slots=16, shuffle_partitions=64, inputs=64)
DEAR = costs_of("join", 1e-4)  # a row that comes out takes 0.1 ms: most of what the job costs
MB = 1 << 20


def joined(left: dict[int, int], right: dict[int, int], how: str = "inner", each: int = 20) -> JoinRows:
    """``each`` rows a key on the left and one on the right, but for the keys that are named."""
    none = np.zeros(4096, np.int64)

    def side(rows: int, named: dict[int, int]) -> Histogram:
        counts = np.full(KEYS, rows)
        for at, many in named.items():
            counts[at] = many
        return Histogram(HASHES, counts, Tail(none, none))

    told = np.full(KEYS, 100_000, np.int64)
    return JoinRows(how, side(each, left), side(1, right), HASHES, {"left": told, "right": told})


def longest(rows: JoinRows, advice: Advice) -> tuple[float, float]:
    assert advice.by_spark is not None
    assert advice.by_plan is not None
    return advice.by_spark, advice.by_plan


def test_a_key_that_is_rare_on_the_left_and_most_of_the_output_wants_a_plan() -> None:
    """500 x 10,000 rows of one key are 99 % of what comes out; on the left it has 1 % of the rows."""
    rows = joined({7: 500}, {7: 10_000})
    assert rows.left.count(HASHES[7:8])[0] < 0.02 * rows.left.total
    advice = advise_join(rows, JOB, costs=DEAR)
    assert advice.choice == "unskew"
    by_spark, by_plan = longest(rows, advice)
    assert by_spark > 10.0
    assert by_plan < 1.2


def test_a_join_of_which_most_is_one_key_wants_a_plan_at_default_costs() -> None:
    """5.5 M rows come out, 91 % of them of one key, 500 rows by 10,000: 2 s of one task."""
    rows = joined({7: 500}, {7: 10_000}, each=250)
    assert 5e6 / join_plan(rows, "left", 64, Bounds()).output == pytest.approx(0.91, abs=0.005)
    advice = advise_join(rows, Job(partitions=64, slots=64, shuffle_partitions=64))
    assert advice.choice == "unskew"
    by_spark, by_plan = longest(rows, advice)
    assert by_spark > 40.0
    assert by_plan < 1.2


def test_the_type_of_the_join_decides_what_comes_out() -> None:
    """A semi join yields each row of the left once: the same keys are even there."""
    rows = joined({7: 500}, {7: 10_000}, "left_semi")
    advice = advise_join(rows, Job(partitions=8, slots=2, shuffle_partitions=8), costs=DEAR)
    assert (advice.choice, "even enough" in advice.reason) == ("spark", True)


def test_a_full_outer_join_whose_heaviest_key_stays_whole_is_left_to_spark() -> None:
    """Nothing splits it, so a plan ends with it, too."""
    advice = advise_join(joined({7: 40_000}, {7: 10}, "full"), JOB, costs=DEAR)
    assert advice.choice == "spark"


def test_even_keys_and_few_rows_are_left_to_spark() -> None:
    even = Job(partitions=8, slots=4, shuffle_partitions=8)
    assert "even enough" in advise_join(joined({}, {}), even, costs=DEAR).reason
    assert "too few" in advise_join(joined({}, {}, each=1), JOB).reason


def test_what_aqe_divides_by_itself_is_left_to_it() -> None:
    """A dearest partition of 256 MB and five times the median on a side that it may divide; no smaller one."""
    rows = joined({7: 400_000}, {})
    large = SkewJoin({"left": 10_240 * MB})
    assert advise_join(rows, JOB, aqe=large, costs=DEAR).choice == "spark"
    assert advise_join(rows, JOB, aqe=SkewJoin({"left": 100 * MB}), costs=DEAR).choice == "unskew"
    assert advise_join(rows, JOB, aqe=SkewJoin({"right": 10_240 * MB}), costs=DEAR).choice == "unskew"
    assert advise_join(rows, JOB, costs=DEAR).choice == "unskew"


def test_aqe_divides_a_partition_by_the_map_tasks_its_rows_come_from() -> None:
    """Of two map tasks it can make two pieces, however large the partition is."""
    two = replace(JOB, inputs=2)
    assert (
        advise_join(joined({7: 400_000}, {}), two, aqe=SkewJoin({"left": 10_240 * MB}), costs=DEAR).choice == "unskew"
    )


def test_skew_join_that_is_off_or_asks_too_much_is_a_setting() -> None:
    rows, off = joined({7: 400_000}, {}), SkewJoin({"left": 10_240 * MB}, enabled=False)
    assert advise_join(rows, JOB, aqe=off, costs=DEAR).setting == f"{SKEW_JOIN}.enabled=true"
    strict = replace(off, enabled=True, threshold=100_000 * MB)
    setting = advise_join(rows, JOB, aqe=strict, costs=DEAR).setting
    assert setting == f"{SKEW_JOIN}.skewedPartitionThresholdInBytes={64 * MB}b"


def test_rows_with_null_keys_are_one_task_until_spark_spreads_them() -> None:
    """90 % of the left side has a NULL key and is kept: Spark 4.3 has a setting for it, before that a plan helps."""
    rows = joined({}, {}, "left")
    nulls = {"left": round(0.9 * rows.left.total)}
    told = advise_join(rows, JOB, nulls=NullKeys(nulls, spread=False), costs=DEAR)
    assert (told.choice, told.setting) == ("spark", f"{SPREAD_NULLS}=true")
    assert advise_join(rows, JOB, nulls=NullKeys(nulls, spread=True), costs=DEAR).setting is None
    assert advise_join(rows, JOB, nulls=NullKeys(nulls), costs=DEAR).choice == "unskew"


def test_aqe_looks_at_bytes_that_come_in_and_not_at_what_comes_out() -> None:
    """The few rows of the key that is most of the output make no large partition."""
    advice = advise_join(joined({7: 500}, {7: 10_000}), JOB, aqe=SkewJoin({"left": 300 * MB}), costs=DEAR)
    assert advice.choice == "unskew"


@pytest.mark.parametrize("how", ["inner", "left", "full", "left_anti"])
def test_the_costs_of_the_advice_are_those_of_the_plan(how: str) -> None:
    rows = joined({7: 500, 9: 3_000}, {7: 10_000, 11: 50}, how)
    plan = join_plan(rows, "left", 16, Bounds()).plan
    assert sum(plan.info.loads) == cost_histogram(rows, 1.0).total
