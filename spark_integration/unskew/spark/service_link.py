"""The way to the service: ask it within the deadline, else decide alone.

A driver's session has one ``ServiceLink``. Planning, pins, the plans of later batches, rounds and reports all ask
through it, so one breaker knows whether the service answers, and one rule says which errors mean what:

- The service cannot serve (``UNSERVED``, or it has lost the stream): the link pauses, and the caller decides alone.
  ``ask`` warns, or raises where the service is required; ``ask_in_background`` writes to the log.
- The service, or a check made here, says no: that is an answer. ``ask`` raises it, for the caller's settings or keys
  are wrong; ``ask_in_background`` writes it to the log and lets the batch go on.

Worker processes have a link of their own for their tasks (``unskew.spark.place.task_reports``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from unskew.client import Client, NotThereError
from unskew.client.errors import UNSERVED
from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError, PlanError, UnskewError
from unskew.core.stream_spec import StreamSpec
from unskew.spark.caller_frame import warn

__all__ = ["EMBEDDED", "Call", "Left", "ServiceLink", "ServiceWarning"]

T = TypeVar("T")
Left: TypeAlias = "Callable[[], float | None]"  # seconds that are left for a call; None: the client's own time-out
Call: TypeAlias = Callable[[Client, Left], T]

EMBEDDED = "embedded"
_COOLDOWN, _LONGEST = 5.0, 60.0
_LEAST = 0.05  # seconds that a call gets at least: the deadline may have passed just before it
_CANNOT_SERVE = (*UNSERVED, NotThereError)

_log = logging.getLogger("unskew.spark")


class ServiceWarning(UserWarning):
    """The service did not answer, or did not let us in, and the driver decided by itself.

    >>> import warnings
    >>> from unskew.spark import ServiceWarning
    >>> warnings.simplefilter("error", ServiceWarning)  # a job that must not go on without its service
    """


class ServiceLink:
    """A client and the breaker that says whether to ask it. ``client`` is None where the session has no service: then
    nothing is ever asked. ``trips`` are the errors after which it is not asked for a while."""

    def __init__(
        self,
        client: Client | None,
        *,
        required: bool = False,
        timeout: float = 10.0,
        access: Mapping[str, Any] | None = None,
        cooldown: float = _COOLDOWN,
        longest: float = _LONGEST,
        trips: tuple[type[UnskewError], ...] = _CANNOT_SERVE,
    ) -> None:
        self.client, self.required, self.timeout = client, required, timeout
        self.access = dict(access or {})
        self._embedded: Any = None
        self._lock = threading.Lock()
        self._breaker = Breaker(failures=1, cooldown=cooldown, longest=longest)
        self._trips, self._logged = trips, ""
        self._put: set[tuple[object, ...]] = set()  # streams that the service had when it was last asked

    @classmethod
    def open(cls, service: str | None, stream: str, *, required: bool, timeout: float, access: Any) -> ServiceLink:
        """The link to ``service`` (None: to none), reached at once where it is required."""
        if service is None and required:
            raise ConfigError("service", service, "'embedded' or 'grpc://host:port' where required=True")
        link = cls(None, required=required, timeout=timeout, access=access, cooldown=_COOLDOWN, longest=_LONGEST)
        if service is None:
            return link
        try:
            if service == EMBEDDED:
                from unskew.client import testing

                link._embedded = testing.embedded()
                service = link._embedded.__enter__().target
            link.client = Client(service, **{"timeout": timeout, **link.access})
            if required:  # raise where the service cannot be had, before any job runs
                with suppress(NotThereError):
                    link.client.get_stream(stream)
        except BaseException:
            link.close()
            raise
        return link

    @property
    def embedded(self) -> bool:
        """Whether the service is this driver's own, beside it."""
        return self._embedded is not None

    @property
    def url(self) -> str | None:
        """Where tasks find the service."""
        return None if self.client is None else self.client.url

    def may_ask(self) -> bool:
        """Whether there is a service, and it is worth asking now. Half open, the caller that gets True has to ask."""
        with self._lock:
            return self.client is not None and self._breaker.allow(time.monotonic())

    def ask(self, call: Call[T], instead: str, *, within: float | None = None, always: bool = False) -> T | None:
        """What the service answers; None where it cannot be asked: the caller is to decide alone.

        ``call`` makes the calls, given the client and what is left of ``within`` (seconds for all calls together; None:
        each has the client's own time-out). ``instead`` says in the warning what the caller does alone. ``always``: ask
        even while the service has just not answered, for a user waits for this very answer. A refusal is raised, and
        where the service is required, that it cannot serve.
        """
        if self.client is None or not (always or self.required or self.may_ask()):
            return None
        try:
            return self._call(self.client, call, within)
        except _CANNOT_SERVE as error:
            if self.required:
                raise
            warn(f"{instead}: {error}", ServiceWarning)
            return None

    def ask_in_background(
        self, call: Call[T], instead: str, *, within: float | None = None, allowed: bool = False, counted: bool = True
    ) -> T | None:
        """The same for a thread or a task that nobody waits for: errors are logged, each once until a call succeeds.
        ``allowed``: ``may_ask`` has said so already. Not ``counted``: ``within`` is so short that no answer in it does
        not show that the service is away."""
        if self.client is None or not (allowed or self.may_ask()):
            return None
        try:
            answer = self._call(self.client, call, within, counted=counted)
        except UnskewError as error:
            self._log(f"{instead}: {error}")
            return None
        self._logged = ""
        return answer

    def _call(self, client: Client, call: Call[T], within: float | None, *, counted: bool = True) -> T:
        """Make the calls, and count the result: a refusal is an answer."""
        try:
            answer = call(client, _left(within))
        except UnskewError as error:
            with self._lock:
                self._put.clear()  # the service may have lost the stream, or have another of its name
                if not isinstance(error, self._trips):
                    self._breaker.success()
                elif counted:
                    self._breaker.failure(time.monotonic())
            raise
        with self._lock:
            self._breaker.success()
        return answer

    def _log(self, text: str) -> None:
        with self._lock:
            again, self._logged = text == self._logged, text
        if not again:
            _log.warning("%s", text)

    def put_stream(
        self,
        client: Client,
        stream: str,
        spec: StreamSpec,
        left: Left,
        *,
        owner: bool = False,
        least_dsync: float = 0.0,
        again: bool = False,
    ) -> None:
        """See that the service has the stream (``put_stream``). It is asked once, then ``again`` or after a failure."""
        done = stream, spec.partitions, spec.key_types, least_dsync
        with self._lock:
            if done in self._put and not again:
                return
        put_stream(client, stream, spec, left, owner=owner, least_dsync=least_dsync)
        with self._lock:  # as it was for another number of partitions it is not any more
            self._put = {one for one in self._put if one[:2] == done[:2]} | {done}

    def close(self) -> None:
        """End the connection, and the embedded service."""
        embedded, self._embedded = self._embedded, None
        try:
            if self.client is not None:
                self.client.close()
        finally:
            if embedded is not None:
                embedded.__exit__(None, None, None)


