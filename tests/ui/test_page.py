"""The web page in a real browser, over a service through which a run was played: what it shows is what the API says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.doses import some_of
from tests.service.processes import Process
from tests.ui.conftest import BATCHES, Opened, played
from tests.ui.drawn import bars, colour, mean_line, settled
from tests.ui.play import AGENTS, BY_HASH, BY_UNSKEW, SOURCE, hot_name
from unskew.client import Client
from unskew.core import Histogram, hash_keys
from unskew.core.stream_spec import BatchWork, Part, Work

pytestmark = pytest.mark.xdist_group("ui")

STREAM = "/#/streams/demo%2Fby-unskew"
HASH = "/#/streams/demo%2Fby-hash"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Client]]:
    with played(tmp_path_factory.mktemp("service") / "run") as made:
        _ended(made[0].url(""))
        yield made


def _ended(base: str) -> None:
    """Until the last round is merged: some of its agents do not come again, so its deadline has to pass."""
    end = time.monotonic() + 120.0
    while sum(one["reports"] for one in overview(base)["rounds"]) < AGENTS * BATCHES:
        assert time.monotonic() < end, "the last round is still open"
        time.sleep(0.1)


@pytest.fixture
def base(run: tuple[Process, Client]) -> str:
    return run[0].url("")


def overview(base: str, stream: str = BY_UNSKEW) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(
        f"{base}/v1/streams/{stream.replace('/', '%2F')}/overview", trust_env=False, timeout=60
    ).json()
    return found


def table(page: Page, name: str) -> list[list[str]]:
    """All pages of a table, by its caption."""
    region = page.get_by_role("group", name=name, exact=True)
    following = page.get_by_role("navigation", name=f"Pages of: {name}").get_by_role("button", name="Next")
    expect(region.locator("tbody tr").first).to_be_visible()
    found: list[list[str]] = []
    while True:
        cells = "rows => rows.map(row => [...row.cells].map(at => at.textContent))"
        found += region.locator("tbody tr").evaluate_all(cells)
        if not following.is_visible() or following.is_disabled():
            return found
        following.click()


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# -- what it shows


def test_the_list_has_both_streams_of_the_run_with_their_imbalance(opened: Opened, base: str) -> None:
    """As the API says; each leads to a page of its own."""
    shown = opened(base)
    page = shown.open()
    expect(page.locator("tbody tr")).to_have_count(2)
    listed = httpx.get(f"{base}/v1/overview", trust_env=False, timeout=60).json()["streams"]
    expected = [
        [
            one["stream"]["name"],
            one["stream"]["spec"]["policy"],
            "16",
            f"v{one['stream']['version'].split('.')[1]}",
            *(f"{one[which]:.2f}" for which in ("by_hash", "planned", "observed")),
            str(one["stream"]["agents"]),
        ]
        for one in listed
    ]
    assert [row[0] for row in expected] == [BY_HASH, BY_UNSKEW]
    assert table(page, "Streams") == expected
    shown.shot("list-light")
    page.get_by_label("Filter").fill("UNSK")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name=BY_UNSKEW).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(BY_UNSKEW)
    assert page.url.endswith(STREAM)
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")


@pytest.mark.parametrize("stream", some_of([BY_HASH, BY_UNSKEW], BY_UNSKEW))
def test_the_bars_are_the_numbers_of_the_api(opened: Opened, base: str, stream: str) -> None:
    """In the table below them to the row; in height, over the mean of each, to a pixel; in colour on the screen."""
    page = opened(base).open(f"/#/streams/{stream.replace('/', '%2F')}")
    settled(page)
    found = overview(base, stream)
    loads = {
        "hash": found["expected"]["by_hash"],
        "plan": found["expected"]["by_plan"],
        "observed": found["observed"]["loads"],
    }
    page.get_by_text("The loads as a table").click()
    rows = [[cell.replace(",", "") for cell in row] for row in table(page, "Rows per partition")]
    assert rows == [[str(at), *(str(loads[name][at]) for name in loads)] for at in range(16)]
    for name, values in loads.items():
        drawn, unit = bars(page, name), bars(page, name)[0].base - mean_line(page)
        heights = [bar.height / unit for bar in drawn]
        over = [load * len(values) / sum(values) for load in values]
        assert heights == pytest.approx(over, abs=1.5 / unit)
    _check_colours(page)


def _check_colours(page: Page) -> None:
    """The highest bar of plain hashing is where its path says: its colour up to its top, the card's above it."""
    picture = page.screenshot()
    box = page.locator(".bars svg").bounding_box()
    assert box is not None
    for name in ("hash", "plan"):
        fill = page.locator(f"path.series.{name}").evaluate("path => getComputedStyle(path).fill")
        wanted = tuple(int(part) for part in fill.removeprefix("rgb(").removesuffix(")").split(","))
        bar = max(bars(page, name), key=lambda one: one.height)
        x = box["x"] + bar.left + bar.width / 2
        assert colour(picture, x, box["y"] + bar.base - 3) == wanted
        assert colour(picture, x, box["y"] + bar.top - 4) != wanted
        if bar.height > 30:
            assert colour(picture, x, box["y"] + bar.top + 3) == wanted


