"""The one place that looks behind pyspark's public face, and does without where there is nothing to look at.

Under Spark Connect a DataFrame has no JVM object here. Everything that routes works there too; what only checks is left
out and says so by returning None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["deterministic", "physical_text", "spark_version"]

OLDEST = (4, 0)


def spark_version(df: DataFrame) -> tuple[int, int]:
    """The server's version, or a ``ConfigError`` where it is none that unskew runs on."""
    text = df.sparkSession.version
    major, minor = (int(part) for part in text.split(".")[:2])
    if not OLDEST <= (major, minor) < (OLDEST[0] + 1, 0):
        raise ConfigError(
            "Spark version", text, "Spark 4.0 or a later 4.x (3.x has neither ANSI typing nor these types)"
        )
    return major, minor


def physical_text(df: DataFrame) -> str:
    """What ``df.explain()`` prints, without printing: the final plan where the frame has run under AQE."""
    inner: Any = df
    if hasattr(inner, "_jdf"):
        jvm: Any = df.sparkSession._jvm
        return str(jvm.PythonSQLUtils.explainString(inner._jdf.queryExecution(), "simple"))
    return str(inner._explain_string())


def deterministic(df: DataFrame, column: Column) -> bool | None:
    """Whether evaluating the expression again gives the same; None where that cannot be told (Connect)."""
    inner: Any = df.select(column)
    if not hasattr(inner, "_jdf"):
        return None
    expressions = inner._jdf.queryExecution().analyzed().expressions()
    return all(expressions.apply(i).deterministic() for i in range(expressions.size()))
