"""``group_apply``: what a plain ``groupBy(key).applyInPandas(fn)`` gives, with heavy groups alone and first."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.doses import some_of
from tests.spark.frames import KEYS, hashes_in, no_job, plan_over, setting, shuffles, typed_frame
from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.operators.group_plan import group_plan
from unskew.core.planners import Origin
from unskew.spark import Unskew
from unskew.spark.operators.groups import GroupMemoryWarning, bytes_of
from unskew.spark.operators.user_functions import fragment, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.plan.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SEEN = "key string, rows bigint, ids bigint, columns string"


def seen(key: Any, rows: Any) -> Any:
    """All that a function of a group can see."""
    columns = " ".join(f"{name}:{kind}" for name, kind in rows.dtypes.items())
    return pd.DataFrame({"key": [repr(key)], "rows": [len(rows)], "ids": [rows["id"].sum()], "columns": [columns]})


def doubled(rows: Any) -> Any:
    """One argument only; assigns to the frame that it is given, as many do."""
    rows["twice"] = rows["id"] * 2
    return rows[["w", "twice"]]


def batches(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for part in parts:
        yield pd.DataFrame({"columns": [" ".join(part.columns)] * len(part), "id": part["id"]})


def seen_arrow(key: Any, rows: Any) -> Any:
    columns = [",".join(rows.column_names)]
    return pa.table(
        {"key": [str(key)], "rows": [rows.num_rows], "ids": [sum(rows["id"].to_pylist())], "columns": columns}
    )


@pytest.fixture(scope="module")
def sk(spark: SparkSession) -> Unskew:
    return Unskew(spark, stream="groups", partitions=4)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Half of the rows have one key; two grouping columns, one with NULLs."""
    return spark.range(0, 3_000, 1, 3).selectExpr(
        "id", "if(id % 2 = 0, 'hot', concat('k', id % 31)) w", "if(id % 5 = 0, null, id % 3) n"
    )


def same(one: DataFrame, other: DataFrame) -> None:
    """The same rows, each as often."""
    counts = [sorted(repr(row) for row in df.collect()) for df in (one, other)]
    assert counts[0] == counts[1]
    assert counts[0]


@pytest.mark.parametrize("adaptive", some_of(["true", "false"], "true"))
def test_a_function_sees_what_a_plain_group_by_shows(
    spark: SparkSession, sk: Unskew, rows: DataFrame, adaptive: str
) -> None:
    """Key and rows, no helper column; composite and expression keys; one shuffle, AQE on and off: it is done when the
    call returns, and no other follows."""
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        for key in (["w", "n"], [F.col("id") % 7, F.upper("w")]):
            ours = sk.group_apply(rows, key, seen, SEEN)
            assert len(shuffles(ours)) == 0
            same(ours, rows.groupBy(*key).applyInPandas(seen, SEEN))
            assert len(shuffles(ours)) == 0


def test_rows_only_arrow_and_batches(spark: SparkSession, sk: Unskew, rows: DataFrame) -> None:
    """fn(rows) that assigns a column without a warning; Arrow tables; the iterators of Spark 4.1."""
    same(
        sk.group_apply(rows, "w", doubled, "w string, twice bigint"),
        rows.groupBy("w").applyInPandas(doubled, "w string, twice bigint"),
    )
    same(
        sk.group_apply(rows, "w", seen_arrow, SEEN, form="arrow"),
        rows.groupBy("w").applyInArrow(seen_arrow, SEEN),
    )
    with setting(spark, spark__sql__execution__arrow__maxRecordsPerBatch="100"):
        same(
            sk.group_apply(rows, "w", batches, "columns string, id bigint"),
            rows.groupBy("w").applyInPandas(batches, "columns string, id bigint"),
        )


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(["double", "decimal(9,2)"], id="few"), pytest.param(list(KEYS), id="all", marks=pytest.mark.long)],
)
def test_every_key_type_groups_as_in_spark(spark: SparkSession, sk: Unskew, kinds: list[str]) -> None:
    """NULL, NaN and both zeros included: plans with hot keys for each type, all compared in one job."""
    frame = typed_frame(spark, 1_200)
    names = [f"c{list(KEYS).index(kind)}" for kind in kinds]
    table = frame.select(*(F.xxhash64(name).alias(name) for name in names)).toArrow()
    ours, plain = [], []
    for name in names:
        part = frame.select("id", name)
        plan = plan_over(hashes_in(table, name), "kip", 4)
        assert len(plan.hot)
        ours.append(sk.group_apply(part, name, seen, SEEN, plan))
        plain.append(part.groupBy(name).applyInPandas(seen, SEEN))
    found, wanted = (reduce(lambda a, b: a.unionAll(b), frames) for frames in (ours, plain))
    same(found, wanted)