def test_the_figures_hot_keys_and_history_are_those_of_the_api(opened: Opened, base: str) -> None:
    """Imbalance three ways, the heaviest keys first with their places, plans, batches and rounds, the latest first."""
    page = opened(base).open(STREAM)
    settled(page)
    found = overview(base)
    figures = page.locator(".tile .figure").all_text_contents()
    by = found["expected"]
    expected = (by["hash_imbalance"], by["plan_imbalance"], found["observed"]["imbalance"])
    assert figures[:3] == [f"{value:.2f}" for value in expected]
    assert expected[0] > 3.0 > 1.2 > expected[1]
    scale = httpx.get(f"{base}/v1/streams/demo%2Fby-unskew/scale", trust_env=False, timeout=60).json()
    assert f"{scale['reduce_tasks']} reduce" in figures[3]
    assert scale["reason"] in page.locator(".tile").nth(3).text_content()
    assert figures[4] == f"{found['stream']['agents']} agents" != "0 agents"
    advised = found["plans"][-1]
    assert advised["way"] in ("hash", "previous", "last", "same")
    expect(page.locator(".way")).to_have_text(f"Way advised: {advised['way']}. {sentence(advised['way_reason'])}")
    keys = table(page, "Hot keys")
    assert [row[0] for row in keys] == [key["hash"] for key in found["plan"]["hot"]]
    assert str(int(hash_keys([hot_name(5)])[0])) in {row[0] for row in keys}
    first = found["plan"]["hot"][0]
    assert keys[0][3].startswith(f"{first['fragments'][0]['partition']} (")
    assert keys[0][4] == first["reason"]
    for name, kind, column in (("Plans", "plans", 1), ("Batches", "batches", 1), ("Rounds", "rounds", 1)):
        page.get_by_text(f"{name} as a table").click()
        rows = table(page, f"{name}, the latest first")
        assert len(rows) == len(found[kind]) > 3
        said = {"plans": f"v{found['plans'][-1]['version'].split('.')[1]}", "batches": "5"}
        assert rows[0][column] == said.get(kind, str(found["rounds"][-1]["epoch"]))
    assert page.locator(".lines path.line").count() == 4


def test_it_explains_a_key_and_a_hash(opened: Opened, base: str) -> None:
    """The same as the API, typed as the stream's columns are or as a hash; what cannot be is told in words."""
    shown = opened(base)
    page = shown.open(STREAM)
    settled(page)
    answer = page.locator(".answer")
    page.get_by_label("Key (string)").fill(hot_name(5))
    page.get_by_role("button", name="Explain", exact=True).click()
    known = httpx.post(
        f"{base}/v1/streams/demo%2Fby-unskew/explain", json={"key": [hot_name(5)]}, trust_env=False, timeout=60
    ).json()
    expect(answer).to_contain_text(f"split over {len(known['fragments'])} partitions")
    expect(answer).to_contain_text(known["hash"])
    expect(answer).to_contain_text(known["reason"][1:])
    page.get_by_label("Key (string)").fill("otter-17")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("Not a hot key.")
    page.get_by_label("hash", exact=True).check()
    page.get_by_label("Hash: what").fill(known["hash"])
    page.keyboard.press("Enter")
    expect(answer).to_contain_text(f"split over {len(known['fragments'])} partitions")
    shown.expected = lambda _at, said: "422" in said  # the browser writes a line of its own for each of these
    page.get_by_label("Hash: what").fill("badger")
    page.keyboard.press("Enter")
    expect(answer.locator(".wrong")).to_contain_text("hash")
    hot = page.get_by_role("group", name="Hot keys").get_by_role("button").first
    hot.click()
    expect(answer).to_contain_text(hot.text_content() or "")


def test_it_follows_what_happens_without_being_asked(opened: Opened, base: str, run: tuple[Process, Client]) -> None:
    """A stream is planned for and reported to while its page is open."""
    _, client = run
    client.put_stream("late", partitions=8, policy="kip")
    try:
        page = opened(base).open("/#/streams/late")
        expect(page.locator(".lead")).to_contain_text("no plan yet")
        histogram = Histogram.from_counts(hash_keys(list(range(100))), [5000, *[50] * 99])
        plan = client.build_plan("late", histogram=histogram).plan
        expect(page.locator(".lead")).to_contain_text("plan v1")
        client.report_batch("late", Part(SOURCE, 1), BatchWork((Work(0, 300), Work(7, 100))), plan.version)
        expect(page.locator(".tile .figure").nth(2)).to_have_text("6.00")
    finally:
        client.delete_stream("late")


