"""Protobuf messages to core values and back: the only place that translates."""

from unskew.wire.plans import plan_from_bytes, plan_to_bytes

__all__ = ["plan_from_bytes", "plan_to_bytes"]
