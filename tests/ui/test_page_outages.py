"""The web page when the service goes away and comes back, and when it wants to know who asks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.servers import Server, single
from tests.service.faces import digest_of
from tests.service.processes import process
from tests.ui.conftest import Opened, Watched, played
from tests.ui.drawn import bars, settled
from tests.ui.play import BY_UNSKEW
from tests.ui.test_page import STREAM, _check_axe
from unskew.client import Client

pytestmark = pytest.mark.xdist_group("ui")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("redis")) as server:
        yield server


def picture(page: Page) -> Any:
    """What is drawn and said of a stream, but for when."""
    drawn = {name: bars(page, name) for name in ("hash", "plan", "observed")}
    texts = page.locator("h1, .lead, .why, .tile, tbody, .lines path.line").all_text_contents()
    lines = page.locator(".lines path.line").evaluate_all("paths => paths.map(one => one.getAttribute('d'))")
    return drawn, texts, lines


def test_the_page_outlives_a_restart_of_the_service(opened: Opened, redis: Server, tmp_path: Path) -> None:
    """It says that nobody answers and since when, goes on by itself, and shows the same as before: what it is drawn
    from is in Redis. Meanwhile, and only then, the browser complains."""
    with played(tmp_path / "before", "--store", redis.url, batches=4) as (service, _):
        shown = opened(service.url(""))
        page = shown.open(STREAM)
        settled(page)
        page.wait_for_timeout(100)  # one more frame: the lines are drawn after the bars
        before = picture(page)
        down = time.monotonic()
        service.run.kill()
        service.run.wait()
        expect(page.locator("#banner")).to_contain_text("Not reachable, last seen ")
        expect(page.locator("#seen")).to_contain_text("last seen")
    folder = tmp_path / "after"
    folder.mkdir()
    ports = ("--http-port", str(service.http), "--store", redis.url)
    with process(folder, *ports):
        expect(page.locator("#seen")).to_contain_text("live")
        up = time.monotonic()
        shown.expected = lambda at, said: down <= at <= up and "ERR_" in said
        expect(page.locator("#banner")).to_have_text("")
        assert picture(page) == before
        page.reload()
        settled(page)
        assert picture(page)[:2] == before[:2]


@pytest.mark.long
def test_an_answer_that_is_none_stops_nothing(opened: Opened, tmp_path: Path) -> None:
    """A proxy's page with status 200, or an answer cut off in the middle: it is said, and asked again. It stopped for
    good, under a line that said "live"."""
    with played(tmp_path / "run", batches=2) as (service, _):
        shown = opened(service.url(""))
        page = shown.open(STREAM)
        settled(page)
        for body in ("<h1>Bad gateway</h1>", '{"stream": {"na'):
            answer = {"status": 200, "content_type": "application/json", "body": body}
            page.route("**/overview", lambda route, _request, answer=answer: route.fulfill(**answer))
            expect(page.locator("#banner")).to_contain_text("Not reachable, last seen ")
            page.unroute("**/overview")
            expect(page.locator("#banner")).to_have_text("")
            expect(page.locator("#seen")).to_contain_text("live")
        page.goto("about:blank")


@pytest.mark.long
def test_an_address_that_is_none_is_a_stream_that_is_not_there(opened: Opened, tmp_path: Path) -> None:
    """A "%" that was typed in left an empty page."""
    with process(tmp_path) as service:
        shown = opened(service.url(""))
        shown.expected = lambda _at, said: "422" in said or "404" in said
        page = shown.open("/#/streams/%")
        expect(page.locator("#banner")).not_to_have_text("")
        page.get_by_role("link", name="All streams").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
        page.goto("about:blank")


TOKENS = "\n".join(
    f"{digest_of(token)} {token} {rest}"
    for token, rest in (("owner", "admin *"), ("viewer", "reader demo/*"), ("stranger", "reader other/*"))
)


def _type(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")


def test_where_credentials_are_wanted_the_page_asks_for_a_token(opened: Opened, tmp_path: Path) -> None:
    """It is open itself, and empty. A token that is not known or may not read is told so; the right one shows what it
    may see, stays for the session, and can be forgotten."""
    with ExitStack() as stack:
        service = stack.enter_context(process(tmp_path, UNSKEW_TOKENS=TOKENS))
        client = stack.enter_context(Client(f"grpc://127.0.0.1:{service.grpc}", token="owner", insecure=True))
        client.put_stream(BY_UNSKEW, partitions=4, policy="kip")
        client.put_stream("other/one", partitions=4, policy="kip")
        shown = opened(service.url(""))
        shown.expected = lambda _at, said: "401" in said or "403" in said  # the browser's own line for such an answer
        _check_tokens(shown)


def _check_tokens(shown: Watched) -> None:
    page = shown.open()
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("This service wants to know who asks.")
    expect(page.get_by_label("Token")).to_be_focused()
    _check_axe(page)
    shown.shot("token")
    _type(page, "naïve–token")
    expect(alert).to_contain_text("That is no token")
    page.get_by_label("Token").fill("half a tok")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # back from where tokens are kept
    page.wait_for_timeout(300)
    expect(page.get_by_label("Token")).to_have_value("half a tok")
    _type(page, "nobody")
    expect(alert).to_have_text("This token is not known here, or has expired.")
    _type(page, "stranger")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(shown.base + STREAM)
    expect(alert).to_contain_text("stranger may not call GetOverview on stream 'demo/by-unskew'")
    _type(page, "viewer")
    expect(page.locator(".lead")).to_contain_text("kip over 4 partitions")
    page.reload()
    expect(page.locator(".lead")).to_contain_text("kip over 4 partitions")
    page.get_by_role("button", name="Forget token").click()
    expect(alert).to_have_text("This service wants to know who asks.")
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [0, 0, ""]
