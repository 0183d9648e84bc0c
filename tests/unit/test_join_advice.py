"""Advice on joins goes by both sides and the type: a key that is rare on one side may be most of the output."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core import hash_keys
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.operators.advice import Advice, Job
from unskew.core.operators.join_advice import advise_join
from unskew.core.operators.join_plan import Bounds, JoinRows, cost_histogram, join_plan

KEYS = 2_000
HASHES = np.sort(hash_keys(list(range(KEYS))))
JOB = Job(partitions=64, slots=16)
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
    advice = advise_join(rows, JOB)
    assert advice.choice == "unskew"
    by_spark, by_plan = longest(rows, advice)
    assert by_spark > 10.0
    assert by_plan < 1.2


def test_the_type_of_the_join_decides_what_comes_out() -> None:
    """A semi join yields each row of the left once: the same keys are even there."""
    rows = joined({7: 500}, {7: 10_000}, "left_semi")
    advice = advise_join(rows, Job(partitions=8, slots=2))
    assert (advice.choice, "even enough" in advice.reason) == ("spark", True)


def test_a_full_outer_join_whose_heaviest_key_stays_whole_is_left_to_spark() -> None:
    """Nothing splits it, so a plan ends with it, too."""
    advice = advise_join(joined({7: 40_000}, {7: 10}, "full"), JOB)
    assert advice.choice == "spark"


def test_even_keys_and_few_rows_are_left_to_spark() -> None:
    assert "even enough" in advise_join(joined({}, {}), Job(partitions=8, slots=4)).reason
    assert "too few" in advise_join(joined({}, {}, each=1), JOB).reason


def test_what_aqe_splits_by_itself_is_left_to_it() -> None:
    """A dearest partition of 256 MB and five times the median on a side that it may split; no smaller one."""
    rows = joined({7: 400_000}, {})
    large = advise_join(rows, JOB, aqe={"left": (10_240 * MB, 256 * MB)})
    assert (large.choice, "MB of the left side, so Spark splits it" in large.reason) == ("spark", True)
    assert advise_join(rows, JOB, aqe={"left": (100 * MB, 256 * MB)}).choice == "unskew"
    assert advise_join(rows, JOB, aqe={"right": (10_240 * MB, 256 * MB)}).choice == "unskew"
    assert advise_join(rows, JOB).choice == "unskew"


def test_aqe_looks_at_bytes_that_come_in_and_not_at_what_comes_out() -> None:
    """The few rows of the key that is most of the output make no large partition."""
    assert advise_join(joined({7: 500}, {7: 10_000}), JOB, aqe={"left": (300 * MB, 256 * MB)}).choice == "unskew"


@pytest.mark.parametrize("how", ["inner", "left", "full", "left_anti"])
def test_the_costs_of_the_advice_are_those_of_the_plan(how: str) -> None:
    rows = joined({7: 500, 9: 3_000}, {7: 10_000, 11: 50}, how)
    plan = join_plan(rows, "left", 16, Bounds()).plan
    assert sum(plan.info.loads) == cost_histogram(rows, 1.0).total
