"""How many cases of each kind a run has. Each test holds that so many were answered; ``test_doses`` that they are
20,000 and more together. Most are cheap ones of gRPC, half a millisecond each; a request of schemathesis costs ten.
"""

from __future__ import annotations

__all__ = ["DOSES", "LONG"]

DOSES = {
    "built": 7200,  # messages of gRPC made from the descriptors
    "broken": 6000,  # valid messages of gRPC with something wrong in them
    "bytes": 3600,  # mere bytes over gRPC
    "chunked": 720,  # streams of chunks
    "unknown": 216,  # methods that are not there
    "metadata": 480,
    "crowd": 1200,  # many callers on the same streams
    "grpc sequences": 1500,
    "rest sequences": 1200,
    "redis sequences": 600,
    "documented": 900,  # requests that schemathesis makes of the OpenAPI document
    "bodies": 1200,  # protobuf over REST
    "odd": 600,  # what no document speaks of
}
LONG = 5  # times as many in a long run, and fresh ones
