"""``Client``: the service's RPCs as methods that take and return core's values. It decides nothing.

Every call has a deadline, is retried while the service is unavailable, and fails as a ``ServiceCallError`` that names
the stream. Arguments are checked before anything is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from google.protobuf.message import Message

from unskew import wire
from unskew.client.channel import Call, Channel, seconds
from unskew.client.credentials import Credentials
from unskew.client.plan_cache import PlanCache
from unskew.client.results import Built, Explained, Fetched, Reported, Scale, StreamInfo, Synced
from unskew.client.watch import Watch
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan, Version
from unskew.core.rounds.messages import Report
from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, check_name
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["Client", "PendingSync", "open_client"]

_UINT64 = 2**64 - 1
_PAGE = 1000


class PendingSync:
    """A ``Sync`` call that is under way."""

    def __init__(self, call: Call, name: tuple[str, int, int]) -> None:
        self._call, self._name = call, name

    def result(self) -> Synced:
        """Wait for the answer. There is none yet, too, if a fork of this process ended the call."""
        message: pb.SyncResponse | None = self._call.next()
        if message is None or not message.HasField("answer"):
            return Synced(None)
        received = wire.answer_from_message(message.answer, self._name)
        return Synced(received.answer, received.merged, received.age)

    def cancel(self) -> None:
        """End the call, from any thread; ``result`` then raises ``NoAnswerError``."""
        self._call.cancel()


class Client:
    """The service's RPCs as methods. Thread-safe, also in forked children: each process connects by itself.

    Methods take ``stream``, its name; ``timeout``, the seconds for this call instead of the client's; ``version``, a
    plan's version instead of the latest; ``part``, which part of which batch a report is about; ``histogram``, the rows
    of each key; ``report``, what an agent learned; ``settings``, the fields of a ``StreamSpec``.

    Parameters
    ----------
    target : ``grpc://host:port``, ``grpcs://host:port`` for TLS, or ``host:port``
    token, token_file : the bearer token, or a file with it; else ``UNSKEW_TOKEN`` or ``UNSKEW_TOKEN_FILE``
    ca, certificate, key : PEM files for TLS and mTLS; else ``UNSKEW_CA``, ``UNSKEW_CERTIFICATE``, ``UNSKEW_KEY``
    insecure : whether a token may be sent without TLS to another machine
    timeout : seconds for each call; every method takes its own
    options : gRPC channel options, instead of the client's own

    Raises
    ------
    ConfigError : an argument, here or of a method, cannot be right; nothing was sent
    ServiceCallError : a call failed; see ``unskew.client.errors`` for its kinds
    ClientClosedError : a method was called after ``close``

    Examples
    --------
    >>> from unskew.client import testing
    >>> from unskew.core import Histogram, hash_keys
    >>> from unskew.core.stream_spec import Part
    >>> keys = hash_keys(["ann"] * 60 + [f"user-{n}" for n in range(40)])
    >>> with testing.embedded() as service, Client(service.target) as client:
    ...     print(client.put_stream("clicks", partitions=4, policy="balanced").spec.partitions)
    ...     print(client.report_histogram("clicks", Part("app", 1), Histogram.from_hashes(keys)))
    ...     built = client.build_plan("clicks", 2)
    ...     print(built.outcome, built.plan.partitions, client.get_plan("clicks").cached)
    ...     print(client.explain("clicks", int(keys[0])).hot, client.get_scale("clicks").action)
    ...     print([stream.name for stream in client.list_streams()])
    4
    Reported(rows=100, keys=41, repeated=False)
    new 4 False
    True hold
    ['clicks']
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
            os.environ, token=token, token_file=token_file, ca=ca, certificate=certificate, key=key, insecure=insecure
        )
        self._channel = Channel(target, credentials, options)
        self._plans = PlanCache()

    @property
    def target(self) -> str:
        """host:port of the service."""
        return str(self._channel.target)

    @property
    def url(self) -> str:
        """The target for another process, with ``grpc://`` or ``grpcs://``."""
        return self._channel.target.url

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._channel.closed

    # -- streams ----------------------------------------------------------------------------------------------

    def put_stream(
        self, stream: str, spec: StreamSpec | None = None, *, timeout: float | None = None, **settings: Any
    ) -> StreamInfo:
        """Create a stream or change one: by ``spec``, or by its fields, ``partitions=16, policy="balanced"``."""
        check_name("stream", stream)
        if (spec is None) == (not settings):
            raise ConfigError("spec", spec, "a StreamSpec, or its fields by name (partitions=16, ...), not both")
        try:
            spec = StreamSpec(**settings) if spec is None else spec
        except TypeError as why:
            raise ConfigError("spec", settings, f"the fields of StreamSpec ({why})") from None
        request = pb.PutStreamRequest(stream=stream, spec=wire.spec_to_message(spec))
        answer = self._channel.call("PutStream", stream, request, pb.PutStreamResponse, self._time(timeout))
        return StreamInfo.of(answer.stream)

    def get_stream(self, stream: str, *, timeout: float | None = None) -> StreamInfo:
        """The stream's settings and state; ``NotThereError`` if there is no such stream."""
        request = pb.GetStreamRequest(stream=check_name("stream", stream))
        answer = self._channel.call("GetStream", stream, request, pb.GetStreamResponse, self._time(timeout))
        return StreamInfo.of(answer.stream)

    def list_streams(self, *, timeout: float | None = None) -> Iterator[StreamInfo]:
        """The streams that the caller may read, by name; fetched page by page."""
        after = ""
        while True:
            request = pb.ListStreamsRequest(limit=_PAGE, after=after)
            page = self._channel.call("ListStreams", "", request, pb.ListStreamsResponse, self._time(timeout))
            yield from map(StreamInfo.of, page.streams)
            if page.next <= after:
                return
            after = page.next

    def delete_stream(self, stream: str, *, timeout: float | None = None) -> None:
        """Delete the stream with its plans and histograms."""
        request = pb.DeleteStreamRequest(stream=check_name("stream", stream))
        self._channel.call("DeleteStream", stream, request, pb.DeleteStreamResponse, self._time(timeout))
        self._plans.forget(stream)

    # -- histograms and plans ---------------------------------------------------------------------------------

    def report_histogram(
        self, stream: str, part: Part, histogram: Histogram, *, timeout: float | None = None
    ) -> Reported:
        """Report the key counts of one part of a batch. Safe to repeat: the last report of a part counts."""
        check_name("stream", stream)

        def requests() -> Iterator[Message]:
            rest = wire.chunks(histogram, stream, part)
            return chain([next(rest)], rest)  # the first is made here, so that its errors do not end in gRPC's thread

        answer = self._channel.call(
            "ReportHistogram", stream, requests, pb.ReportHistogramResponse, self._time(timeout)
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
        """Make the plan for a batch, once; repeated calls get the same plan, and the same ``advice`` how to go.

        Parameters
        ----------
        batch : the number of the batch; left out, the plan is made from the newest histograms
        fresh : whether the plan is made from the histograms reported for this batch, not for those before it
        histogram : what to make the plan from instead of reported histograms
        """
        request = pb.BuildPlanRequest(
            stream=check_name("stream", stream),
            batch=batch,
            fresh=fresh,
            histogram=None if histogram is None else wire.histogram_to_message(histogram),
        )
        answer = self._channel.call("BuildPlan", stream, request, pb.BuildPlanResponse, self._time(timeout))
        plan = wire.plan_from_bytes(answer.plan)
        self._plans.keep(stream, plan)
        return Built.of(plan, answer)

    def get_plan(self, stream: str, version: Version | None = None, *, timeout: float | None = None) -> Fetched:
        """The latest plan, or the plan of a version.

        The latest plan travels only if it differs from the one that is cached here; that of a version travels once.
        """
        check_name("stream", stream)
        if version is not None and (plan_of_version := self._plans.version(stream, version)) is not None:
            self._channel.check_open()
            return Fetched(plan_of_version, cached=True)
        cached = self._plans.latest(stream) if version is None else None
        request = pb.GetPlanRequest(
            stream=stream,
            version=None if version is None else wire.version_to_message(version),
            if_none_match="" if cached is None else cached.digest,
        )
        answer = self._channel.call("GetPlan", stream, request, pb.GetPlanResponse, self._time(timeout))
        if answer.not_modified and cached is not None:
            return Fetched(cached, cached=True, stale=answer.stale)
        plan = wire.plan_from_bytes(answer.plan)
        if version is None:
            self._plans.keep_latest(stream, plan)
        else:
            self._plans.keep(stream, plan)
        return Fetched(plan, stale=answer.stale)

    def watch(
        self,
        stream: str,
        callback: Callable[[Plan], None] | None = None,
        *,
        have: str = "",
        on_end: Callable[[UnskewError], None] | None = None,
    ) -> Watch:
        """Get the latest plan and each newer one as they are made.

        Parameters
        ----------
        callback : called with each plan in a thread; without it, iterate over the ``Watch``
        have : digest of a plan that need not be sent again
        on_end : called with the error that ended the watch, if one did; only with ``callback``
        """
        self._channel.check_open()
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
        known: tuple[int, int] | SeenRound = NOTHING_SEEN,
        timeout: float | None = None,
    ) -> Synced:
        """Send an agent's report and wait for its round. Repeat it with the same report until there is an answer.

        Parameters
        ----------
        wait : seconds that the service waits for the round to close; ``timeout`` is added to it
        known : ``seen`` of the newest answer that the agent has, or its (incarnation, epoch); only a newer one is sent
        """
        return self.begin_sync(stream, report, wait=wait, known=known, timeout=timeout).result()

    def begin_sync(
        self,
        stream: str,
        report: Report,
        *,
        wait: float = 0.0,
        known: tuple[int, int] | SeenRound = NOTHING_SEEN,
        timeout: float | None = None,
    ) -> PendingSync:
        """``sync`` without waiting (``wait``, ``known`` as there): the answer comes from ``PendingSync.result``."""
        seen = SeenRound(*known)
        request = pb.SyncRequest(
            stream=check_name("stream", stream),
            report=wire.report_to_message(report),
            wait_seconds=wait,
            incarnation=seen.incarnation,
            epoch=seen.epoch,
            digest=seen.digest,
        )
        call = self._channel.begin("Sync", stream, request, pb.SyncResponse, wait + self._time(timeout))
        return PendingSync(call, report.name)

    # -- batches, parallelism, explanations -------------------------------------------------------------------

    def report_batch(
        self, stream: str, part: Part, batch: BatchWork, version: Version | None = None, *, timeout: float | None = None
    ) -> bool:
        """Report ``batch``, the load of a finished batch's partitions; whether it was reported before."""
        request = wire.work_to_message(batch, check_name("stream", stream), part, version)
        answer = self._channel.call("ReportBatch", stream, request, pb.ReportBatchResponse, self._time(timeout))
        return answer.repeated_report

    def get_scale(self, stream: str, *, timeout: float | None = None) -> Scale:
        """How many tasks the next batch should have, from the batches that were reported."""
        request = pb.GetScaleRequest(stream=check_name("stream", stream))
        return Scale.of(self._channel.call("GetScale", stream, request, pb.GetScaleResponse, self._time(timeout)))

    def explain(
        self, stream: str, key_hash: int, version: Version | None = None, *, timeout: float | None = None
    ) -> Explained:
        """Where the key with hash ``key_hash`` (signed or not) goes under the latest plan, or a version's, and why."""
        if isinstance(key_hash, bool) or not isinstance(key_hash, int) or not -(2**63) <= key_hash <= _UINT64:
            raise ConfigError("key_hash", key_hash, "a 64-bit key hash, as hash_keys or Spark's xxhash64 gives it")
        request = pb.ExplainRequest(
            stream=check_name("stream", stream),
            hash=key_hash & _UINT64,
            version=None if version is None else wire.version_to_message(version),
        )
        answer = self._channel.call("Explain", stream, request, pb.ExplainResponse, self._time(timeout))
        return Explained.of(key_hash & _UINT64, answer)

    # -- life -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all calls that are under way, watches too. May be called again."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.target!r}{', closed' if self.closed else ''})"

    def _time(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else seconds("timeout", timeout)


def open_client(service: Client | str, timeout: float, access: Mapping[str, Any]) -> tuple[Client, bool]:
    """The client for a service given as client or target, and whether it is a new one, which its owner closes."""
    if not isinstance(service, Client):
        return Client(service, timeout=timeout, **access), True
    if access:  # credentials belong to a target; a client has its own
        raise ConfigError("service", service, "a target together with these: " + ", ".join(sorted(access)))
    return service, False
