"""A store that lies: each verb, at a replica that knows the stream and at one that does not, answers rightly or with
one error, or the stream begins anew; no plan of another stream, no older version, no unhandled exception, and the
other streams do not notice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from tests.attack.conftest import Pair
from tests.attack.damages import DAMAGES, keys_of
from tests.attack.reader import PARTITIONS, Reader, verbs
from tests.doses import some_of
from tests.servers import wait_for
from unskew.client import Client

pytestmark = pytest.mark.xdist_group("attack")

OTHER = "kept-well"
MAY = {"OK", "DATA_LOSS", "NOT_FOUND"}
SMALL = ("settings of another type", "plans of another stream", "parts cut")
_numbers = count(1)


def _readers(warm: Client, cold: Client, stream: str) -> tuple[Reader, Reader]:
    """Both replicas, of a stream that was used at the first."""
    for one in (stream, OTHER):
        warm.put_stream(one, partitions=PARTITIONS, policy="balanced", dsync=1.0)
    first, second = Reader(warm), Reader(cold)
    for _ in range(2):  # the second time there is a plan, and something was learned
        first.ask(stream)
    second.newest = first.newest
    return first, second


@pytest.mark.parametrize("name", some_of(DAMAGES, *SMALL))
def test_a_damaged_store_routes_nobody_wrongly(pair: Pair, name: str) -> None:
    stream = f"damaged-{next(_numbers)}"
    with pair.client(pair.warm) as warm, pair.client(pair.cold) as cold:
        readers = _readers(warm, cold, stream)
        others = Reader(warm), Reader(cold)
        others[0].ask(OTHER)
        DAMAGES[name](pair.redis, stream, OTHER)
        for _ in range(2):
            for reader, other in zip(readers, others, strict=True):
                codes = reader.ask(stream)
                assert {code for code in codes if ":" not in code} <= MAY, codes
                assert other.ask(OTHER) == {"OK": len(verbs(warm, OTHER))}
        _cure(pair, readers, stream)
    pair.clean()


def _cure(pair: Pair, readers: tuple[Reader, Reader], stream: str) -> None:
    """As the error says: without its keys the stream begins anew, above all that anybody has seen."""
    for key in list(keys_of(pair.redis, stream)):
        pair.redis.delete(key)
    for reader in readers:
        reader.client.put_stream(stream, partitions=PARTITIONS, policy="balanced", dsync=1.0)
    wait_for("the stream", lambda: _well(readers[0], stream) and _well(readers[1], stream))


def _well(reader: Reader, stream: str) -> bool:
    return set(reader.ask(stream)) == {"OK"}


def _full(pair: Pair) -> Callable[[], object]:
    pair.redis.config_set("maxmemory", 1)
    return lambda: pair.redis.config_set("maxmemory", 200 << 20)


def _read_only(pair: Pair) -> Callable[[], object]:
    pair.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
    return lambda: pair.redis.execute_command("REPLICAOF", "NO", "ONE")


def _slow(pair: Pair) -> Callable[[], object]:
    pair.server.pause()
    return pair.server.resume


def _emptied(pair: Pair) -> Callable[[], object]:
    pair.redis.flushall()
    return lambda: None


FAULTS = {"full": _full, "read-only": _read_only, "silent": _slow, "emptied": _emptied}


@pytest.mark.parametrize("name", some_of(FAULTS, "full"))
def test_a_store_that_refuses_or_is_emptied_in_mid_run(pair: Pair, name: str) -> None:
    """Reads go on where it answers; afterwards all is well without a restart, and versions went up only."""
    stream = f"faulty-{next(_numbers)}"
    with pair.client(pair.warm) as warm, pair.client(pair.cold) as cold:
        readers = _readers(warm, cold, stream)
        readers[1].ask(stream)
        end = FAULTS[name](pair)
        try:
            for reader in readers:
                codes = reader.ask(stream)
                wanted = MAY | {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
                assert {code for code in codes if ":" not in code} <= wanted, codes
                assert not codes["GetPlan: UNAVAILABLE"], codes
        finally:
            end()
        wait_for("the stream", lambda: _well(readers[0], stream) and _well(readers[1], stream))
    pair.clean()


def test_a_stream_whose_numbers_are_damaged_can_be_deleted_and_put_again(pair: Pair) -> None:
    stream = f"deleted-{next(_numbers)}"
    with pair.client(pair.warm) as warm, pair.client(pair.cold) as cold:
        _readers(warm, cold, stream)
        pair.redis.hset(f"{{unskew:{stream}}}:m", "inc", "")
        cold.delete_stream(stream)
        cold.put_stream(stream, partitions=PARTITIONS, policy="balanced", dsync=1.0)
        wait_for("the stream", lambda: _well(Reader(cold), stream))
    pair.clean()


def test_names_of_garbage_in_the_list_hide_no_stream(pair: Pair) -> None:
    with pair.client(pair.warm) as warm, pair.client(pair.cold) as cold:
        warm.put_stream(OTHER, partitions=PARTITIONS)
        garbage = (b"\xff\x00<script>", b"x" * 5000, b"no-such", b"", b"a\nb")
        pair.redis.zadd("unskew:streams", dict.fromkeys(garbage, 0))
        for client in (warm, cold):
            assert OTHER in [stream.name for stream in client.list_streams()]
        pair.redis.zrem("unskew:streams", *garbage)
    pair.clean()
