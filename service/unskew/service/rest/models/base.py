"""What the models have in common: how strict they are, the types of single values, and problems."""

from __future__ import annotations

import re
from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from unskew.core.errors import WireError
from unskew.v1 import plan_pb2

__all__ = ["Model", "Problem", "Seconds", "Share", "VersionText", "packed", "version_of"]

_VERSION = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})")

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
VersionText = Annotated[str, Field(max_length=50, description="incarnation.number", examples=["1760000000000000.3"])]


class Model(BaseModel):
    # The JSON parser does not remember strings: no hash comes twice, and looking takes longer than making it.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, cache_strings="keys")


def version_of(text: str) -> plan_pb2.PlanVersion:
    """``incarnation.number``, as a message."""
    match = _VERSION.fullmatch(text)
    if match is None or max(parts := [int(part) for part in match.groups()]) >= 2**64:
        raise WireError("version", f"{text[:80]!r} is not allowed; use incarnation.number, such as 1760000000000000.3")
    return plan_pb2.PlanVersion(incarnation=parts[0], number=parts[1])


def packed(numbers: NDArray[Any]) -> bytes:
    """Numbers as the messages have them."""
    return numbers.astype("<u8", copy=False).tobytes()


class FieldProblem(Model):
    """What is wrong with one field."""

    field: str
    detail: str


class Problem(Model):
    """RFC 9457. ``code`` is the name of the gRPC status that the same call would get."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = Field(default_factory=list)
