"""Two replicas on one Redis, guarded, and a load that makes them tell everything they have to tell.

Through the real client, to one replica and the other in turn, as a balancer would: a stream with plans and batches,
one that agents learn on, calls that are refused, a watch. Over REST too.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from tests.planning import key_hashes, some_histogram
from tests.servers import single
from tests.service.faces import digest_of, report
from tests.service.processes import Process, process
from unskew.client import Agent, Client
from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Plan
from unskew.core.stream_spec import BatchWork, Part, Work

TOKENS = f"{digest_of('root')} root admin *\n{digest_of('scraper')} prometheus reader *\n"
CLICKS, LEARNED = "clicks", "learned"
PARTITIONS = 8
_TURN = 0.5  # seconds from batch to batch
_AGENTS = 2


@dataclass
class World:
    """The replicas, and a client of each."""

    replicas: list[Process]
    clients: list[Client]
    failed: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def targets(self) -> list[str]:
        return [f"127.0.0.1:{one.metrics}" for one in self.replicas]

    def page(self, replica: int) -> str:
        headers = {"authorization": "Bearer scraper"}
        return httpx.get(f"http://{self.targets[replica]}/metrics", headers=headers, trust_env=False, timeout=60).text


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """Under load until it is left."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(single(folder))
        replicas, clients = [], []
        for name in ("a", "b"):
            (folder / name).mkdir()
            flags = ("--store", redis.url, "--log-level", "warning")
            replicas.append(stack.enter_context(process(folder / name, *flags, UNSKEW_TOKENS=TOKENS)))
            target = f"127.0.0.1:{replicas[-1].grpc}"
            clients.append(stack.enter_context(Client(target, token="root", insecure=True, timeout=60)))
        made = World(replicas, clients)
        with _loaded(made):
            yield made
    assert not made.failed, made.failed[:3]


@contextlib.contextmanager
def _loaded(made: World) -> Iterator[None]:
    first = made.clients[0]
    first.put_stream(CLICKS, partitions=PARTITIONS, policy="balanced", dsync=0.5, dsync_min=0.5)
    first.put_stream(LEARNED, partitions=PARTITIONS, policy="dalton", dsync=0.5, dsync_min=0.5)
    loops = {"batches": _batches(made), "refused": _refused(made)}
    threads = [threading.Thread(target=_turns, args=(made, name, loop)) for name, loop in loops.items()]
    with contextlib.ExitStack() as stack:
        for number, client in zip(range(_AGENTS), itertools.cycle(made.clients), strict=False):
            agent = Agent(LEARNED, client, workers=PARTITIONS, name=f"agent-{number}", dsync=0.5)
            threads.append(threading.Thread(target=_turns, args=(made, "agent", _routes(stack.enter_context(agent)))))
        for client in made.clients:
            stack.enter_context(client.watch(CLICKS, lambda _plan: None))
        try:
            for thread in threads:
                thread.start()
            yield
        finally:
            made.ended.set()
            for thread in threads:
                thread.join(90)


def _turns(made: World, name: str, turn: Callable[[int], None]) -> None:
    for number in itertools.count(1):
        try:
            turn(number)
        except Exception as why:  # noqa: BLE001 - every one is told, and fails the test
            made.failed.append(f"{name}: {type(why).__name__}: {why}")
        if made.ended.wait(_TURN):
            return


def batch(client: Client, stream: str, number: int, seed: int = 1) -> Plan:
    """A batch of a job: keys counted, planned for, routed, reported; advice asked for."""
    histogram = some_histogram(20_000, 500, 1.4, seed)
    client.report_histogram(stream, Part("app/query", number), histogram)
    plan = client.build_plan(stream, number, fresh=True).plan
    ran(client, stream, number, plan, plan.loads(histogram).tolist())
    return plan


def ran(client: Client, stream: str, number: int, plan: Plan, rows: list[int]) -> None:
    work = tuple(Work(at, rows=count, keys=10, seconds=0.5) for at, count in enumerate(rows))
    client.report_batch(stream, Part("app/query", number), BatchWork(work, 2.0, 1.8, 0.9, 0.9), plan.version)


def _batches(made: World) -> Callable[[int], None]:
    """The hot keys change now and then; each call goes to the next replica."""

    def turn(number: int) -> None:
        client = made.clients[number % 2]
        plan = batch(client, CLICKS, number, seed=number // 5)
        client.build_plan(CLICKS, number + 1)  # how should the next batch go?
        client.get_scale(CLICKS)
        client.get_plan(CLICKS)
        client.get_plan(CLICKS, plan.version)
        where = made.replicas[number % 2].url(f"/v1/streams/{CLICKS}/plans/latest")
        httpx.get(where, headers={"authorization": "Bearer root"}, trust_env=False, timeout=60).raise_for_status()

    return turn


def _refused(made: World) -> Callable[[int], None]:
    """An unknown token over REST, a reader that would change something, a stream that there is not."""

    def turn(number: int) -> None:
        replica = made.replicas[number % 2]
        for token, status in (("who", 401), ("scraper", 403)):
            headers = {"authorization": f"Bearer {token}"}
            answer = httpx.put(
                replica.url(f"/v1/streams/{CLICKS}"),
                json={"partitions": 2},
                headers=headers,
                trust_env=False,
                timeout=60,
            )
            if answer.status_code != status:
                raise AssertionError(f"{answer.status_code} for {token}")
        try:
            made.clients[number % 2].get_plan("no-such-stream")
        except UnskewError:
            return
        raise AssertionError("a stream that there is not has a plan")

    return turn


def _routes(agent: Agent) -> Callable[[int], None]:
    keys = key_hashes(100)
    weights = 1.0 / np.arange(1, len(keys) + 1)
    rng = np.random.default_rng(7)

    def turn(number: int) -> None:
        agent.route(rng.choice(keys, 2000, p=weights / weights.sum()))

    return turn


def silent_agents(made: World) -> None:
    """They have a lease and do not come again: a round is closed by its deadline. Of one that reported early in its own
    round the lease can end before the next one's deadline, so there is one at each point of an interval."""
    for number in range(8):
        made.clients[0].sync(LEARNED, report(PARTITIONS, f"silent-{number}"))
        made.ended.wait(0.1)
