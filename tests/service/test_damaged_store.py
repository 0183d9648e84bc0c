"""Values in Redis that nobody of ours wrote: each is told as damage, with the way out, and other streams go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import redis

from tests.planning import some_histogram
from tests.servers import Server, single, wait_for
from tests.service.faces import Served, served
from unskew.client import Client, Fetched, NoAnswerError, NotThereError

pytestmark = pytest.mark.xdist_group("damaged-store")

DAMAGE: dict[str, tuple[str, str, Callable[[bytes], bytes]]] = {
    "settings": ("m", "spec", lambda value: value[: len(value) // 2]),
    "created": ("m", "created", lambda value: value[:4] + b"x" + value[5:]),
    "incarnation": ("m", "inc", lambda value: b""),
    "a plan": ("v:", "data", lambda value: value[:-9] + bytes([value[-9] ^ 1]) + value[-8:]),
    "half a plan": ("v:", "data", lambda value: value[: len(value) // 2]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("damaged")) as one:
        yield one


@pytest.fixture
def written(server: Server) -> Server:
    """Two streams with a plan each, and no replica that remembers them."""
    server.ask("FLUSHALL")
    with served("engine", store=server.url) as one, Client(one.target, timeout=60) as client:
        for stream in ("clicks", "others"):
            client.put_stream(stream, partitions=4, policy="balanced")
            client.build_plan(stream, histogram=some_histogram(5000, 100))
    return server


def damage(server: Server, key: str, field: str, change: Callable[[bytes], bytes]) -> None:
    with redis.Redis("127.0.0.1", server.port, protocol=2) as store:
        (name,) = store.keys(f"{{unskew:clicks}}:{key}*") if key == "v:" else [f"{{unskew:clicks}}:{key}".encode()]
        store.hset(name, field, change(store.hget(name, field)))


def ask(one: Served, what: str) -> object:
    """As a caller that is told at once: the client would ask again."""
    with Client(one.target, timeout=60, options=[("grpc.enable_retries", 0)]) as client:
        return getattr(client, what)("clicks")


def fetched(one: Served) -> Fetched:
    with Client(one.target, timeout=60) as client:
        return client.get_plan("clicks")


@pytest.mark.parametrize("what", DAMAGE)
def test_what_cannot_be_read_is_told_with_the_way_out(written: Server, what: str, tmp_path: Path) -> None:
    damage(written, *DAMAGE[what])
    verbs = ("get_plan",) if "plan" in what else ("get_stream", "build_plan")
    with served("engine", store=written.url) as one:
        for verb in verbs:
            with pytest.raises(NoAnswerError, match="is damaged; restore the store from a copy, or delete") as why:
                ask(one, verb)
            assert why.value.code == grpc.StatusCode.UNAVAILABLE.name
        with Client(one.target, timeout=60) as client:
            assert not client.get_plan("others").stale
            client.delete_stream("clicks")
            with pytest.raises(NotThereError):
                client.get_plan("clicks")
            client.put_stream("clicks", partitions=4, policy="balanced")
            assert client.build_plan("clicks", histogram=some_histogram(5000, 100)).outcome == "new"


def test_a_replica_that_has_read_the_plan_before_serves_it_marked_stale(written: Server) -> None:
    """Every time, to callers who have no plan yet."""
    with served("engine", store=written.url) as one:
        first = fetched(one).plan.digest
        damage(written, *DAMAGE["a plan"])
        wait_for("the plan that was read is not taken for present any more", lambda: fetched(one).stale)
        found = [fetched(one) for _ in range(5)]
        assert [(each.plan.digest, each.stale) for each in found] == [(first, True)] * 5
