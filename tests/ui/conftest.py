"""A real headless Chromium, one for each file of tests, and pages in it that are watched from their first request.

Nothing is faked: the service is a process of its own. What no page may do is looked at after every test, whatever it is
about: ask another host for anything, write an error to the console, throw. The browser itself writes a line for every
answer that is no success; a test that brings some about says so (``Watched.expected``).

The browser is of a file and not of the session: while it runs, Playwright's event loop does too, in this thread, and
tests of other folders that the same worker runs have loops of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from tests.service.processes import Process, process
from tests.ui.play import play
from unskew.client import Client

ROOT = Path(__file__).resolve().parents[2]
SHOTS = Path(os.environ.get("UNSKEW_SHOTS") or ROOT / "tests-artefacts" / "ui")
"""Where pictures of the page are left, to be looked at."""
BATCHES = 6
LONG = 60_000.0
"""Milliseconds that something has to come within, on a machine with other work."""
expect.set_options(timeout=LONG)


def _chromium() -> str:
    """Its path. Where there is none the tests are skipped, but not in CI, which is there to run them."""
    found = subprocess.run(["bash", ROOT / "tools" / "chromium.sh"], capture_output=True, text=True, timeout=600)
    if found.returncode == 0:
        return found.stdout.strip()
    if os.environ.get("CI"):
        pytest.fail(found.stderr.strip())
    pytest.skip(found.stderr.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = _chromium()
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=alone)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, what it asked for and what it complained of. ``expected`` says of a complaint whether it may be."""

    page: Page
    base: str
    outside: list[str] = field(default_factory=list)
    complaints: list[tuple[float, str]] = field(default_factory=list)
    expected: Callable[[float, str], bool] = lambda _at, _said: False

    def watch(self, context: BrowserContext) -> None:
        context.route("**/*", self._asked)
        self.page.on("console", self._said)
        self.page.on("pageerror", self._threw)

    def _asked(self, route: Route, request: Request) -> None:
        if urlsplit(request.url).netloc == urlsplit(self.base).netloc:
            route.continue_()
        else:
            self.outside.append(request.url)
            route.abort()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append((time.monotonic(), message.text))

    def _threw(self, error: Error) -> None:
        self.complaints.append((time.monotonic(), f"threw {error}"))

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.base + path)
        return self.page

    def shot(self, name: str, *, full: bool = True) -> bytes:
        SHOTS.mkdir(parents=True, exist_ok=True)
        return self.page.screenshot(path=SHOTS / f"{name}.png", full_page=full)

    def check(self) -> None:
        assert self.outside == []
        assert [said for at, said in self.complaints if not self.expected(at, said)] == []


Opened = Callable[..., Watched]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Makes pages, each with a session of its own; all that they did is looked at in the end."""
    pages: list[Watched] = []

    def make(base: str, scheme: str = "light", width: int = 1280) -> Watched:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        context.set_default_timeout(LONG)
        page = Watched(context.new_page(), base)
        page.watch(context)
        pages.append(page)
        return page

    yield make
    for page in pages:
        page.page.context.close()
    for page in pages:
        page.check()


@contextmanager
def played(folder: Path, *flags: str, batches: int = BATCHES) -> Iterator[tuple[Process, Client]]:
    """A service through which a run has been played, and a client of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with process(folder, *flags) as service, Client(f"grpc://127.0.0.1:{service.grpc}", timeout=60.0) as client:
        play(client, batches)
        yield service, client
