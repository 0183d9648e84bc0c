"""What every gRPC call passes: bytes to a message, the caller's identity, a timer, errors to statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Any, TypeVar

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection

from unskew.service.api.problems import BodyError, Fault
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import Identity

__all__ = ["Context", "Observe", "Reflection", "TimedCall", "abort", "authorization", "identity", "parsed", "sans"]

Context = Any  # grpc.aio.ServicerContext, generic in the stubs and not in the library
Observe = Callable[[str, str, float], None]
M = TypeVar("M", bound=Message)


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
        fault = Fault.of(why)
        self._code = fault.code
        return fault

    def __exit__(self, kind: type[BaseException] | None, _why: object, _trace: object) -> None:
        if kind is not None and self._code == "OK":
            self._code = "CANCELLED"
        self._under_way.discard(self)
        self._observe(self._verb, self._code, perf_counter() - self._started)


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # the library has no types
    """The list of calls, for callers with any valid credential."""

    def __init__(self, names: tuple[str, ...], pool: DescriptorPool, access: Access) -> None:
        super().__init__(names, pool)
        self._access = access

    async def ServerReflectionInfo(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:  # noqa: N802 - its name
        try:
            self._access.require(identity(self._access, context), "Describe")
        except Exception as why:  # noqa: BLE001 - every error becomes a status
            await abort(context, Fault.of(why))
        async for answer in super().ServerReflectionInfo(requests, context):
            yield answer
