"""The process that Spark's Python workers are forked from, with what each of them would load loaded once.

A worker takes a second and a half of processor time to load pandas and pyarrow; sixteen at once, on two cores, keep the
first batch waiting for ten. And after each task a worker collects garbage, among all that it has loaded: once that is
frozen it takes nothing, instead of 60 ms. Spark starts this module instead of ``pyspark.daemon`` where
``spark.python.daemon.module`` names it.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

for _module in ("pandas", "pyspark.worker", "unskew.spark.demo.work"):
    import_module(_module)

if __name__ == "__main__":
    gc.freeze()
    manager()
