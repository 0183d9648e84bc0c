"""Somebody who asks a replica for everything, and holds it to what must never be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from tests.planning import some_histogram
from tests.service.faces import report
from unskew.client import Client, ServiceCallError
from unskew.core.plan.plan import Version
from unskew.core.stream_spec import BatchWork, Part, Work

__all__ = ["PARTITIONS", "Reader", "verbs"]

PARTITIONS = 8
_numbers = count(1)


def verbs(client: Client, stream: str) -> Mapping[str, Callable[[], object]]:
    number = next(_numbers)
    agent = replace(report(PARTITIONS, "agent"), seq=number, dsync=1.0)
    work = BatchWork((Work(0, rows=1),))
    return {
        "GetPlan": lambda: client.get_plan(stream),
        "BuildPlan": lambda: client.build_plan(stream, number),
        "Explain": lambda: client.explain(stream, 5),
        "GetStream": lambda: client.get_stream(stream),
        "ListStreams": lambda: list(client.list_streams()),
        "ReportHistogram": lambda: client.report_histogram(stream, Part("app/query", number), some_histogram(1000, 50)),
        "ReportBatch": lambda: client.report_batch(stream, Part("app/query", number), work),
        "BuildPlan of counts": lambda: client.build_plan(stream, histogram=some_histogram(1000, 50, seed=number)),
        "Sync": lambda: client.sync(stream, agent),
        "GetScale": lambda: client.get_scale(stream),
        "PutStream": lambda: client.put_stream(stream, partitions=PARTITIONS, policy="balanced", dsync=1.0),
    }


class Reader:
    """Asks a replica for everything; the plans that it gets are of the stream, and never older."""

    def __init__(self, client: Client) -> None:
        self.client, self.newest = client, Version()

    def ask(self, stream: str) -> Counter[str]:
        """How often each code came; of errors with the verb."""
        codes = Counter[str]()
        for verb, call in verbs(self.client, stream).items():
            try:
                answer = call()
                codes["OK"] += 1
            except ServiceCallError as why:
                codes[why.code] += 1
                codes[f"{verb}: {why.code}"] += 1
                continue
            plan = getattr(answer, "plan", None)
            if plan is not None:
                assert (plan.info.stream, plan.partitions) == (stream, PARTITIONS)
                assert plan.version >= self.newest, verb
                self.newest = plan.version
        return codes
