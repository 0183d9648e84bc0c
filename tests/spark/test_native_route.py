"""A plan compiled to Spark SQL routes every row as the numpy face does, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.planning import key_hashes
from tests.spark.frames import KEYS, hashes_in, plan_over, setting, typed_frame
from unskew.core import hash_keys
from unskew.core.errors import PlanError
from unskew.core.plan.hot_keys import HotKeys, SplitSlots
from unskew.core.plan.lookup import find_lookup
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import physical_text
from unskew.spark.frame.keys import key_of, spread_of
from unskew.spark.place.native import hot_column, route_column, table_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

POLICIES = {"hash": {}, "kip": {"factor": 1.0}, "prompt": {}, "balanced": {}, "cg": {}}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """Every key type, computed once."""
    kept = typed_frame(spark).persist()
    yield kept
    kept.unpersist()


def routes_alike(spark: SparkSession, frame: DataFrame, plans: dict[str, Plan], keys: dict[str, list[str]]) -> None:
    """Each plan's column is what its ``route`` says of hashes made by core from the columns as Arrow has them."""
    spread = spread_of(frame, "id").hash
    routes = [
        route_column(plan, key_of(frame, keys[name]).hash, spread).alias(f"p {name}") for name, plan in plans.items()
    ]
    table = frame.select("*", spread.alias("spread"), *routes).toArrow().combine_chunks()
    for name, plan in plans.items():
        hashes = hash_keys(*(table[column] for column in keys[name]))
        wanted = plan.route(hashes, hashes_in(table, "spread"))
        assert np.array_equal(table[f"p {name}"].to_numpy(), wanted), name


@pytest.mark.parametrize(
    ("policy", "ansi"),
    some_of(
        [
            ("hash", "true"),
            ("kip", "false"),
            ("prompt", "true"),
            ("prompt", "false"),
            ("balanced", "true"),
            ("cg", "false"),
        ],
        ("kip", "false"),
        ("prompt", "true"),
    ),
)
def test_every_key_type_is_routed_as_numpy_routes_it(
    spark: SparkSession, frame: DataFrame, policy: str, ansi: str
) -> None:
    """All types, NULLs, -0.0 and NaN, and composites of them; keys kept whole and split; ANSI on and off."""
    assert tuple(key_of(frame, f"c{i}").types[0] for i in range(len(KEYS))) == tuple(KEYS)
    keys = {name: [f"c{i}"] for i, name in enumerate(KEYS)}
    keys["string, bigint, date"] = ["c7", "c4", "c9"]
    keys["void, decimal, double"] = ["c14", "c13", "c6"]
    table = frame.toArrow().combine_chunks()
    plans = {}
    for i, name in enumerate(keys):
        hashes = hash_keys(*(table[column] for column in keys[name]))
        plans[name] = plan_over(hashes, policy, 5 + i, **POLICIES[policy])
    with setting(spark, spark__sql__ansi__enabled=ansi):
        routes_alike(spark, frame, plans, keys)
    split = sum(plan.splits for plan in plans.values())
    assert split >= 10 if policy in ("prompt", "balanced") else policy == "cg" or split == 0


def test_a_million_rows_of_a_composite_key(spark: SparkSession) -> None:
    """Thousands of hot keys, so that the look-up is displaced; whole and split; of 1 M rows none differs."""
    rows = spark.range(1_000_000).selectExpr(
        "id", "concat('user-', cast(floor(exp(pmod(hash(id), 100000) / 1e5 * ln(50000))) as int)) s", "pmod(id, 3) t"
    )
    key, spread = key_of(rows, ["s", "t"]), spread_of(rows, ["id"])
    hashed = rows.select(key.hash.alias("h"), spread.hash.alias("s")).toArrow()
    hashes, spreads = hashes_in(hashed, "h"), hashes_in(hashed, "s")
    plans = [plan_over(hashes, "prompt", 64), plan_over(hashes, "kip", 64, factor=16.0)]
    assert all(len(plan.hot.lookup.displacement) > 1 for plan in plans)
    assert [plan.splits for plan in plans] == [True, False]
    routes = [route_column(plan, key.hash, spread.hash).alias(f"p{i}") for i, plan in enumerate(plans)]
    routed = rows.select(*routes).toArrow()
    for i, plan in enumerate(plans):
        assert np.array_equal(routed[f"p{i}"].to_numpy(), plan.route(hashes, spreads))


