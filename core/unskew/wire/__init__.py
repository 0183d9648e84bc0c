"""Protobuf messages to core values and back; nothing else encodes or decodes them.

Every ``x_from_*`` validates its input and raises ``WireError``, which names the field (``PlanFormatError`` for plans
and pins). Begin with ``streams``, or with ``plans`` for the format of a plan.
"""

from unskew.wire.histograms import (
    Assembler,
    chunks,
    histogram_from_bytes,
    histogram_from_message,
    histogram_to_bytes,
    histogram_to_message,
)
from unskew.wire.pins import StoredPin, pinned_from_bytes, pinned_to_bytes
from unskew.wire.plans import plan_from_bytes, plan_to_bytes
from unskew.wire.round_messages import (
    Received,
    answer_from_bytes,
    answer_from_message,
    answer_to_bytes,
    answer_to_message,
    report_from_bytes,
    report_from_message,
    report_to_bytes,
    report_to_message,
)
from unskew.wire.streams import (
    ACTIONS,
    OUTCOMES,
    part_from_message,
    part_to_message,
    spec_from_bytes,
    spec_from_message,
    spec_to_bytes,
    spec_to_message,
    version_from_message,
    version_to_message,
    work_from_bytes,
    work_from_message,
    work_to_bytes,
    work_to_message,
)

__all__ = [
    "ACTIONS", "OUTCOMES", "Assembler", "Received", "StoredPin", "answer_from_bytes", "answer_from_message",
    "answer_to_bytes", "answer_to_message", "chunks", "histogram_from_bytes", "histogram_from_message",
    "histogram_to_bytes", "histogram_to_message", "part_from_message", "part_to_message", "pinned_from_bytes",
    "pinned_to_bytes", "plan_from_bytes", "plan_to_bytes", "report_from_bytes", "report_from_message",
    "report_to_bytes", "report_to_message", "spec_from_bytes", "spec_from_message", "spec_to_bytes",
    "spec_to_message", "version_from_message", "version_to_message", "work_from_bytes", "work_from_message",
    "work_to_bytes", "work_to_message",
]  # fmt: skip
