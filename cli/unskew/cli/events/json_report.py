"""The findings as JSON: applications in the order that they were read, the stages of each by seconds lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from unskew.cli.events.read_log import ApplicationReport
from unskew.core.diagnosis.findings import Finding

__all__ = ["as_json"]


def as_json(reports: Sequence[ApplicationReport], top: int) -> str:
    """One document, with at most ``top`` stages an application."""
    return json.dumps({"upper_bound": True, "applications": [_report(one, top) for one in reports]}, indent=2) + "\n"


def _report(report: ApplicationReport, top: int) -> dict[str, Any]:
    application = report.application
    return {
        "log": report.log,
        "id": application.id,
        "name": application.name,
        "spark": application.spark,
        "ended": application.ended is not None,
        "seconds": round(application.seconds, 3),
        "seconds_lost": round(report.seconds_lost, 3),
        "share_lost": round(report.share_lost, 4),
        "tasks": report.tasks,
        "unread": list(report.unread),
        "stages": [_stage(finding) for finding in report.findings[:top]],
    }


def _stage(finding: Finding) -> dict[str, Any]:
    operator, remedy, query = finding.operator, finding.remedy, finding.query
    return {
        "stage": finding.stage,
        "attempt": finding.attempt,
        "name": finding.name,
        "query": None if query is None else {"number": query.number, "description": query.description},
        "operator": operator.kind,
        "node": operator.node,
        "keys": [[column.text for column in side] for side in operator.keys],
        "partitions": operator.partitions,
        "aqe_split": operator.aqe_split,
        "tasks": finding.tasks,
        "slots": finding.slots,
        "seconds": round(finding.taken, 3),
        "even_seconds": round(finding.ideal, 3),
        "seconds_lost": round(finding.lost, 3),
        "share_lost": round(finding.share, 4),
        "skew": finding.is_skew,
        "cause": finding.cause.kind,
        "sureness": finding.cause.sureness,
        "reasons": [*finding.cause.reasons, *finding.notes],
        "advise": remedy.advise,
        "write": remedy.write,
        "words": remedy.words,
    }
