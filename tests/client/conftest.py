"""A service in the test's hands, for every test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.service_in_test import Running, ServiceInTest, serving
from unskew.client import Client


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whoever runs the tests."""
    monkeypatch.delenv("UNSKEW_TOKEN", raising=False)
    for name in ("TOKEN_FILE", "CA", "CERTIFICATE", "KEY"):
        monkeypatch.delenv(f"UNSKEW_{name}", raising=False)


@pytest.fixture
def running() -> Iterator[Running]:
    with serving() as one:
        yield one


@pytest.fixture
def service(running: Running) -> ServiceInTest:
    return running.service


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.target, timeout=60.0) as one:
        yield one
