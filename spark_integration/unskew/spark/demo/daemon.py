"""The process that Spark's Python workers are forked from, with the modules that they need already imported.

A worker needs a second and a half of processor time to import pandas and pyarrow; sixteen at once, on two cores, delay
the first batch by ten seconds. And after each task a worker collects garbage among all imported objects: once these are
frozen that takes no time, instead of 60 ms. Spark starts this module instead of ``pyspark.daemon`` if
``spark.python.daemon.module`` is set to its name.
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
