"""Reads what callers send over gRPC, once it is known who they are: one message, or a stream of chunks.

gRPC takes in a whole message as soon as it is asked for one, and knows one largest size for all methods. So a message
is asked for only by a handler (all are registered as taking streams: on the wire a call with one message is the same),
and until then the transport takes ``STREAM_WINDOW`` bytes of a call at most. Nearly all messages are there at once;
they count ``SMALL`` bytes while they are read. One that is not there at the third look may grow to the largest size,
and counts as much from then on: a caller may hold as many as its budget has room for, until ``within`` seconds are
over. A caller that is not known by then is not waited for any longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from unskew.service.api.budget import ByteBudget, Reservation
from unskew.service.api.problems import Fault, FaultError, TooLargeError
from unskew.service.concurrency import detached_task, monotonic
from unskew.service.errors import LimitError

__all__ = ["SMALL", "STREAM_WINDOW", "EndedError", "Reads"]

SMALL = 1 << 16  # bytes that the verbs take which have no table, histogram or list
STREAM_WINDOW = 1 << 16
_LOOK, _SLOW = 0.1, 3  # seconds between two looks, and how many of them a message has before it is a slow one
_SLOW_OF_UNKNOWN = 2
_MOST_UNKNOWN = 16  # messages that are read at once of callers who are not known yet
_CHUNK_OVERHEAD = 1 << 10


class EndedError(Exception):
    """The call was ended while its message was read: by ``fault``, which its caller has been told."""

    def __init__(self, fault: Fault, ended: grpc.aio.AbortError) -> None:
        super().__init__(fault.message)
        self.fault, self.ended = fault, ended


class _Reading:
    """A message that is waited for. ``reservation``: of a caller who is not known, None."""

    __slots__ = ("context", "end", "fault", "looks", "reservation")

    def __init__(self, context: Any, reservation: Reservation | None, end: float) -> None:
        self.context, self.reservation, self.end = context, reservation, end
        self.looks = 0
        self.fault: Fault | None = None


class Reads:
    """``largest``: bytes of a message of any verb. ``within``: seconds for a call's message, or for all its chunks."""

    def __init__(self, budget: ByteBudget, largest: int, within: float) -> None:
        self.budget, self.largest, self.within = budget, largest, within
        self._readings: dict[_Reading, None] = {}
        self._unknown: dict[_Reading, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def message(self, context: Any, reservation: Reservation, most: int) -> bytes:
        """The call's one message, of at most so many bytes. The reservation holds its size, if that is not small."""
        reservation.resize(SMALL)
        data = await self._read(_Reading(context, reservation, monotonic() + self.within))
        if data is None:
            raise await _no_message()
        _check(data, most)
        reservation.resize(len(data) if len(data) > SMALL else 0)
        return data

    async def next_small(self, context: Any, reservation: Reservation) -> bytes | None:
        """The next small message of a call that has several; None at its end."""
        reservation.resize(SMALL)
        data = await self._read(_Reading(context, reservation, monotonic() + self.within))
        if data is not None:
            _check(data, SMALL)
        return data

    async def message_of_unknown(self, context: Any) -> bytes:
        """A small message of a caller who may be anybody. The oldest of these reads makes room for a new one."""
        reading = _Reading(context, None, 0.0)
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._end(next(iter(self._unknown)), _too_slow())
        self._unknown[reading] = None
        try:
            data = await self._read(reading)
        finally:
            self._unknown.pop(reading, None)
        if data is None:
            raise await _no_message()
        _check(data, SMALL)
        return data

    async def chunks(self, context: Any, reservation: Reservation) -> AsyncIterator[bytes]:
        """The call's messages, each of at most ``largest`` bytes. The reservation has room for the next one too."""
        end, size = monotonic() + self.within, 0
        await reservation.wait(self.largest, self.within)
        while (data := await self._read(_Reading(context, reservation, end))) is not None:
            size += len(data) + _CHUNK_OVERHEAD
            reservation.resize(max(self.largest, size))
            yield data

    async def _read(self, reading: _Reading) -> bytes | None:
        self._readings[reading] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)
        try:
            data = await reading.context.read()
        except grpc.aio.AbortError as why:
            if reading.fault is None:
                raise
            raise EndedError(reading.fault, why) from None
        finally:
            self._readings.pop(reading, None)
        return None if data is grpc.aio.EOF else data

    def _look(self) -> None:
        """By looks and not by the clock: where this process itself was held up, messages that came are taken first."""
        now = monotonic()
        for reading in list(self._readings):
            reading.looks += 1
            if reading.looks >= (_SLOW_OF_UNKNOWN if reading.reservation is None else _SLOW):
                self._look_at_slow(reading, now)
        self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look) if self._readings else None

    def _look_at_slow(self, reading: _Reading, now: float) -> None:
        if reading.reservation is None or now >= reading.end:
            self._end(reading, _too_slow())
        elif reading.looks == _SLOW:
            try:
                reading.reservation.resize(max(reading.reservation.size, self.largest))
            except LimitError as why:
                self._end(reading, Fault.of(why))

    def _end(self, reading: _Reading, fault: Fault) -> None:
        if reading.fault is None:
            reading.fault = fault
            self.budget.peak = max(self.budget.peak, self.largest)  # what came of it is given back, too
            self._readings.pop(reading, None)
            self._unknown.pop(reading, None)
            detached_task(_abort(reading.context, fault))


async def _abort(context: Any, fault: Fault) -> None:
    """From outside of the handler, which waits in ``read`` and is woken by it."""
    # The first is how ``abort`` ends; the others: the call is over already.
    with contextlib.suppress(grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError):
        await context.abort(fault.grpc_code, fault.message, fault.trailers())


def _check(data: bytes, most: int) -> None:
    if len(data) > most:
        raise TooLargeError(f"the message has {len(data):,} bytes, this verb takes {most:,}")


async def _no_message() -> FaultError:
    await asyncio.sleep(0)  # where the caller has gone away, that is what ends the call
    return FaultError(Fault("INVALID_ARGUMENT", "the call has no message; send one"))


def _too_slow() -> Fault:
    return Fault("DEADLINE_EXCEEDED", "the call's message did not come in time; send it as soon as the call begins")
