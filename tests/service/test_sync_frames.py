"""How many of our own functions a Sync goes through on its way from gRPC to Redis."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import grpc
import pytest
from redis.asyncio.connection import AbstractConnection

import unskew.service.errors
from tests.servers import single
from tests.service.engines import a_report, run
from unskew.core.stream_spec import StreamSpec
from unskew.service.app.main import build
from unskew.service.app.settings import Settings
from unskew.service.stores.redis.scripts import SCRIPTS
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import streams
from unskew.wire.round_messages import report_to_message

OURS = str(Path(unskew.service.errors.__file__).parent)
MOST_FRAMES = 14


def running_frames() -> list[CodeType]:
    """The functions on the stack of whoever calls this, the innermost first."""
    codes, frame = [], sys._getframe(1)
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back  # type: ignore[assignment]
    return codes


def waiting_frames(task: asyncio.Task[Any]) -> list[CodeType]:
    """The coroutines of a task that waits, each awaited by the one before it."""
    codes: list[CodeType] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        if type(coroutine).__name__ == "coroutine_wrapper":  # what gRPC's own coroutines await instead of ours
            (coroutine,) = gc.get_referents(coroutine)
        if inspect.iscoroutine(coroutine):
            codes.append(coroutine.cr_code)
        coroutine = getattr(coroutine, "cr_await", None)
    return codes


def our_frames(command: bytes) -> list[str] | None:
    """The functions of ours between gRPC and this command to Redis; None where it does not write reports."""
    if SCRIPTS["report"].sha.encode() not in command:
        return None
    codes = running_frames()
    for task in asyncio.all_tasks():
        waiting = waiting_frames(task)
        if any(code.co_name == "sync" for code in waiting):
            codes += waiting
    ours = dict.fromkeys(code for code in codes if code.co_filename.startswith(OURS))
    return [f"{Path(code.co_filename).relative_to(OURS)}:{code.co_name}" for code in ours]


def test_a_sync_goes_through_few_functions_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function on the way costs time in every Sync, and one more look of whoever reads it."""
    depths: list[list[str]] = []
    send = AbstractConnection.send_packed_command

    async def watched(self: AbstractConnection, command: Any, check_health: bool = True) -> None:
        frames = our_frames(b"".join(command))
        if frames is not None:
            depths.append(frames)
        await send(self, command, check_health)

    async def main(url: str) -> None:
        running = await build(Settings(http_port=0, grpc_port=0, metrics_port=0, store=url))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
            stub = PartitionerServiceStub(channel)
            spec = streams.spec_to_message(StreamSpec(4, "dalton", dsync=0.5, dsync_min=0.5))
            await stub.PutStream(pb.PutStreamRequest(stream="clicks", spec=spec))
            for seq in (1, 2):
                report = report_to_message(a_report("a", seq, dsync=0.5))
                answer = await stub.Sync(pb.SyncRequest(stream="clicks", report=report, wait_seconds=5.0), timeout=10.0)
                assert answer.answer.epoch == seq
        await running.close()

    monkeypatch.setattr(AbstractConnection, "send_packed_command", watched)
    with single(tmp_path) as server:
        run(main(server.url))
    deepest = max(depths, key=len)
    assert any("grpc/server.py" in name for name in deepest), "the stack of the call was not found"
    assert any("pipelined_connection.py" in name for name in deepest)
    assert len(deepest) <= MOST_FRAMES, f"{len(deepest)} frames:\n" + "\n".join(deepest)
