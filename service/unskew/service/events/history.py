"""The history of a stream: entries small enough to be kept by the hundred and shown over time.

Each is what REST answers (``overview``) and what the store keeps, as JSON without its time, which the store adds. An
entry of another release that this one cannot read is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unskew.core.quality.measures import load_imbalance

if TYPE_CHECKING:
    from unskew.service.stores.records import HistoryEntry

__all__ = ["AnyNote", "BatchNote", "Expected", "Observed", "PlanNote", "RoundNote", "clipped", "imbalance_of", "read"]

_LONGEST = 300  # characters of a reason
At = Annotated[float, Field(description="seconds since 1970, by the store's clock")]
Imbalance = Annotated[float | None, Field(description="fullest partition over mean; null: no rows")]


class AnyNote(BaseModel):
    """``kind``: its name in the store, which keeps the last ``keep``."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    kind: ClassVar[str] = ""
    keep: ClassVar[int] = 120

    at: At = 0.0

    def data(self) -> bytes:
        return self.model_dump_json(exclude={"at"}).encode()


N = TypeVar("N", bound=AnyNote)


class PlanNote(AnyNote):
    """A plan was made, or kept. ``imbalance`` is what it predicts for the rows that it was made from, and ``by_hash``
    what plain hashing would give. ``way``: how the batch should go, and why; empty where nothing was advised."""

    kind: ClassVar[str] = "plan"

    version: str
    batch: int | None
    outcome: str
    reason: str = Field(max_length=_LONGEST)
    imbalance: Imbalance
    by_hash: Imbalance
    moved_rows: float
    hot_keys: int
    way: str = ""
    way_reason: str = Field("", max_length=_LONGEST)


class BatchNote(AnyNote):
    """A batch was reported. ``source`` is empty where the reports of several were merged; ``version`` is that of the
    plan that it was routed by, if it was reported."""

    kind: ClassVar[str] = "batch"

    batch: int
    source: str
    version: str | None
    rows: int
    imbalance: Imbalance
    seconds: float = Field(description="that its processing took; 0: not told")


class RoundNote(AnyNote):
    """A round of cooperative learning was merged. ``seconds``: from its first report to its answer."""

    kind: ClassVar[str] = "round"

    epoch: int
    reports: int
    outcome: str
    seconds: float
    dsync_seconds: float


class Expected(AnyNote):
    """Rows per partition that the plan of this digest gives for the last histogram, and those that plain hashing would
    give."""

    kind: ClassVar[str] = "expected"
    keep: ClassVar[int] = 1

    digest: str
    by_plan: list[int]
    by_hash: list[int]
    plan_imbalance: Imbalance
    hash_imbalance: Imbalance


class Observed(AnyNote):
    """Rows per partition of the last batch that was reported."""

    kind: ClassVar[str] = "observed"
    keep: ClassVar[int] = 1

    batch: int
    source: str
    version: str | None
    loads: list[int]
    imbalance: Imbalance


def imbalance_of(loads: Sequence[int]) -> float | None:
    return load_imbalance(loads) if any(loads) else None


def clipped(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."


def read(kind: type[N], entries: Iterable[HistoryEntry]) -> list[N]:
    """Those that can be read, the earliest first."""
    notes = []
    for entry in entries:
        try:
            note = kind.model_validate_json(entry.data)
        except ValidationError:
            continue
        notes.append(note.model_copy(update={"at": round(entry.at, 3)}))
    return notes
