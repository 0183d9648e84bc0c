"""gRPC's health service, which anybody may ask: so its messages are read as those of callers who are not known."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from unskew.service.api.problems import Fault
from unskew.service.errors import LimitError
from unskew.service.grpc import codec
from unskew.service.grpc.reads import EndedError, Reads

__all__ = ["Health"]

_MOST_WATCHES = 1000


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # the library has no types
    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self._reads = reads
        self._watches = 0

    def handlers(self) -> dict[str, Any]:
        encode = HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=encode),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=encode),
        }

    async def _check(self, _messages: Any, context: codec.Context) -> HealthCheckResponse:
        return await self.Check(await self._request(context), context)

    async def _watch(self, _messages: Any, context: codec.Context) -> None:
        self._watches += 1
        try:
            if self._watches > _MOST_WATCHES:
                full = LimitError(f"{_MOST_WATCHES} watches of health are open here; use Check, or try again later")
                await codec.abort(context, Fault.of(full))
            await self.Watch(await self._request(context), context)
        finally:
            self._watches -= 1

    async def _request(self, context: codec.Context) -> HealthCheckRequest:
        try:
            return codec.parsed(HealthCheckRequest, await self._reads.message_of_unknown(context))
        except EndedError as why:
            raise why.ended from None
        except Exception as why:  # every error becomes a status
            await codec.abort(context, Fault.of(why))
            raise