def put_stream(
    client: Client, stream: str, spec: StreamSpec, left: Left, *, owner: bool = False, least_dsync: float = 0.0
) -> None:
    """See that the service has the stream, for this number of partitions and these key types.

    A stream that is there keeps its settings, with two exceptions: its ``owner`` sets the number of partitions, and its
    ``dsync_min`` is raised to ``least_dsync``, for the slowest query of a stream says how often it can report. Another
    number of partitions is a ``ConfigError``, keys of other types are a ``PlanError``.
    """
    try:
        present = client.get_stream(stream, timeout=left()).spec
    except NotThereError:
        client.put_stream(stream, _with_dsync(spec, least_dsync, least_dsync), timeout=left())
        return
    _check_fits(stream, present, spec, owner=owner)
    changed = present
    if present.partitions != spec.partitions:
        changed = replace(present, partitions=spec.partitions, weights=())
    if present.dsync_min < least_dsync:
        changed = _with_dsync(changed, max(present.dsync, least_dsync), least_dsync)
    if changed != present:
        client.put_stream(stream, changed, timeout=left())


def _with_dsync(spec: StreamSpec, dsync: float, least: float) -> StreamSpec:
    return replace(spec, dsync=dsync, dsync_min=least, dsync_max=max(spec.dsync_max, least)) if least else spec


def _check_fits(stream: str, present: StreamSpec, spec: StreamSpec, *, owner: bool) -> None:
    if present.partitions != spec.partitions and not owner:
        raise ConfigError("partitions", spec.partitions, f"{present.partitions}, as stream {stream} has")
    if present.key_types and spec.key_types and present.key_types != spec.key_types:
        raise PlanError(
            f"stream {stream} is for keys of type ({', '.join(present.key_types)}), these are of "
            f"({', '.join(spec.key_types)}): cast the key columns, or use another stream"
        )


def _left(within: float | None) -> Left:
    """What is left of the deadline, from now on."""
    if within is None:
        return lambda: None
    until = time.monotonic() + within
    return lambda: max(until - time.monotonic(), _LEAST)
