"""``Client``: the service's verbs as methods, in core values. Sync and thin: it decides nothing.

Every call has a deadline, is retried while the service is unavailable, and fails as a ``ServiceCallError`` that names
the stream. What core or wire refuse is refused before anything is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from unskew.client.channel import Call, Channel, seconds
from unskew.client.credentials import Credentials
from unskew.client.errors import ClientClosedError
from unskew.client.plan_cache import PlanCache
from unskew.client.results import Built, Explained, Fetched, Reported, Scale, StreamInfo, Synced
from unskew.client.watch import Watch
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan, Version
from unskew.core.rounds.messages import Report
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, check_name
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import (
    answer_from_message,
    chunks,
    histogram_to_message,
    plan_from_bytes,
    report_to_message,
    spec_to_message,
    version_to_message,
    work_to_message,
)

__all__ = ["Client", "PendingSync", "check_access"]

_UINT64 = 2**64 - 1
_PAGE = 1000


class PendingSync:
    """A report that is under way."""

    def __init__(self, call: Call, name: tuple[str, int, int]) -> None:
        self._call, self._name = call, name

    def result(self) -> Synced:
        """Wait for it. None yet, too, where a fork of this process ended the call."""
        message: pb.SyncResponse | None = self._call.next()
        if message is None or not message.HasField("answer"):
            return Synced(None)
        received = answer_from_message(message.answer, self._name)
        return Synced(received.answer, received.merged, received.age)

    def cancel(self) -> None:
        """From any thread; ``result`` then raises."""
        self._call.cancel()


class Client:
    """Thread-safe, and safe to use in forked children: each process connects by itself, when it first calls.

    ``target``: ``grpc://host:port``, ``grpcs://host:port`` for TLS, or ``host:port``. ``timeout`` in seconds is for
    each call; every method takes its own. See ``Credentials`` for the rest.
    """

    def __init__(
        self,
        target: str = "grpc://127.0.0.1:8081",
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        insecure: bool = False,
        timeout: float = 5.0,
        options: Iterable[tuple[str, Any]] = (),
    ) -> None:
        self.timeout = seconds("timeout", timeout)
        credentials = Credentials.of(
            os.environ,
            token=token,
            token_file=token_file,
            ca=ca,
            certificate=certificate,
            key=key,
            insecure=insecure,
        )
        self._channel = Channel(target, credentials, options)
        self._plans = PlanCache()

    @property
    def target(self) -> str:
        return str(self._channel.target)

    @property
    def url(self) -> str:
        """The target as another process is to be given it: with TLS or without."""
        return self._channel.target.url

    @property
    def closed(self) -> bool:
        return self._channel.closed

    # -- streams ----------------------------------------------------------------------------------------------

    def put_stream(
        self, stream: str, spec: StreamSpec | None = None, *, timeout: float | None = None, **settings: Any
    ) -> StreamInfo:
        """Create a stream or change one: ``put_stream("clicks", partitions=16, policy="balanced")``."""
        check_name("stream", stream)
        if (spec is None) == (not settings):
            raise ConfigError("spec", spec, "a StreamSpec, or its fields by name (partitions=16, ...), not both")
        try:
            spec = StreamSpec(**settings) if spec is None else spec
        except TypeError as why:
            raise ConfigError("spec", settings, f"the fields of StreamSpec ({why})") from None
        request = pb.PutStreamRequest(stream=stream, spec=spec_to_message(spec))
        answer = self._channel.call("PutStream", stream, request, pb.PutStreamResponse, self._time(timeout))
        return StreamInfo.of(answer.stream)

    def get_stream(self, stream: str, *, timeout: float | None = None) -> StreamInfo:
        request = pb.GetStreamRequest(stream=check_name("stream", stream))
        answer = self._channel.call("GetStream", stream, request, pb.GetStreamResponse, self._time(timeout))
        return StreamInfo.of(answer.stream)

    def list_streams(self, *, timeout: float | None = None) -> Iterator[StreamInfo]:
        """Those that the caller may read, by name; fetched page by page."""
        after = ""
        while True:
            request = pb.ListStreamsRequest(limit=_PAGE, after=after)
            page = self._channel.call("ListStreams", "", request, pb.ListStreamsResponse, self._time(timeout))
            yield from map(StreamInfo.of, page.streams)
            if page.next <= after:
                return
            after = page.next

    def delete_stream(self, stream: str, *, timeout: float | None = None) -> None:
        request = pb.DeleteStreamRequest(stream=check_name("stream", stream))
        self._channel.call("DeleteStream", stream, request, pb.DeleteStreamResponse, self._time(timeout))
        self._plans.forget(stream)

    # -- histograms and plans ---------------------------------------------------------------------------------

    def report_histogram(
        self, stream: str, part: Part, histogram: Histogram, *, timeout: float | None = None
    ) -> Reported:
        """What one part of a batch holds, sent in chunks. Safe to repeat: the last report of a part counts."""
        check_name("stream", stream)
        rest = chunks(histogram, stream, part)
        sent = chain([next(rest)], rest)  # what is wrong with part or histogram is told here, not in gRPC's thread
        answer = self._channel.send_many(
            "ReportHistogram", stream, sent, pb.ReportHistogramResponse, self._time(timeout)
        )
        return Reported(answer.rows, answer.keys, answer.repeated_report)

    def build_plan(
        self,
        stream: str,
        batch: int | None = None,
        *,
        fresh: bool = False,
        histogram: Histogram | None = None,
        timeout: float | None = None,
    ) -> Built:
        """The plan for a batch, from what was reported for it (``fresh``) or before it, or from this histogram."""
        request = pb.BuildPlanRequest(
            stream=check_name("stream", stream),
            batch=batch,
            fresh=fresh,
            histogram=None if histogram is None else histogram_to_message(histogram),
        )
        answer = self._channel.call("BuildPlan", stream, request, pb.BuildPlanResponse, self._time(timeout))
        plan = plan_from_bytes(answer.plan)
        self._plans.keep(stream, plan)
        return Built(plan, Built.outcome_of(answer.outcome), answer.reason)

    def get_plan(self, stream: str, version: Version | None = None, *, timeout: float | None = None) -> Fetched:
        """The latest plan: only its digest travels if it is still the one that is here. Or that of a version: fetched
        once, for a version never changes."""
        check_name("stream", stream)
        if version is not None and (known := self._plans.version(stream, version)) is not None:
            self._check_open()
            return Fetched(known, cached=True)
        have = self._plans.latest(stream) if version is None else None
        request = pb.GetPlanRequest(
            stream=stream,
            version=None if version is None else version_to_message(version),
            if_none_match="" if have is None else have.digest,
        )
        answer = self._channel.call("GetPlan", stream, request, pb.GetPlanResponse, self._time(timeout))
        if answer.not_modified and have is not None:
            return Fetched(have, cached=True, stale=answer.stale)
        plan = plan_from_bytes(answer.plan)
        if version is None:
            self._plans.keep_latest(stream, plan)
        else:
            self._plans.keep(stream, plan)
        return Fetched(plan, stale=answer.stale)

    def known_plan(self, stream: str) -> Plan | None:
        """The latest plan that came here, without asking."""
        return self._plans.latest(stream)

    def watch(
        self,
        stream: str,
        callback: Callable[[Plan], None] | None = None,
        *,
        have: str = "",
        on_end: Callable[[UnskewError], None] | None = None,
    ) -> Watch:
        """The latest plan and each newer one: to iterate over, or given to ``callback`` in a thread. ``have``: the
        digest of a plan that need not come again. ``close()`` ends it."""
        self._check_open()
        check_name("stream", stream)
        watch = Watch(self._channel, stream, have, lambda plan: self._plans.keep_latest(stream, plan))
        return watch if callback is None else watch.follow(callback, on_end)

    # -- learning ---------------------------------------------------------------------------------------------

    def sync(
        self,
        stream: str,
        report: Report,
        *,
        wait: float = 0.0,
        known: tuple[int, int] = (0, 0),
        timeout: float | None = None,
    ) -> Synced:
        """An agent's report; the answer if there is one within ``wait`` seconds that is newer than ``known``. Repeat
        it with the same report until it has one."""
        return self.begin_sync(stream, report, wait=wait, known=known, timeout=timeout).result()

    def begin_sync(
        self,
        stream: str,
        report: Report,
        *,
        wait: float = 0.0,
        known: tuple[int, int] = (0, 0),
        timeout: float | None = None,
    ) -> PendingSync:
        """The same without waiting for the answer here. The timeout is added to ``wait``."""
        request = pb.SyncRequest(
            stream=check_name("stream", stream),
            report=report_to_message(report),
            wait_seconds=wait,
            incarnation=known[0],
            epoch=known[1],
        )
        call = self._channel.begin("Sync", stream, request, pb.SyncResponse, wait + self._time(timeout))
        return PendingSync(call, report.name)

    # -- batches, parallelism, explanations -------------------------------------------------------------------

    def report_batch(
        self, stream: str, part: Part, batch: BatchWork, version: Version | None = None, *, timeout: float | None = None
    ) -> bool:
        """What a finished batch took, and the plan it was bound to. Whether it was there already."""
        request = work_to_message(batch, check_name("stream", stream), part, version)
        answer = self._channel.call("ReportBatch", stream, request, pb.ReportBatchResponse, self._time(timeout))
        return answer.repeated_report

    def get_scale(self, stream: str, *, timeout: float | None = None) -> Scale:
        request = pb.GetScaleRequest(stream=check_name("stream", stream))
        return Scale.of(self._channel.call("GetScale", stream, request, pb.GetScaleResponse, self._time(timeout)))

    def explain(
        self, stream: str, key_hash: int, version: Version | None = None, *, timeout: float | None = None
    ) -> Explained:
        """Where the key with this hash goes (signed or not), under the latest plan or that of a version, and why."""
        if isinstance(key_hash, bool) or not isinstance(key_hash, int) or not -(2**63) <= key_hash <= _UINT64:
            raise ConfigError("key_hash", key_hash, "a 64-bit key hash, as hash_keys or Spark's xxhash64 gives it")
        request = pb.ExplainRequest(
            stream=check_name("stream", stream),
            hash=key_hash & _UINT64,
            version=None if version is None else version_to_message(version),
        )
        answer = self._channel.call("Explain", stream, request, pb.ExplainResponse, self._time(timeout))
        return Explained.of(key_hash & _UINT64, answer)

    # -- life -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End what is under way, watches included. Again is no harm."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.target!r}{', closed' if self.closed else ''})"

    def _time(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else seconds("timeout", timeout)

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosedError(f"the client of {self.target} is closed; make a new one")


def check_access(service: Client | str, access: Mapping[str, object]) -> None:
    """For what takes a client or a target: credentials belong to the target, a client has its own."""
    if isinstance(service, Client) and access:
        raise ConfigError("service", service, "a target together with these: " + ", ".join(sorted(access)))
