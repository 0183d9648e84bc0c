"""Where each portion of the namespace lives."""

from __future__ import annotations

__all__ = ["PORTIONS"]

PORTIONS = {
    "core": "core/unskew/core",
    "simulate": "simulate/unskew/simulate",
    "wire": "core/unskew/wire",
    "v1": "proto/unskew/v1",
    "client": "client/unskew/client",
    "service": "service/unskew/service",
    "spark": "spark_integration/unskew/spark",
    "cli": "cli/unskew/cli",
}
