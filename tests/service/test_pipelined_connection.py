"""One connection to Redis for all commands: answers find who asked, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as LateError

from tests.service.engines import run
from unskew.service.stores.redis.pipelined_connection import PipelinedConnection

Talk = Callable[[list[bytes], asyncio.StreamWriter], Awaitable[None]]


async def _words(reader: asyncio.StreamReader) -> list[bytes]:
    """A command as Redis reads it."""
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


class Server:
    """Speaks Redis's protocol, one command after another, as ``talk`` says."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self.connections, self.writers = talk, 0, list[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                words = await _words(reader)
                if words[0] in (b"HELLO", b"CLIENT"):
                    writer.write(b"+OK\r\n")
                else:
                    await self._talk(words, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def connected_to(talk: Talk, timeout: float = 60.0) -> AsyncIterator[tuple[PipelinedConnection, Server]]:
    server = Server(talk)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = Redis(host="127.0.0.1", port=port, socket_timeout=None, protocol=2)
    connection = PipelinedConnection(client.connection_pool.make_connection, timeout)
    try:
        yield connection, server
    finally:
        await connection.aclose()
        for writer in server.writers:
            writer.close()
        listening.close()
        await client.aclose()


async def echo(words: list[bytes], writer: asyncio.StreamWriter) -> None:
    writer.write(b"$%d\r\n%s\r\n" % (len(words[1]), words[1]))


def test_each_gets_its_own_answer_on_one_connection() -> None:
    async def main() -> None:
        async with connected_to(echo) as (connection, server):
            said = [f"word {i}".encode() for i in range(200)]
            assert await asyncio.gather(*(connection.execute_command("ECHO", one) for one in said)) == said
            assert server.connections == 1

    run(main())


def test_an_error_is_of_the_command_that_met_it() -> None:
    async def talk(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        if words[0] == b"BAD":
            writer.write(b"-ERR no such thing\r\n")
        else:
            await echo(words, writer)

    async def main() -> None:
        async with connected_to(talk) as (connection, server):
            found = await asyncio.gather(
                connection.execute_command("ECHO", b"a"),
                connection.execute_command("BAD"),
                connection.execute_command("ECHO", b"b"),
                return_exceptions=True,
            )
            assert found[0::2] == [b"a", b"b"]
            assert isinstance(found[1], ResponseError)
            assert server.connections == 1

    run(main())


def test_who_goes_away_leaves_the_others_their_answers() -> None:
    """Its answer comes all the same, and is nobody's."""
    go = asyncio.Event()

    async def talk(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await echo(words, writer)

    async def main() -> None:
        async with connected_to(talk) as (connection, server):
            asked = (connection.execute_command("ECHO", one) for one in (b"1", b"2", b"3"))
            first, gone, last = map(asyncio.ensure_future, asked)
            await asyncio.sleep(0.05)
            gone.cancel()
            go.set()
            assert await asyncio.gather(first, last) == [b"1", b"3"]
            assert await connection.execute_command("ECHO", b"4") == b"4"
            assert server.connections == 1

    run(main())


def test_a_server_that_hangs_is_given_up_and_asked_anew() -> None:
    """All that were sent on the connection are told; the next command makes another."""
    hang = True

    async def talk(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        if not hang:
            await echo(words, writer)

    async def main() -> None:
        nonlocal hang
        async with connected_to(talk, timeout=0.2) as (connection, server):
            asked = (connection.execute_command("ECHO", b"x") for _ in range(3))
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(one) for one in found] == [LateError] * 3
            hang = False
            assert await connection.execute_command("ECHO", b"y") == b"y"
            assert server.connections == 2

    run(main())


def test_a_connection_that_ends_is_made_again() -> None:
    """What was under way is told that it may or may not have happened; no answer goes to another command."""

    async def talk(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        if words[1] == b"end":
            writer.close()
        else:
            await echo(words, writer)

    async def main() -> None:
        async with connected_to(talk) as (connection, server):
            found = await asyncio.gather(
                connection.execute_command("ECHO", b"a"),
                connection.execute_command("ECHO", b"end"),
                connection.execute_command("ECHO", b"b"),
                return_exceptions=True,
            )
            assert found[0] == b"a"
            assert all(isinstance(one, LostError) for one in found[1:])
            assert await connection.execute_command("ECHO", b"c") == b"c"
            assert server.connections == 2

    run(main())


def test_nobody_there_is_one_error_for_all_who_ask() -> None:
    async def main() -> None:
        client = Redis(host="127.0.0.1", port=1, socket_timeout=None, retry=Retry(NoBackoff(), 0))
        connection = PipelinedConnection(client.connection_pool.make_connection, 1.0)
        found = await asyncio.gather(*(connection.execute_command("PING") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(one, LostError) for one in found)
        await connection.aclose()
        await client.aclose()

    run(main())


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_large_commands_and_answers_keep_their_order(size: int) -> None:
    async def main() -> None:
        async with connected_to(echo) as (connection, _):
            said = [bytes([65 + i]) * size for i in range(8)]
            assert await asyncio.gather(*(connection.execute_command("ECHO", one) for one in said)) == said

    run(main())
