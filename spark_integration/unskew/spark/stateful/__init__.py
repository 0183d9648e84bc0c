"""Keyed state kept from batch to batch on KIP plans, without Spark's state store (docs/decisions/0019)."""

from unskew.spark.stateful.handler import Stateful, stateful
from unskew.spark.stateful.report import Report, read_report

__all__ = ["Report", "Stateful", "read_report", "stateful"]