def test_heavy_groups_are_alone(sk: Unskew, rows: DataFrame) -> None:
    """Partition 0 holds the heaviest group and nothing else, in flight and by a plan; the plan has at least three
    partitions a slot."""
    plan = group_plan(sk.histogram(rows, "w"), 6, origin=Origin(key_types=("string",)))
    assert list(plan.info.loads) == sorted(plan.info.loads, reverse=True)
    assert "descending load" in plan.info.reason
    for given in (None, plan):
        where = sk.group_apply(rows, "w", placed, "w string, at int", given)
        at = {row["w"]: row["at"] for row in where.collect()}
        assert at["hot"] == 0
        assert [w for w, p in at.items() if p == 0] == ["hot"]
    exchange = shuffles(where)[0].text
    assert re.search(r", 6\), REPARTITION_BY_NUM", exchange), exchange  # two slots here
    assert sk.placed is not None
    assert list(sk.placed.loads) == sorted(sk.placed.loads, reverse=True)
    assert len(sk.placed.loads) >= 4


@pytest.mark.parametrize("adaptive", some_of(["true", "false"], "true"))
def test_heavy_groups_start_first(spark: SparkSession, sk: Unskew, rows: DataFrame, adaptive: str) -> None:
    """Tasks are launched by partition number, which is by descending load, and AQE leaves every partition its task."""
    skewed = rows.selectExpr("id", "cast(floor(sqrt(id)) as int) w")  # no two groups of one size
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        plan = group_plan(sk.histogram(skewed, "w"), 6, origin=Origin(key_types=("int",)))
        launched = tasks_of(spark, sk.group_apply(skewed, "w", placed, "w int, at int", plan))
    assert [index for _, index, _ in sorted(launched)] == list(range(6))
    read = [rows for _, _, rows in sorted(launched)]
    assert read == [int(load) for load in plan.info.loads]
    assert read == sorted(read, reverse=True)
    assert len(set(read)) > 1


def tasks_of(spark: SparkSession, df: DataFrame) -> list[tuple[int, int, int]]:
    """Of each task of the last stage of a run of ``df``: its id, which counts launches, its partition, its rows."""
    context: Any = spark.sparkContext
    group = f"launched-{uuid4()}"
    context.setJobGroup(group, group)
    df.collect()
    context.setLocalProperty("spark.jobGroup.id", None)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
    stage = max(stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds)
    tasks = store.taskList(stage, 0, 100)
    each = [tasks.apply(i) for i in range(tasks.size())]
    return [(one.taskId(), one.index(), one.taskMetrics().get().shuffleReadMetrics().recordsRead()) for one in each]


def test_an_empty_frame_and_one_of_no_keys(sk: Unskew, rows: DataFrame) -> None:
    """No group of nothing; all rows without a key are one group."""
    assert sk.group_apply(rows.where("id < 0"), "w", seen, SEEN).collect() == []
    nobody = rows.withColumn("w", F.lit(None).cast("string"))
    same(sk.group_apply(nobody, "w", seen, SEEN), nobody.groupBy("w").applyInPandas(seen, SEEN))


