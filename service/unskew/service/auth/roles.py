"""What each verb needs: a role, on the streams whose names match a pattern. Roles include each other: an admin reports,
a reporter reads."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["ROLE_OF", "Grant", "Role"]


class Role(IntEnum):
    """What may be done, each more than the one before it."""

    READER = 1
    REPORTER = 2
    ADMIN = 3


ROLE_OF: Mapping[str, Role] = {
    "PutStream": Role.ADMIN,
    "DeleteStream": Role.ADMIN,
    "ReportHistogram": Role.REPORTER,
    "BuildPlan": Role.REPORTER,
    "Sync": Role.REPORTER,
    "ReportBatch": Role.REPORTER,
    "GetStream": Role.READER,
    "ListStreams": Role.READER,
    "GetPlan": Role.READER,
    "WatchPlans": Role.READER,
    "GetScale": Role.READER,
    "Explain": Role.READER,
    "GetOverview": Role.READER,
    "ListOverviews": Role.READER,
    "Metrics": Role.READER,  # of all streams: their names are in it
    "Describe": Role.READER,  # of any: the OpenAPI document, reflection
}


@dataclass(frozen=True)
class Grant:
    """A role on the streams whose names match. ``*`` matches any run of characters, ``/`` included."""

    role: Role
    pattern: str

    def covers(self, role: Role, stream: str) -> bool:
        return self.role >= role and (self.pattern == "*" or fnmatch.fnmatchcase(stream, self.pattern))