def made_by_hand(hashes: np.ndarray, cut: list[int]) -> Plan:
    """All keys split in two slots of four partitions, cut there."""
    count = len(hashes)
    slots = SplitSlots(
        np.ones(count, np.uint8),
        np.tile(np.array([0, 2], np.int32), count),
        np.tile(np.array([1, 3], np.int32), count),
        np.tile(np.array(cut, np.uint64), count),
    )
    hot = HotKeys(
        hashes,
        -1 - np.arange(count, dtype=np.int32),
        np.ones(count, np.int64),
        np.zeros(count, np.uint8),
        ("by hand",),
        slots,
        find_lookup(hashes),
    )
    return Plan(4, np.arange(4096, dtype=np.int32) % 4, hot)


@pytest.mark.parametrize("cut", [[0, 2**62], [2**62, 2**63], [2**61, 2**63 - 1]])
@pytest.mark.parametrize("awkward", [False, True])
def test_cuts_at_the_ends_and_keys_that_need_a_second_hash(spark: SparkSession, cut: list[int], awkward: bool) -> None:
    """A cut of 2^63 fits no bigint; keys that no shift parts are looked up by a hash of it."""
    hashes = np.sort(np.array([4, 5, 5 + 2**63], np.uint64) if awkward else key_hashes(40))
    plan = made_by_hand(hashes, cut)
    assert plan.hot.lookup.remix is awkward
    edges = np.array([0, 1, 2**62, 2**62 - 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)
    keys = np.repeat(np.concatenate([hashes, hashes ^ np.uint64(1)]), len(edges))
    spread = np.tile(edges, 2 * len(hashes))
    pairs = list(zip(keys.view(np.int64).tolist(), spread.view(np.int64).tolist(), strict=True))
    rows = spark.createDataFrame(pairs, "h bigint, s bigint")
    found = rows.select("h", "s", route_column(plan, F.col("h"), F.col("s")).alias("p")).toArrow()
    wanted = plan.route(hashes_in(found, "h"), hashes_in(found, "s"))
    assert found["p"].to_pylist() == wanted.tolist()


def test_tables_are_arrays_in_the_plan_that_runs_and_the_tail_is_there_once(spark: SparkSession) -> None:
    """Spark parses the literals when it plans, not for every row, and carries the largest table once."""
    rows = spark.range(100).selectExpr("id", "id % 7 k")
    hashes = np.repeat(hash_keys(np.arange(7)), [50, 20, 10, 10, 5, 3, 2])
    plan = plan_over(hashes, "prompt", 4)
    routed = rows.select(route_column(plan, key_of(rows, "k").hash, spread_of(rows, "id").hash).alias("p"))
    text = physical_text(routed)
    assert plan.splits
    assert "json" not in text
    assert text.count(f"[{table_text(plan.tail)}]") == 1
    assert text.startswith("== Physical Plan ==\n*(1) Project")  # in whole-stage code


def test_a_split_plan_without_a_spread_is_refused(spark: SparkSession) -> None:
    """As the numpy face does, before anything is built."""
    plan = plan_over(np.repeat(hash_keys(["a", "b"]), [90, 10]), "balanced", 4)
    with pytest.raises(PlanError, match="each row needs a spread hash"):
        route_column(plan, F.xxhash64("k"))


def test_hot_column_tells_the_keys_it_was_made_for(spark: SparkSession) -> None:
    """True for each of them, for no other."""
    hot = np.sort(hash_keys(np.arange(300)))
    rows = spark.range(3_000).select("id", F.xxhash64("id").alias("h"))
    found = rows.where(hot_column(find_lookup(hot), hot, F.col("h"))).select("id").toArrow()
    assert sorted(found["id"].to_pylist()) == list(range(300))
