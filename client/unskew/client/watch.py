"""``Watch``: each newer plan of a stream as it is made, by iteration or by a callback in a thread.

When the service goes down, is full (CANCELLED) or ends an old call, the watch connects again after a random pause and
sends the digest of the plan that it has, so that no plan comes twice. It ends with ``close``, with the client, or with
an error that would come again: no access, no such stream, a name that is not allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from unskew.client.background import Background, Backoff
from unskew.client.channel import Call, Channel
from unskew.client.errors import ClientClosedError, LimitReachedError, NoAnswerError, ServiceCallError
from unskew.client.forks import register_after_fork
from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Plan
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import plan_from_bytes

__all__ = ["Watch"]

_log = logging.getLogger("unskew.client")
LONGEST = 900.0  # seconds of one call; then a new one is made


class Watch(Iterator[Plan]):
    """The plans of a stream as they are made; ``Client.watch`` makes one. One thread iterates, any may ``close``.

    Parameters
    ----------
    channel, stream, have : the way to the service, the stream, and the digest of a plan that need not be sent again
    on_plan : called with each plan before it is handed out
    backoff : how long to wait before connecting again

    ``connects`` counts the calls that were made; ``error`` is what ended the watch, if an error did.

    Raises
    ------
    ServiceCallError : by iteration, if the same call would fail again, such as ``NotThereError``

    Examples
    --------
    >>> import numpy as np
    >>> from unskew.client import testing
    >>> from unskew.core import Histogram
    >>> counts = Histogram.from_hashes(np.arange(100, dtype=np.uint64))
    >>> with testing.embedded() as service, service.client() as client:
    ...     info = client.put_stream("clicks", partitions=4, policy="balanced")
    ...     with client.watch("clicks") as watch:
    ...         built = client.build_plan("clicks", 1, histogram=counts)
    ...         next(watch) == built.plan
    True
    """

    def __init__(
        self, channel: Channel, stream: str, have: str, on_plan: Callable[[Plan], None], backoff: Backoff | None = None
    ) -> None:
        self.stream = stream
        self.connects = 0
        self.error: UnskewError | None = None
        self._channel, self._have, self._on_plan = channel, have, on_plan
        self._backoff = backoff or Backoff()
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        """A forked child may iterate: it connects by itself. The thread of ``follow`` is the parent's only."""
        self._call: Call | None = None
        self._background = Background(f"unskew watch {self.stream}", backoff=self._backoff)

    def __next__(self) -> Plan:
        """The next plan; waits for it."""
        while not self._background.stopped:
            try:
                plan = self._next_of_call()
            except (NoAnswerError, LimitReachedError) as why:
                self._pause(why)
            except ClientClosedError:
                self._background.stop()
            except UnskewError as why:
                self.error = why
                self._background.stop()
                raise
            else:
                if plan is not None:
                    return plan
        raise StopIteration

    def _next_of_call(self) -> Plan | None:
        """The next plan of the present call, or None if the call ended without an error."""
        call = self._connect() if self._call is None else self._call
        message = call.next()
        if message is None:
            self._call = None
            if not call.interrupted:
                self._background.pause(self._backoff.next())
            return None
        plan = plan_from_bytes(message.plan)
        self._have = message.digest
        self._backoff.reset()
        self._on_plan(plan)
        return plan

    def _connect(self) -> Call:
        request = pb.WatchPlansRequest(stream=self.stream, if_none_match=self._have)
        call = self._call = self._channel.begin("WatchPlans", self.stream, request, pb.WatchPlansResponse, LONGEST)
        self.connects += 1
        if self._background.stopped:  # ``close`` came before the call was in ``_call``
            call.cancel()
        return call

    def _pause(self, why: ServiceCallError) -> None:
        self._call = None
        if self._channel.closed:
            self._background.stop()
        elif not self._background.stopped:
            pause = self._backoff.next() if why.code != "DEADLINE_EXCEEDED" else self._backoff.first
            pause = max(pause, why.retry_after)
            _log.debug("watch of stream %s: %s; again in %.1f s", self.stream, why, pause)
            self._background.pause(pause)

    @property
    def closed(self) -> bool:
        """Whether the watch has ended."""
        return self._background.stopped

    def close(self) -> None:
        """End the watch, from any thread. An iteration that waits for a plan ends."""
        self._background.stop()
        call = self._call
        if call is not None:
            call.cancel()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self, callback: Callable[[Plan], None], on_end: Callable[[UnskewError], None] | None = None) -> Watch:
        """Call ``callback`` with each plan in a background thread, and ``on_end`` with the error that ended the watch,
        if one did. An exception of a callback is logged, and the watch goes on."""
        self._background.start(lambda: self._run(callback, on_end))
        return self

    def _run(self, callback: Callable[[Plan], None], on_end: Callable[[UnskewError], None] | None) -> None:
        try:
            for plan in self:
                try:
                    callback(plan)
                except Exception:  # noqa: BLE001 - the user's code may raise anything
                    _log.exception("the callback of the watch of stream %s failed", self.stream)
        except UnskewError as why:
            _log.warning("the watch of stream %s has ended: %s", self.stream, why)
            if on_end is not None:
                on_end(why)
