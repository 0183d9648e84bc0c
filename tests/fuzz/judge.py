"""What is right and what is not, of an answer over gRPC: the status, its details, the field that they blame.

``Judge`` counts the cases that were answered, and keeps what is wrong with each; a test fails with the first few.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import grpc
from google.protobuf.descriptor import Descriptor
from google.rpc import error_details_pb2, status_pb2

from tests.fuzz.messages import REQUESTS
from tests.fuzz.target import DEADLINE

__all__ = ["Judge", "fault_of", "names_a_field"]

Code = grpc.StatusCode
_ALLOWED = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED}
_NO_FIELD = "these bytes are no unskew.v1."
_MOST_TEXT = 1500  # of a message: with its details it has to fit the 8 kB that gRPC allows for trailers
_VALUES = re.compile(r"'[^']*'|\d+")
_STEP = re.compile(r"([a-z_]+)(?:\[\d+\])?(?:\.|$)")


def names_a_field(path: str, of: Descriptor) -> bool:
    """Whether there is such a field in the message: ``report.table.values``, ``partitions[3].seconds``."""
    at, here = 0, of
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or step[1] not in here.fields_by_name:
            return False
        found, at = here.fields_by_name[step[1]], step.end()
        if at == len(path):
            return True
        if found.message_type is None:
            return False
        if found.message_type.full_name == "google.protobuf.Struct":
            return True
        here = found.message_type
    return False


def fault_of(verb: str, call: grpc.Future, also: frozenset[grpc.StatusCode] = frozenset()) -> str:
    """What is wrong with how this call ended, if anything. ``also``: codes that are right here."""
    code, said = call.code(), call.details() or ""
    if code is Code.OK:
        return ""
    if code not in _ALLOWED | also:
        return f"{code.name}: {said[:300]}"
    if code in also:
        return ""
    trailers = dict(call.trailing_metadata() or ())
    if "grpc-status-details-bin" not in trailers:
        return f"{code.name} without details: {said[:300]}"
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    if status.code != code.value[0] or status.message != said:
        return f"{code.name} {said[:200]!r} has details that say {status.code} {status.message[:200]!r}"
    if len(said) > _MOST_TEXT:
        return f"{code.name} with {len(said):,} characters of text: {said[:200]}"
    return _fault_of_details(verb, code, said, status)


def _fault_of_details(verb: str, code: grpc.StatusCode, said: str, status: status_pb2.Status) -> str:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    if not status.details[0].Unpack(info) or info.reason != code.name:
        return f"{code.name} {said[:200]!r}: its first detail is no ErrorInfo that says so"
    for detail in status.details[1:]:
        detail.Unpack(bad)
    for violation in bad.field_violations:
        if not names_a_field(violation.field, REQUESTS[verb].DESCRIPTOR):
            return f"{code.name} blames {violation.field!r}, which is no field of {verb}Request: {said[:300]}"
    if code is Code.INVALID_ARGUMENT and not bad.field_violations and not said.startswith(_NO_FIELD):
        return f"{code.name} names no field: {said[:300]}"
    return ""


@dataclass
class Judge:
    answered: int = 0
    served: int = 0  # by the service's own count
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def took(self, verb: str, code: str, fault: str, sent: object = b"") -> None:
        """One case was answered; ``sent`` is shown with what is wrong."""
        self.answered += 1
        self.codes[f"{verb} {code}"] += 1
        if fault:
            self.faults.append(f"{verb}: {fault}\n    sent {_shown(sent)}")

    def ended(self, verb: str, call: grpc.Future, sent: object, also: frozenset[grpc.StatusCode] = frozenset()) -> None:
        """Wait for the call's end and judge it."""
        call.exception(DEADLINE + 5.0) if not call.done() else None
        self.took(verb, call.code().name, fault_of(verb, call, also), sent)

    def check(self) -> None:
        """Fail with what was wrong since the last check: one of each kind."""
        faults, self.faults = self.faults, []
        kinds: dict[str, list[str]] = {}
        for fault in faults:
            kinds.setdefault(_VALUES.sub("#", fault.partition("\n")[0])[:120], []).append(fault)
        told = "\n".join(f"{len(alike)} times {min(alike, key=len)}" for alike in list(kinds.values())[:20])
        assert not faults, f"{len(faults)} wrong answers, of {len(kinds)} kinds:\n{told}"


def _shown(sent: object) -> str:
    whole = sent.hex() if isinstance(sent, bytes) else repr(sent)
    return whole if len(whole) <= 1000 else f"{whole[:1000]}... ({len(whole):,} characters)"
