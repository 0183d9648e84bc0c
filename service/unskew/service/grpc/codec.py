"""What every gRPC call passes: the caller's identity, bytes to a message, a timer, errors to statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection, reflection_pb2

from unskew.service.api.admission import address_of
from unskew.service.api.budget import Reservation
from unskew.service.api.problems import BodyError, Fault
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import ANYBODY, Identity
from unskew.service.errors import ServiceError
from unskew.service.grpc.reads import EndedError, Reads

__all__ = [
    "Context", "Observe", "Reflection", "Request", "TimedCall", "abort", "address", "authorization",
    "identity", "parsed", "sans",
]  # fmt: skip

Context = Any  # grpc.aio.ServicerContext, generic in the stubs and not in the library
Observe = Callable[[str, str, float], None]
M = TypeVar("M", bound=Message)


class Request:
    """A call before its message is read: which kind that is and how many bytes it may have; then who sent it, and the
    reservations of its bytes and of the answer's."""

    __slots__ = ("answer", "context", "kind", "most", "reservation", "who")

    def __init__(self, kind: type[Any], context: Context, most: int) -> None:
        self.kind, self.context, self.most = kind, context, most
        self.who = ANYBODY
        self.reservation: Reservation | None = None
        self.answer: Reservation | None = None

    def end(self) -> None:
        if self.reservation is not None and self.reservation.size:
            self.reservation.resize(0)

    def sent(self, _context: Context = None) -> None:
        """The caller has taken the answer, or has left."""
        if self.answer is not None and self.answer.size:
            self.answer.resize(0)


def parsed(kind: type[M], data: bytes) -> M:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise BodyError(f"these bytes are no {kind.DESCRIPTOR.full_name}") from None
    return message


def identity(access: Access, context: Context) -> Identity:
    if access.open:
        return access.identify(None)
    return access.identify(authorization(context), sans(context))


def authorization(context: Context) -> str | None:
    header = None
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            header = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return header


def address(context: Context) -> str:
    """Where the caller is, as far as the connection shows it."""
    return address_of(context.peer() or "")


def sans(context: Context) -> tuple[str, ...]:
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return tuple(name.decode("utf-8", "replace") for name in names)


async def abort(context: Context, fault: Fault) -> None:
    await context.abort(fault.grpc_code, fault.message, fault.trailers())


class TimedCall:
    """Reports how long a call took and how it ended. A call whose caller went away is CANCELLED."""

    def __init__(self, observe: Observe, verb: str, under_way: set[TimedCall]) -> None:
        self._observe, self._verb, self._under_way = observe, verb, under_way
        self._code, self._started = "OK", perf_counter()

    def __enter__(self) -> TimedCall:
        self._under_way.add(self)
        return self

    def failed(self, why: Exception) -> Fault:
        fault = why.fault if isinstance(why, EndedError) else Fault.of(why)
        self._code = fault.code
        return fault

    def __exit__(self, kind: type[BaseException] | None, _why: object, _trace: object) -> None:
        if kind is not None and self._code == "OK":
            self._code = "CANCELLED"
        self._under_way.discard(self)
        self._observe(self._verb, self._code, perf_counter() - self._started)


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # the library has no types
    """The list of calls, for callers with any valid credential."""

    def __init__(self, names: tuple[str, ...], pool: DescriptorPool, access: Access, reads: Reads) -> None:
        super().__init__(names, pool)
        self._access, self._reads = access, reads

    def handlers(self) -> dict[str, Any]:
        return {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(self._answers)}

    async def _answers(self, _messages: Any, context: Context) -> None:
        try:
            who = identity(self._access, context)
            self._access.require(who, "Describe")
            with Reservation(self._reads.budget, who.name) as reservation:
                async for answer in self.ServerReflectionInfo(self._requests(context, reservation), context):
                    await context.write(answer.SerializeToString())
        except EndedError as why:
            raise why.ended from None
        except ServiceError as why:
            await abort(context, Fault.of(why))

    async def _requests(self, context: Context, reservation: Reservation) -> AsyncIterator[Any]:
        while (data := await self._reads.next_small(context, reservation)) is not None:
            yield parsed(reflection_pb2.ServerReflectionRequest, data)
