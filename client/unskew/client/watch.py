"""Each newer plan of a stream as it is made: ``for plan in client.watch(stream)``, or a callback in a thread.

A watch outlives what it watches: when the service goes down, is full (CANCELLED), or ends an old watch, it connects
again after a pause at random, and says which plan it has, so that none comes twice. It ends by ``close``, by that of
the client, or by an error that would come again: no access, no such stream, a name that is not allowed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from unskew.client.backoff import Backoff
from unskew.client.channel import Call, Channel
from unskew.client.errors import ClientClosedError, LimitReachedError, NoAnswerError, ServiceCallError
from unskew.client.forks import tell_after_fork
from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Plan
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import plan_from_bytes

__all__ = ["Watch"]

_log = logging.getLogger("unskew.client")
LONGEST = 900.0  # seconds of one call: then it is begun anew


class Watch(Iterator[Plan]):
    """Plans as they come. One thread iterates; any may ``close``. ``connects`` counts the calls that were made."""

    def __init__(
        self,
        channel: Channel,
        stream: str,
        have: str,
        seen: Callable[[Plan], None],
        backoff: Backoff | None = None,
    ) -> None:
        self.stream = stream
        self.connects = 0
        self.error: UnskewError | None = None
        self._channel, self._have, self._seen = channel, have, seen
        self._backoff = backoff or Backoff()
        self._call: Call | None = None
        self._ended = threading.Event()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """A child may iterate and connects anew then; a thread that called back is the parent's only."""
        self._call, self._ended = None, threading.Event()

    def __next__(self) -> Plan:
        """The next plan; waits for it."""
        while not self._ended.is_set():
            try:
                plan = self._one()
            except (NoAnswerError, LimitReachedError) as why:
                self._pause(why)
            except ClientClosedError:
                self._ended.set()
            except UnskewError as why:
                self.error = why
                self._ended.set()
                raise
            else:
                if plan is not None:
                    return plan
        raise StopIteration

    def _one(self) -> Plan | None:
        """The next plan of the present call, or None if the call ended well."""
        call = self._connect() if self._call is None else self._call
        message = call.next()
        if message is None:
            self._call = None
            if not call.interrupted:
                self._ended.wait(self._backoff.next())
            return None
        plan = plan_from_bytes(message.plan)
        self._have = message.digest
        self._backoff.reset()
        self._seen(plan)
        return plan

    def _connect(self) -> Call:
        request = pb.WatchPlansRequest(stream=self.stream, if_none_match=self._have)
        call = self._call = self._channel.begin("WatchPlans", self.stream, request, pb.WatchPlansResponse, LONGEST)
        self.connects += 1
        if self._ended.is_set():  # closed meanwhile: it could not see this call
            call.cancel()
        return call

    def _pause(self, why: ServiceCallError) -> None:
        self._call = None
        if self._channel.closed:
            self._ended.set()
        elif not self._ended.is_set():
            pause = self._backoff.next() if why.code != "DEADLINE_EXCEEDED" else self._backoff.first
            _log.debug("watch of stream %s: %s; again in %.1f s", self.stream, why, pause)
            self._ended.wait(pause)

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    def close(self) -> None:
        """End it, from any thread. Who waits for the next plan gets none."""
        self._ended.set()
        call = self._call
        if call is not None:
            call.cancel()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self, callback: Callable[[Plan], None], on_end: Callable[[UnskewError], None] | None = None) -> Watch:
        """Call ``callback`` with each plan, in a thread of its own, and ``on_end`` with the error that ended it, if one
        did. A callback that raises is logged, and the watch goes on."""
        threading.Thread(
            target=self._run, args=(callback, on_end), name=f"unskew watch {self.stream}", daemon=True
        ).start()
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
