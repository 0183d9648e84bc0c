"""Lies as attacks with a dose: told for ten seconds, as fast as they are answered, while somebody else is served."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import count, cycle
from pathlib import Path
from socket import create_connection

import grpc
import redis

from tests.attack.certificates import authority, certificate
from tests.attack.damages import DAMAGES, keys_of
from tests.attack.hostile_names import NAMES, asked
from tests.attack.lies import LIES, NEWS
from tests.attack.reader import PARTITIONS, Reader
from tests.attack.victim import ATTACKER, STREAM, Victim, victim
from tests.attack.wrong_clock import Clock
from tests.servers import single
from unskew.client import Client, ServiceCallError
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

__all__ = ["LYING"]

Attack = Callable[[Victim], tuple[bool, str]]
_SECONDS = 10.0
Prepared = tuple[Victim, Attack]
"""Who is attacked, and how."""


def _for(once: Callable[[], str]) -> str:
    """What the answers were, told over and over."""
    end, codes = time.monotonic() + _SECONDS, Counter[str]()
    while time.monotonic() < end:
        codes[once()] += 1
    return ", ".join(f"{many / _SECONDS:,.0f}/s {code}" for code, many in codes.most_common(4))


def names(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(k): hostile names in every verb."""
    on = stack.enter_context(victim(folder, **more))
    answers = (code for name in cycle(NAMES) if name != "surrogate" for _, code in asked(on.process, NAMES[name]))
    return on, lambda on: (on.healthy(), _for(lambda: next(answers)))


def reports(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(l): reports that lie, into the stream that somebody else uses."""
    on = stack.enter_context(victim(folder, **more))
    stub = PartitionerServiceStub(stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{on.grpc}")))
    lies, numbers = cycle(LIES.values()), count(1)

    def once() -> str:
        verb, request = next(lies)(STREAM, next(numbers))
        try:
            getattr(stub, verb)(request, metadata=(("authorization", f"Bearer {ATTACKER}"),), timeout=30)
        except grpc.RpcError as why:
            return str(why.code().name)
        return "OK"

    return on, lambda on: (on.healthy(), _for(once))


def news(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(m): foreign news, as many as one connection can publish."""
    server = stack.enter_context(single(folder))
    on = stack.enter_context(victim(folder, "--store", server.url, **more))
    pipe, told = redis.Redis("127.0.0.1", server.port).pipeline(transaction=False), cycle(NEWS)

    def once() -> str:
        for _ in range(100):
            pipe.publish("unskew:news", next(told).replace("STREAM", STREAM))
        pipe.execute()
        return "hundreds of messages"

    return on, lambda on: (on.healthy(), _for(once))


def damages(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(n): a stream of the attacker that is damaged in the store over and over, and asked for."""
    server = stack.enter_context(single(folder))
    on = stack.enter_context(victim(folder, "--store", server.url, **more))
    store, kinds = redis.Redis("127.0.0.1", server.port), cycle(DAMAGES.values())
    client = stack.enter_context(Client(f"grpc://127.0.0.1:{on.grpc}", token=ATTACKER, timeout=20))
    codes = Counter[str]()

    def once() -> str:
        for key in list(keys_of(store, "damaged")):
            store.delete(key)
        with suppress(ServiceCallError):
            client.put_stream("damaged", partitions=PARTITIONS)
        Reader(client).ask("damaged")
        with suppress(ValueError, TypeError):  # what there is not cannot be damaged
            next(kinds)(store, "damaged", STREAM)
        codes.update(Reader(client).ask("damaged"))
        return "damages"

    return on, lambda on: (on.healthy(), f"{_for(once)}; {dict(codes.most_common(3))}")


def handshakes(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(o): nonsense in place of TLS on both ports, while certificates are replaced."""
    authority(folder)
    certificate(folder, "server")
    flags = "--tls-cert", "server.pem", "--tls-key", "server.key"
    on = stack.enter_context(victim(folder, *flags, ca=folder / "ca.pem", **more))
    ports = cycle((on.grpc, on.http))

    def once() -> str:
        with suppress(OSError), create_connection(("127.0.0.1", next(ports)), 5) as plain:
            plain.sendall(b"\x16\x03\x01\x00\x05hello\r\n")
            plain.settimeout(1)
            plain.recv(100)
        return "handshakes"

    def attack(on: Victim) -> tuple[bool, str]:
        over = threading.Event()

        def renew() -> None:
            while not over.wait(0.5):
                certificate(folder, "server")

        thread = threading.Thread(target=renew)
        thread.start()
        told = _for(once)
        over.set()
        thread.join(30)
        return not on.others.failed, told

    return on, attack


def jumps(folder: Path, stack: ExitStack, more: Mapping[str, str]) -> Prepared:
    """(p): the replica's clock jumps by an hour, in both directions."""
    clock = Clock.at(folder / "clock")
    on = stack.enter_context(victim(folder, **clock.environment, **more))
    shifts = cycle((3600, 0, -3600, 0))

    def once() -> str:
        clock.shift(next(shifts))
        time.sleep(0.25)
        return "jumps"

    return on, lambda on: (on.healthy(), _for(once))


LYING: Mapping[str, Callable[[Path, ExitStack, Mapping[str, str]], Prepared]] = {
    "k  hostile names in every verb": names,
    "l  reports that lie": reports,
    "m  foreign news": news,
    "n  a stream that is damaged in the store": damages,
    "o  nonsense for TLS, certificates rotated": handshakes,
    "p  a clock that jumps by an hour": jumps,
}
