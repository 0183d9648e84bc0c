"""One reporter who fills the store: over gRPC and REST refused in words, by bounds that hold over two replicas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.attack.attacks import Filled, fill
from tests.attack.victim import ATTACKER, STREAM, VICTIM, Victim, victim
from tests.servers import Server, single
from unskew.client import Client
from unskew.core.stream_spec import BatchWork, Part, Work

pytestmark = pytest.mark.xdist_group("attack")

MEGABYTE = 1 << 20
FLAGS = ("--max-stream-bytes", str(6 * MEGABYTE), "--max-identity-bytes", str(8 * MEGABYTE), "--max-parts", "40")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("redis"), "maxmemory 64mb", "maxmemory-policy noeviction") as server:
        yield server


@pytest.fixture(scope="module")
def replicas(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Victim]]:
    with ExitStack() as stack:
        folders = [tmp_path_factory.mktemp("replica") for _ in range(2)]
        yield [stack.enter_context(victim(folder, "--store", redis.url, *FLAGS)) for folder in folders]


def test_one_identity_fills_no_redis_through_two_replicas(replicas: list[Victim], redis: Server) -> None:
    """Streams one after the other from both sides at once; the others' calls go on."""
    for one in replicas:
        one.others.failed.clear()
    found: list[Filled] = []

    def attack(number: int) -> None:
        found.append(fill(replicas[number % 2].grpc, ATTACKER, f"flooded-{number}", 60, 1 << 15, 2))

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    refused = {code for one in found for code in one.refused}
    late = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}  # Redis or a replica, on a busy machine
    assert refused - late == {"RESOURCE_EXHAUSTED"}, [one.last for one in found]
    kept = int(redis.ask("HGET", "unskew:used:attacker", ""))
    assert kept <= 8 * MEGABYTE
    assert redis.info("memory")["used_memory"] < 40 * MEGABYTE
    assert [one.others.failed for one in replicas] == [[], []]


def test_a_refusal_says_the_bound_and_the_way_out(replicas: list[Victim]) -> None:
    """A part too many, over REST; the metric says which bound it was. What somebody else reports is taken."""
    body: dict[str, object] = {"source": "app/query", "batch": 1, "parts": 50, "hashes": [1], "counts": [2]}
    headers = {"authorization": f"Bearer {VICTIM}"}
    url = replicas[0].process.url(f"/v1/streams/{STREAM}/histograms")
    for number in range(41):
        answer = httpx.post(url, json=body | {"part": number}, headers=headers, trust_env=False, timeout=30)
        assert answer.status_code == (200 if number < 40 else 429), answer.text
    told = answer.json()
    assert told["code"] == "RESOURCE_EXHAUSTED"
    assert "has 40 parts, all that it may have (40); report it in fewer, or have --max-parts raised" in told["detail"]
    again = httpx.post(url, json=body | {"part": 3}, headers=headers, trust_env=False, timeout=30)
    assert again.status_code == 200
    with Client(f"grpc://127.0.0.1:{replicas[1].grpc}", token=VICTIM) as client:
        client.report_batch(STREAM, Part("app/query", 1), BatchWork((Work(0, rows=1),)))
    page = httpx.get(
        f"http://127.0.0.1:{replicas[0].process.metrics}/metrics", headers=headers, trust_env=False, timeout=30
    ).text
    assert 'unskew_over_quota_total{quota="batch parts"} 1.0' in page
    assert "unskew_store_max_bytes 6.7108864e+07" in page
