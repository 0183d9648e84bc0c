"""Connections of gRPC: strangers hold a part of them, and no caller with a credential is kept out or cut off."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.attack.attacks import GREETING, slow_connections, still_open
from tests.attack.victim import STREAM, VICTIM, Victim, victim
from unskew.client import Client

pytestmark = pytest.mark.xdist_group("attack")

MOST = 80


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("attacked"), "--max-grpc-connections", str(MOST)) as found:
        yield found


@pytest.mark.parametrize("first", [b"", GREETING], ids=["nothing", "a greeting"])
def test_strangers_hold_a_quarter_and_no_address_all_of_it(attacked: Victim, first: bytes) -> None:
    """Who has a credential gets in among them and stays, and so does a stranger from elsewhere."""
    attacked.others.failed.clear()
    with (
        slow_connections(attacked.grpc, 1, first, "127.0.0.2") as elsewhere,
        slow_connections(attacked.grpc, 4 * MOST, first, "127.0.0.3") as flood,
    ):
        until = time.monotonic() + 20
        while sum(map(still_open, flood)) > MOST // 4:
            assert time.monotonic() < until
            time.sleep(0.1)
        for _ in range(10):
            with Client(f"grpc://127.0.0.1:{attacked.grpc}", token=VICTIM, timeout=20) as client:
                assert client.get_plan(STREAM).plan is not None
        assert still_open(elsewhere[0])
        assert any(map(still_open, flood))
    assert attacked.others.failed == []
