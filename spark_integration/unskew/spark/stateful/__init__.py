"""Keyed state kept from batch to batch on KIP plans, without Spark's state store (docs/decisions/0019).

``handler`` decides what a batch does and commits it to the ``log``; ``task`` does a partition's part: it loads state
(``store``, ``blocks``), calls the user's function (``calls``), and saves. Begin with ``handler``.
"""

from unskew.spark.stateful.handler import Stateful, stateful
from unskew.spark.stateful.manifest_log import Report, read_report

__all__ = ["Report", "Stateful", "read_report", "stateful"]
