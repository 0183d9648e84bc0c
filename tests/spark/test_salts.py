"""A salt hashed after other columns sends each row to the partition that is wanted, as Spark's own exchange puts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from tests.spark.frames import setting, typed_frame
from unskew.core.keys.murmur3_inverse import invert_u32
from unskew.spark.place.repartition import salt_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_rows_go_where_they_are_wanted_whatever_is_hashed_before(spark: SparkSession, ansi: str) -> None:
    """Columns of every type, NULLs among them; the salt is core's inverse; no product overflows."""
    frame = typed_frame(spark, 600)
    others = [F.col(name) for name in frame.columns]
    with setting(spark, spark__sql__ansi__enabled=ansi, spark__sql__adaptive__enabled="false"):
        salted = frame.withColumn("want", F.pmod(F.xxhash64("id"), F.lit(7)).cast("int")).withColumn(
            "salt", salt_column(7, F.col("want"), others)
        )
        placed = salted.repartition(7, *others, F.col("salt"))
        found = placed.select("want", F.spark_partition_id().alias("there"), "salt", F.hash(*others).alias("seed"))
        table = found.toArrow()
    want, there, salt, seed = (table[name].to_numpy().astype(np.int32) for name in table.column_names)
    assert want.tolist() == there.tolist()
    assert len(set(want.tolist())) == 7
    wanted = invert_u32(want.view(np.uint32), seed.view(np.uint32))
    assert salt.tolist() == wanted.view(np.int32).tolist()
