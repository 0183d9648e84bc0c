"""What is drawn, as numbers: the outlines of the bars, read from their paths, and colours, read from a picture."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from PIL import Image
from playwright.sync_api import Page, expect

__all__ = ["Bar", "bars", "colour", "mean_line", "settled"]

_BAR = re.compile(r"M([\d.]+),([\d.]+)V([\d.]+)h([\d.]+)V[\d.]+z")
_STEP = re.compile(r"V([\d.]+)H([\d.]+)")
_MARK = re.compile(r"M([\d.]+),([\d.]+)h([\d.]+)")


@dataclass(frozen=True)
class Bar:
    """In pixels of the chart; y grows downwards."""

    left: float
    width: float
    top: float
    base: float

    @property
    def height(self) -> float:
        return self.base - self.top


def bars(page: Page, name: str) -> list[Bar]:
    """The bars of one series, by partition, whichever way they are drawn."""
    path = page.locator(f"path.series.{name}").get_attribute("d") or ""
    base = float(page.locator(".bars line.base").get_attribute("y1") or 0)
    if name == "observed":
        return [Bar(float(x), float(width), float(y), base) for x, y, width in _MARK.findall(path)]
    if found := _BAR.findall(path):
        return [Bar(float(x), float(width), float(top), float(low)) for x, low, top, width in found]
    left, made = float(re.match(r"M([\d.]+)", path)[1]) if path else 0.0, []
    for top, right in _STEP.findall(path):
        made.append(Bar(left, float(right) - left, float(top), base))
        left = float(right)
    return made


def mean_line(page: Page) -> float:
    return float(page.locator(".bars line.mean").get_attribute("y1") or 0)


def colour(picture: bytes, x: float, y: float) -> tuple[int, ...]:
    with Image.open(io.BytesIO(picture)) as image:
        return image.convert("RGB").getpixel((round(x), round(y)))


def settled(page: Page) -> None:
    """Until a stream is shown."""
    page.wait_for_selector("path.series.plan[d^=M]", state="attached")
    expect(page.locator(".tile:nth-child(4) .figure")).not_to_have_text(re.compile("^–"))
