"""One suite of laws over every store: memory and a real Redis (DESIGN, section 6)."""

from __future__ import annotations

import pytest

from tests.contract.backends import Backend
from tests.contract.laws import LAWS, race

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("law", LAWS)
async def test_store(law: str, backend: Backend) -> None:
    """What the law's name says, on a state of its own."""
    await LAWS[law](backend)


@pytest.mark.long
async def test_a_long_race_loses_nothing(backend: Backend) -> None:
    """The full dose: 64 reporters with 300 reports each, 8 replicas that seal and merge."""
    assert await race(backend, reporters=64, reports=300, mergers=8) > 10
