"""How many cases of each kind a run has. Each test holds that so many were answered; ``test_doses`` that they are
10,000 and more together. Most are cheap ones of gRPC, half a millisecond each; a request of schemathesis costs ten.
"""

from __future__ import annotations

__all__ = ["DOSES", "LONG"]

DOSES = {
    "built": 3456,  # messages of gRPC made from the descriptors
    "broken": 3000,  # valid messages of gRPC with something wrong in them
    "bytes": 1800,  # mere bytes over gRPC
    "chunked": 720,  # streams of chunks
    "unknown": 108,  # methods that are not there
    "metadata": 240,
    "crowd": 592,  # many callers on the same streams
    "grpc sequences": 750,
    "rest sequences": 600,
    "redis sequences": 300,
    "documented": 600,  # requests that schemathesis makes of the OpenAPI document
    "bodies": 600,  # protobuf over REST
    "odd": 300,  # what no document speaks of
}
LONG = 10  # times as many in a long run, and fresh ones