def test_workers_need_nothing_of_unskew(tmp_path: Path) -> None:
    """What they are sent runs where there is no unskew: values, and functions that travel whole."""
    from pyspark.cloudpickle import dumps

    def counted(key: Any, rows: Any) -> Any:
        return rows[:1].assign(n=len(rows), w=key[0])

    calls = {"whole": whole(counted, "pandas", 1, 1), "fragment": fragment(counted, "pandas", ["id", "n", "w"], "m")}
    (tmp_path / "calls").write_bytes(dumps(calls))
    code = """if True:
        import pickle, sys
        sys.modules["unskew"] = None
        import pandas as pd
        calls = pickle.load(open("calls", "rb"))
        print(calls["whole"]((7, "k"), pd.DataFrame({"id": [5, 6], "at": [7, 7]})).to_dict("list"))
        print(calls["fragment"]((7, "k"), pd.DataFrame({"id": [5, 6], "at": [7, 7], "split": [3, 3]})).to_dict("list"))
    """
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [
        "{'id': [5], 'n': [2], 'w': ['k']}",
        "{'id': [5], 'n': [2], 'w': ['k'], 'm': [3]}",
    ], ran.stderr


def placed(rows: Any) -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    return pd.DataFrame({"w": rows["w"][:1], "at": np.int32(-1 if context is None else context.partitionId())})


def test_a_plan_that_splits_is_refused_by_name(sk: Unskew, rows: DataFrame) -> None:
    """Before any job; a plan that keeps keys whole is taken as it is."""
    hashes = hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h")
    split: Plan = plan_over(hashes, "balanced", 4)
    assert split.splits
    with no_job(sk.spark), pytest.raises(PlanError, match=r"\(balanced\) splits 1 keys; group_apply needs each group"):
        sk.group_apply(rows, "w", seen, SEEN, split)


def test_bad_use_is_refused_before_any_job(spark: SparkSession, sk: Unskew, rows: DataFrame) -> None:
    """Form, function, schema, key, memory."""
    with no_job(spark):
        with pytest.raises(ConfigError, match="form: 'polars'"):
            sk.group_apply(rows, "w", seen, SEEN, form="polars")
        with pytest.raises(ConfigError, match="a function of 3 arguments"):
            sk.group_apply(rows, "w", lambda a, b, c: a, SEEN)
        with pytest.raises(ConfigError, match=r"fn: .*whose arguments can be told"):
            sk.group_apply(rows, "w", dict, SEEN)
        with pytest.raises(ConfigError, match="fn: 7"):
            sk.group_apply(rows, "w", 7, SEEN)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
            sk.group_apply(rows, "w", seen, "key strin,")
        with pytest.raises(ConfigError, match="key: 'user'"):
            sk.group_apply(rows, "user", seen, SEEN)
        with pytest.raises(KeyTypeError, match="map"):
            sk.group_apply(rows.withColumn("m", F.create_map("w", "id")), "m", seen, SEEN)
        with pytest.raises(ConfigError, match="the same value each time"):
            sk.group_apply(rows, F.floor(F.rand() * 4), seen, SEEN)
        with pytest.raises(ConfigError, match="memory: 'much'"):
            sk.group_apply(rows, "w", seen, SEEN, memory="much")


def test_groups_that_will_not_fit_are_named_before_they_run(spark: SparkSession, sk: Unskew, rows: DataFrame) -> None:
    """The heaviest by name, rows and size; the settings of the executors count; nothing where all fit."""
    plan = plan_over(hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h"), "kip", 4)
    with pytest.warns(
        GroupMemoryWarning, match=r"1 group\(s\) may not fit .* 20 KiB \(memory=\): \{\"w\":\"hot\"\} \(1,5"
    ) as told:
        sk.group_apply(rows, "w", seen, SEEN, plan, memory="20k")
    assert told[0].filename == __file__
    with pytest.warns(GroupMemoryWarning, match=r"^\d+ group.*and \d+ more, as arrow"):
        sk.group_apply(
            rows,
            "w",
            seen_arrow,
            SEEN,
            plan_over(hashes_in(rows.select(F.xxhash64("w").alias("h")).toArrow(), "h"), "kip", 8),
            form="arrow",
            memory=10,
        )
    with warnings.catch_warnings(), no_job(spark):
        warnings.simplefilter("error")
        sk.group_apply(rows, "w", seen, SEEN, plan)


@pytest.mark.parametrize(
    ("given", "unit", "found"), [("512m", "b", 512 << 20), (7, "b", 7), ("2 GB", "b", 2 << 30), ("300", "m", 300 << 20)]
)
def test_sizes_are_read_as_spark_writes_them(given: int | str, unit: str, found: int) -> None:
    """With units, or a bare number in the setting's own."""
    assert bytes_of("memory", given, unit) == found
