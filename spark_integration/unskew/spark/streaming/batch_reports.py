"""What a query tells the service of its finished batches, and the plans that it gets for them.

Called in the query's own thread, so that no batch waits. A service that is away costs this thread its time-out, then
nothing for a while; the plans are then the driver's own, from the same record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.core.plan.plan import Plan
from unskew.core.stream_spec import BatchWork, Part, Work

if TYPE_CHECKING:
    from unskew.client import Client
    from unskew.core.freshness.plan_ahead import BatchFacts, PlanRequest
    from unskew.spark.planning import Plans
    from unskew.spark.service_link import Left

__all__ = ["BatchReports", "work_of"]


class BatchReports:
    """Of one query: ``source`` names it, ``types`` are those of its key."""

    def __init__(self, plans: Plans, source: str, types: tuple[str, ...]) -> None:
        self._plans, self._source, self._types = plans, source, types
        self._alone = f"plans of stream {plans.stream.name} are made in the driver for now"

    def plan(self, request: PlanRequest) -> Plan | None:
        """Report the batch's histogram and work. The service's plan, or None where it has none that fits."""

        def build(client: Client, left: Left) -> Plan:
            facts, stream = request.facts, self._plans.stream.name
            self._plans.put_stream(client, self._types, left)
            client.report_histogram(stream, Part(self._source, facts.number), facts.histogram, timeout=left())
            self._report(client, facts, left)
            return client.build_plan(stream, facts.number + 1, timeout=left()).plan

        plan = self._plans.link.ask_in_background(build, self._alone)
        fits = plan is not None and plan.partitions == self._plans.stream.partitions
        return plan if plan is not None and fits and plan.key_types == self._types else None

    def report(self, facts: BatchFacts) -> None:
        """Report the batch's work alone: it had too few rows to plan from."""

        def report(client: Client, left: Left) -> None:
            self._plans.put_stream(client, self._types, left)
            self._report(client, facts, left)

        self._plans.link.ask_in_background(report, self._alone)

    def _report(self, client: Client, facts: BatchFacts, left: Left) -> None:
        part = Part(self._source, facts.number, 0)
        client.report_batch(self._plans.stream.name, part, work_of(facts), timeout=left())


def work_of(facts: BatchFacts) -> BatchWork:
    """What a finished batch is reported as: with the rows and seconds of its tasks, where they are there."""
    keys = facts.plan.cardinalities(facts.histogram).tolist()
    if facts.times is None:
        loads, took = facts.plan.loads(facts.histogram).tolist(), [0.0] * len(keys)
    else:
        loads, took = facts.times.rows.tolist(), facts.times.seconds.tolist()
    tasks = enumerate(zip(loads, keys, took, strict=True))
    work = tuple(Work(at, int(n), int(k), seconds=seconds) for at, (n, k, seconds) in tasks)
    stages, version = facts.stages, facts.plan.version if isinstance(facts.plan, Plan) else None
    version = None if version is None or not version.incarnation else version
    timed = stages.map_time + stages.reduce_time > 0
    interval, seconds = (facts.interval, facts.seconds) if timed else (0.0, 0.0)
    return BatchWork(work, interval, seconds, stages.map_time, stages.reduce_time, version)
