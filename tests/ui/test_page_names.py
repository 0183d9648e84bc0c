"""Names that a stream may have and a script may stumble over, on the page: they are text, and nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.attack.hostile_names import NAMES
from tests.planning import some_histogram
from tests.service.processes import process
from tests.ui.conftest import Opened
from unskew.client import Client
from unskew.core.stream_spec import BatchWork, Part, Work

pytestmark = [pytest.mark.xdist_group("ui"), pytest.mark.long]

ALLOWED = [*(NAMES[kind] for kind in ("proto", "constructor", "up")), "toString", "a:b", "x" * 200]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("names")
    with process(folder) as service, Client(f"grpc://127.0.0.1:{service.grpc}", timeout=60.0) as client:
        for name in ALLOWED:
            client.put_stream(name, partitions=4)
            client.report_batch(name, Part(name, 1), BatchWork((Work(0, rows=5), Work(1, rows=7))))
            client.build_plan(name, histogram=some_histogram(1000, 50))
        yield service.url("")


def test_a_name_is_text_on_every_page(base: str, opened: Opened) -> None:
    """As a stream and as a source; ``opened`` looks that nothing was thrown, complained of or asked elsewhere."""
    page = opened(base).open()
    for name in ALLOWED:
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    for name in ALLOWED:
        page = opened(base).open(f"/#/streams/{quote(name, safe='')}")
        expect(page.get_by_role("heading", name=name).first).to_be_visible()
