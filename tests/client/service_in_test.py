# ruff: noqa: N802 - named like the methods of the contract
"""A service in the hands of a test: real gRPC on a free port, and each verb does what the test says.

By default it is a small honest service: streams in a dict, the last built plan, and rounds of whoever reports, closed
at once. A test puts a function in ``does[verb]`` to be slow, to fail, or to answer something else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan, PlanInfo, Version
from unskew.core.planners import make_planner
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1 import partitioner_pb2_grpc
from unskew.wire import (
    Assembler,
    answer_to_message,
    plan_to_bytes,
    report_from_message,
    version_from_message,
)

Verb = Callable[[Any, grpc.ServicerContext], Any]


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that has to come; fail if it does not, also on a machine that is busy with other work."""
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.005)


def plan_of(number: int, partitions: int = 4, policy: str = "hash", incarnation: int = 1) -> Plan:
    """A plan with this version; plans of different numbers route differently."""
    plan = make_planner(policy, partitions).plan(Histogram.empty())
    tail = plan.tail.copy()
    tail[0] = number % partitions
    tail[1] = number // partitions % partitions
    return Plan(partitions, tail, plan.hot, info=PlanInfo(version=Version(incarnation, number)))


class ServiceInTest(partitioner_pb2_grpc.PartitionerServiceServicer):
    """Counts its calls in ``calls`` and keeps what came with them in ``seen``."""

    def __init__(self) -> None:
        self.does: dict[str, Verb] = {}
        self.calls: Counter[str] = Counter()
        self.seen: list[tuple[str, Any, dict[str, str]]] = []
        self.streams: dict[str, pb.StreamSpec] = {}
        self.plans: dict[str, list[Plan]] = {}
        self.reported: dict[str, tuple[Any, Histogram]] = {}
        self.incarnation, self.epoch = 1, 0
        self.news = threading.Condition()

    def _do(self, verb: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.calls[verb] += 1
        self.seen.append((verb, request, dict(context.invocation_metadata())))
        does = self.does.get(verb, getattr(self, f"do_{verb}"))
        return does(request, context)

    def publish(self, stream: str, plan: Plan) -> None:
        with self.news:
            self.plans.setdefault(stream, []).append(plan)
            self.news.notify_all()

    def _plan(self, stream: str, context: grpc.ServicerContext) -> list[Plan]:
        if stream not in self.streams and stream not in self.plans:
            context.abort(grpc.StatusCode.NOT_FOUND, f"stream: there is no {stream!r}")
        return self.plans.get(stream, [])

    def do_PutStream(self, request: Any, context: grpc.ServicerContext) -> Any:
        created = request.stream not in self.streams
        self.streams[request.stream] = request.spec
        return pb.PutStreamResponse(stream=pb.Stream(name=request.stream, spec=request.spec), created=created)

    def do_GetStream(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._plan(request.stream, context)
        return pb.GetStreamResponse(stream=pb.Stream(name=request.stream, spec=self.streams[request.stream]))

    def do_ListStreams(self, request: Any, context: grpc.ServicerContext) -> Any:
        names = sorted(name for name in self.streams if name > request.after)[:2]
        page = [pb.Stream(name=name, spec=self.streams[name]) for name in names]
        return pb.ListStreamsResponse(streams=page, next=names[-1] if len(names) == 2 else "")

    def do_DeleteStream(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.streams.pop(request.stream, None)
        return pb.DeleteStreamResponse()

    def do_ReportHistogram(self, request: Any, context: grpc.ServicerContext) -> Any:
        assembler = Assembler()
        for chunk in request:
            self.calls["chunks"] += 1
            assembler.add(chunk)
        stream, part, histogram = assembler.finish()
        self.reported[stream] = part, histogram
        return pb.ReportHistogramResponse(rows=histogram.total, keys=len(histogram.hashes))

    def do_BuildPlan(self, request: Any, context: grpc.ServicerContext) -> Any:
        plan = plan_of(len(self._plan(request.stream, context)) + 1)
        self.publish(request.stream, plan)
        return pb.BuildPlanResponse(
            plan=plan_to_bytes(plan), digest=plan.digest, outcome=pb.PLAN_OUTCOME_NEW, reason="asked for"
        )

    def do_GetPlan(self, request: Any, context: grpc.ServicerContext) -> Any:
        plans = self._plan(request.stream, context)
        if request.HasField("version"):
            wanted = version_from_message(request.version)
            plans = [plan for plan in plans if plan.version == wanted]
        if not plans:
            context.abort(grpc.StatusCode.NOT_FOUND, f"version: stream {request.stream!r} has no such plan")
        plan = plans[-1]
        if request.if_none_match == plan.digest:
            return pb.GetPlanResponse(digest=plan.digest, not_modified=True)
        return pb.GetPlanResponse(plan=plan_to_bytes(plan), digest=plan.digest)

    def do_WatchPlans(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        have = request.if_none_match
        while context.is_active():
            with self.news:
                plans = self._plan(request.stream, context)
                if not plans or plans[-1].digest == have:
                    self.news.wait(0.05)
                    continue
                plan = plans[-1]
            have = plan.digest
            yield pb.WatchPlansResponse(plan=plan_to_bytes(plan), digest=have)

    def do_Sync(self, request: Any, context: grpc.ServicerContext) -> Any:
        report = report_from_message(request.report)
        self.epoch += 1
        pool = merge([report])
        answer = Answer(
            self.epoch,
            (report.name,),
            pool.table,
            pool.records,
            pool.unsure,
            pool.loads,
            report.dsync,
            pool.split,
            self.incarnation,
        )
        return pb.SyncResponse(answer=answer_to_message(answer, self.incarnation, True, 0.0))

    def do_ReportBatch(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.ReportBatchResponse(repeated_report=self.calls["ReportBatch"] > 1)

    def do_GetScale(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.GetScaleResponse(
            map_tasks=3, reduce_tasks=5, action=pb.SCALE_ACTION_OUT, zone=3, reason="too few tasks"
        )

    def do_Explain(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.ExplainResponse(
            hot=True, rows=7, share=0.5, fragments=[pb.KeyFragment(partition=2, share=1.0)], reason="heavy"
        )


def _method(verb: str) -> Any:
    return lambda self, request, context: self._do(verb, request, context)


VERBS = [name.removeprefix("do_") for name in dir(ServiceInTest) if name.startswith("do_")]
for _verb in VERBS:
    setattr(ServiceInTest, _verb, _method(_verb))


def fails(
    code: grpc.StatusCode, detail: str = "on purpose", times: int | None = None, then: Verb | None = None
) -> Verb:
    """A verb that fails: always, or the first so many times."""
    left = [times]

    def verb(request: Any, context: grpc.ServicerContext) -> Any:
        if left[0] is None or left[0] > 0:
            left[0] = None if left[0] is None else left[0] - 1
            context.abort(code, detail)
        assert then is not None
        return then(request, context)

    return verb


class Running:
    """A server and where it is. ``stop`` and ``start`` again on the same port."""

    def __init__(self, service: ServiceInTest) -> None:
        self.service, self.port = service, 0
        self._server: grpc.Server | None = None
        self.start()

    @property
    def target(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(24), options=[("grpc.so_reuseport", 0)])
        partitioner_pb2_grpc.add_PartitionerServiceServicer_to_server(self.service, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None


@contextmanager
def serving() -> Iterator[Running]:
    running = Running(ServiceInTest())
    try:
        yield running
    finally:
        running.stop()


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
