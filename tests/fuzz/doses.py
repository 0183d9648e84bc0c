"""How many cases of each kind a run has. Each test holds that so many were answered; ``test_doses`` that they are
10,000 and more together. Most are cheap ones of gRPC, half a millisecond each; a request of schemathesis costs ten.
"""

from __future__ import annotations

__all__ = ["DOSES", "LONG_DOSES"]

DOSES = {
    "built": 2304,  # messages of gRPC made from the descriptors
    "broken": 2400,  # valid messages of gRPC with something wrong in them
    "bytes": 3000,  # mere bytes over gRPC
    "chunked": 720,  # streams of chunks
    "unknown": 108,  # methods that are not there
    "metadata": 240,
    "crowd": 592,  # many callers on the same streams
    "grpc sequences": 450,
    "rest sequences": 200,
    "redis sequences": 120,
    "documented": 400,  # requests that schemathesis makes of the OpenAPI document
    "bodies": 350,  # protobuf over REST
    "odd": 200,  # what no document speaks of
}
LONG_DOSES = {kind: 10 * dose for kind, dose in DOSES.items()} | {
    "broken": 30_000,
    "grpc sequences": 7_500,
    "rest sequences": 6_000,
    "redis sequences": 3_000,
    "documented": 6_000,
    "bodies": 6_000,
    "odd": 3_000,
}
"""Of a long run, and fresh ones."""