def test_a_stream_that_is_not_there_is_said_to_be_none(opened: Opened, base: str) -> None:
    """And the way back is there."""
    shown = opened(base)
    shown.expected = lambda _at, said: "404" in said
    page = shown.open("/#/streams/nobody")
    expect(page.get_by_role("status").first).to_contain_text("no stream 'nobody'")
    page.get_by_role("link", name="All streams").click()
    expect(page.locator("tbody tr")).to_have_count(2)


# -- for everybody


@pytest.mark.parametrize("scheme", some_of(["light", "dark"], "dark"))
def test_the_rules_of_accessibility_hold(opened: Opened, base: str, scheme: str) -> None:
    """axe-core finds nothing: in the list, and in a stream with everything open, in the browser's theme."""
    shown = opened(base, scheme)
    page = shown.open()
    expect(page.locator("tbody tr")).to_have_count(2)
    _check_axe(page)
    page = shown.open(STREAM)
    settled(page)
    for name in ("The loads", "Plans", "Batches", "Rounds"):
        page.get_by_text(f"{name} as a table").click()
    page.get_by_label("Key (string)").fill(hot_name(5))
    page.keyboard.press("Enter")
    expect(page.locator(".answer .where")).to_be_visible()
    _check_axe(page)
    shown.shot(f"stream-{scheme}")


def _check_axe(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_theme_that_was_chosen_stays(opened: Opened, base: str) -> None:
    """Against what the browser prefers, and over a reload."""
    page = opened(base, "light").open()
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    button = page.get_by_role("button", name="Theme")
    for said in ("light", "dark"):
        button.click()
        expect(button).to_have_text(f"Theme: {said}")
    assert page.evaluate(paper) != light
    page.reload()
    assert page.evaluate(paper) != light
    button.click()
    expect(button).to_have_text("Theme: system")
    assert page.evaluate(paper) == light


def test_all_of_it_can_be_done_by_keyboard(opened: Opened, base: str) -> None:
    """From the address bar on with Tab: each stop is visible, and every part is reached in the order it is read."""
    page = opened(base).open()
    expect(page.locator("tbody tr")).to_have_count(2)
    header = ["Skip to the content", "unskew", "Theme: system"]
    assert [_stop(page) for _ in range(6)] == [*header, "filter", "Streams", BY_HASH]
    assert _stop(page) == BY_UNSKEW
    page.keyboard.press("Enter")
    settled(page)
    assert page.evaluate("document.activeElement.textContent") == BY_UNSKEW, "the focus goes to the new page's heading"
    assert _stop(page) == "Load per partition: use the arrow keys"
    _check_slider(page)
    assert _stop(page) == "The loads as a table"
    page.keyboard.press("Enter")
    expect(page.get_by_role("group", name="Rows per partition")).to_be_visible()
    stops = list(iter(lambda: _stop(page), ""))
    for part in ("Hot keys", "by", "column-0", "Explain", "Plans as a table", "Rounds as a table"):
        assert part in stops, stops
    assert stops.index("Hot keys") < stops.index("column-0") < stops.index("Plans as a table")


def _check_slider(page: Page) -> None:
    """Arrow keys walk along the partitions; what each has is its value in words."""
    slider = page.get_by_role("slider")
    hash_loads = overview(page.url.partition("/#")[0])["expected"]["by_hash"]
    for keys, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 15), ("ArrowUp", 15), ("Home", 0)):
        page.keyboard.press(keys)
        expect(slider).to_have_attribute("aria-valuenow", str(at))
        assert f"Partition {at}: hash {hash_loads[at]:,}, plan " in (slider.get_attribute("aria-valuetext") or "")
    expect(page.locator(".told")).to_contain_text("Partition 0: hash")


def _stop(page: Page) -> str:
    """What Tab leads to, by its name, empty at the end; that it is to be seen there is looked at."""
    page.keyboard.press("Tab")
    name, style, width = page.evaluate(
        """() => { const at = document.activeElement, style = getComputedStyle(at);
           if (at === document.body) return ["", "end", 1];
           return [at.getAttribute("aria-label") || at.textContent || at.id || at.name, style.outlineStyle,
                   parseFloat(style.outlineWidth)] }"""
    )
    assert style != "none", f"nobody sees that {name!r} has the focus"
    assert width >= 1.0, name
    return str(name).strip()


def test_it_fits_a_narrow_window(opened: Opened, base: str) -> None:
    """Nothing is wider than the window; wide tables scroll in themselves."""
    page = opened(base, width=390).open(STREAM)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
