"""A cluster that allocates executors dynamically, asked for more slots than it has. Prints what came of it, as JSON.

Run as a process of its own: ``python -m tests.spark.failures.more_executors FOLDER``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.servers import wait_for
from tests.spark.failures.cluster import CORES, EXECUTORS, executors, local_cluster, session
from unskew.spark.frame.jvm import request_slots

DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(EXECUTORS),
    "spark.executor.cores": str(CORES),
}


def main(folder: Path) -> None:
    with local_cluster(folder) as master:
        spark = session(folder, master, more=DYNAMIC)
        wait_for("the first executor", lambda: len(executors(folder)) == 1, 180.0)
        told = {
            "enough": request_slots(spark, CORES),
            "more": request_slots(spark, EXECUTORS * CORES),
        }
        wait_for("the second executor", lambda: len(executors(folder)) == EXECUTORS, 180.0)
        sys.stdout.write(json.dumps({**told, "executors": len(executors(folder))}) + "\n")
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
