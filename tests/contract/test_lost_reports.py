"""Why rounds are sealed: the plain way to share them, on the same Redis and under the same load, loses reports.

DESIGN, section 6: read, merge and write with a compare-and-set on the epoch merged 15,366 of 20,048 acknowledged
reports. What comes between the read and the write is acknowledged, and then taken away unread.
"""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio
from redis.exceptions import WatchError

from tests.contract.backends import UrlBackend
from tests.contract.laws import race
from tests.servers import Server

pytestmark = pytest.mark.anyio

REPORTERS, REPORTS, MERGERS = 16, 25, 4


class Plain:
    """Reports in one hash, an epoch beside it; whoever merges replaces both if the epoch is still the one it read."""

    def __init__(self, server: Server) -> None:
        self.redis = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
        self.merged: list[bytes] = []
        self.acknowledged = 0
        self.busy = REPORTERS

    async def reporter(self, number: int) -> None:
        for seq in range(REPORTS):
            await self.redis.hset("plain:reports", f"{number} {seq}", "x")
            self.acknowledged += 1
            await asyncio.sleep(0)
        self.busy -= 1

    async def merger(self) -> None:
        while self.busy or await self.redis.hlen("plain:reports"):
            async with self.redis.pipeline() as pipe:
                await pipe.watch("plain:epoch")
                epoch = int(await pipe.get("plain:epoch") or 0)
                reports = await pipe.hgetall("plain:reports")
                pipe.multi()
                pipe.set("plain:epoch", epoch + 1)
                pipe.delete("plain:reports")
                try:
                    await pipe.execute()
                except WatchError:
                    continue  # somebody else was faster
            self.merged += reports


async def test_read_merge_write_with_a_compare_and_set_loses_acknowledged_reports(empty_redis: Server) -> None:
    """Every report was acknowledged, none is merged twice, and some are in no round."""
    plain = Plain(empty_redis)
    await asyncio.gather(*(plain.reporter(n) for n in range(REPORTERS)), *(plain.merger() for _ in range(MERGERS)))
    await plain.redis.aclose()
    assert plain.acknowledged == REPORTERS * REPORTS
    assert len(set(plain.merged)) == len(plain.merged)
    lost = plain.acknowledged - len(plain.merged)
    assert lost > plain.acknowledged // 20


async def test_sealing_loses_none_of_them(empty_redis: Server) -> None:
    """The same reporters and mergers on the same server: each report is in exactly one round."""
    backend = UrlBackend(empty_redis.url, lambda: empty_redis.ask("FLUSHALL"))
    try:
        assert await race(backend, reporters=REPORTERS, reports=REPORTS, mergers=MERGERS) > 3
    finally:
        await backend.close()
