"""What REST takes and gives in JSON: the messages of the gRPC contract by the same names, arrays unpacked.

A model of a request reads it and turns it into its message; what a value may be beyond its type is judged where
messages are read (``unskew.wire``), for REST and gRPC alike. A model of an answer is its schema in the OpenAPI
document: the answer itself is a dict that is not validated (``encoder``), and tests hold the two together.
"""

from unskew.service.rest.models.base import Model, Problem, Share, VersionText, version_of
from unskew.service.rest.models.batches import (
    BuildPlan,
    Built,
    Explain,
    Explanation,
    Fragment,
    PartitionWork,
    PlanDocument,
    ReportBatch,
    Reported,
    ReportedHistogram,
    ReportHistogram,
    Scale,
)  # fmt: skip
from unskew.service.rest.models.rounds import FrequentItems, QTable, SyncAnswer, SyncReport, SyncRequest, SyncResponse
from unskew.service.rest.models.streams import Stream, StreamPage, StreamSpec

__all__ = [
    "BuildPlan", "Built", "Explain", "Explanation", "Fragment", "FrequentItems", "Model", "PartitionWork",
    "PlanDocument", "Problem", "QTable", "ReportBatch", "ReportHistogram", "Reported", "ReportedHistogram", "Scale",
    "Share", "Stream", "StreamPage", "StreamSpec", "SyncAnswer", "SyncReport", "SyncRequest", "SyncResponse",
    "VersionText", "version_of",
]  # fmt: skip
