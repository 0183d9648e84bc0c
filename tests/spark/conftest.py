"""One local Spark for all tests of this folder: quiet, no UI, in UTC, with few shuffle partitions."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "OFF",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # it looks for IPython at each use of a column
    "spark.python.daemon.module": "unskew.spark.demo.daemon",  # workers that need not load pandas anew
}
# Spark's default starts a process, `readlink`, for each file of a checkpoint: a hundred in a streaming test, a sixth of
# what it costs. The tests that kill drivers have the default.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server; who uses it is of the group ``spark-cluster``."""
    from tests.spark.connect_server import running

    with running(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores; its warehouse and metastore live in a temporary folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the gateway's pipes, closed when the session stops
        from pyspark import __version__ as version
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers: this Python and what is installed in it
        builder = SparkSession.builder.master("local[2]").appName("unskew-tests")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        if version >= "4.3":  # before it the class has another name
            builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINTS)
        builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        logging.getLogger("py4j").setLevel(logging.ERROR)
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        yield session
        session.stop()
