"""``unskew demo``: one stream, placed by Spark's hash and by unskew's plans, side by side, with proof of equal results.

The stream is synthetic (``stream``); everything else is real: Spark, the embedded service, the plans, the agents that
learn beside it. Decided here: what both arms run and how it is measured; how it is shown is decided in
``unskew.cli.demo``. Begin with ``play``.
"""

from __future__ import annotations

from unskew.spark.demo.agents import DSYNC_LEAST, DSYNC_MOST
from unskew.spark.demo.local import DemoError, check_java
from unskew.spark.demo.play import DemoBatch, Outcome, Step, Watcher, play
from unskew.spark.demo.stream import BOUNDS, Demo, quick

__all__ = [
    "BOUNDS",
    "DSYNC_LEAST",
    "DSYNC_MOST",
    "Demo",
    "DemoBatch",
    "DemoError",
    "Outcome",
    "Step",
    "Watcher",
    "check_java",
    "play",
    "quick",
]
