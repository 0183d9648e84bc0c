"""Draw the map of the house: rooms (folders) and doors (imports), read from the import graph.

``python -m tools.house_map`` writes docs/pictures/house.svg; ``--check`` says whether it is up to date. A room stands
above the rooms that it imports. Only the doors that do not follow from others are drawn: where a imports b and b
imports c, the door from a to c is left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "house.svg"
FLOORS = (("cli",), ("spark",), ("service",), ("client", "simulate", "wire", "v1"), ("core",))
EVERYWHERE = {"errors", "version", "limits"}  # imported by all: a door to them says nothing
HOMES = {
    "cli": "cli", "spark": "spark_integration", "service": "service", "client": "client", "simulate": "simulate",
    "wire": "core", "v1": "proto", "core": "core",
}  # fmt: skip
WORDS = {
    "cli": "the unskew command", "spark": "adapts: everything that touches pyspark", "service": "acts: gRPC and HTTP",
    "client": "acts: the light client", "simulate": "replays for whatif and demo", "wire": "messages to values",
    "v1": "names: the contract", "core": "decides: pure, numpy in and out",
}  # fmt: skip
WIDE, ROOM, HIGH, GAP, STEP = 1240, 128, 40, 24, 74
Graph = dict[str, set[str]]


def rooms_of(portion: str) -> tuple[dict[str, int], Graph, dict[str, int]]:
    """Of a portion: modules in each room, doors between its rooms, and imports of other portions."""
    folder = ROOT / HOMES[portion] / "unskew" / portion
    sizes: dict[str, int] = {}
    doors: Graph = {}
    outward: dict[str, int] = {}
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        room = inside.parts[0] if len(inside.parts) > 1 else path.stem
        if room in EVERYWHERE or room.startswith("__") or path.stem.endswith(("_pb2", "_pb2_grpc")):
            continue
        sizes[room] = sizes.get(room, 0) + (path.name != "__init__.py")
        doors.setdefault(room, set())
        for target in imports(path):
            if target[0] != portion:
                outward[target[0]] = outward.get(target[0], 0) + 1
            elif target[1] not in (room, *EVERYWHERE):
                doors[room].add(target[1])
    return sizes, doors, outward


def imports(path: Path) -> Iterable[tuple[str, ...]]:
    """What a module imports of ours when it is loaded, as parts behind ``unskew``."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unskew."):
            yield from ((*node.module.split(".")[1:], alias.name) for alias in node.names)


def levels(doors: Graph) -> dict[str, int]:
    """How far each room is above those that import nothing of the portion; rooms that import each other are level."""
    reach = reachable(doors)
    return {room: _level(room, doors, reach, {}) for room in doors}


def reachable(doors: Graph) -> Graph:
    """The rooms behind each room's doors, and behind theirs."""
    reach = {room: set(others) for room, others in doors.items()}
    for middle, behind in reach.items():
        for room in [room for room, others in reach.items() if middle in others]:
            reach[room].update(behind)
    return reach


def _level(room: str, doors: Graph, reach: Graph, known: dict[str, int]) -> int:
    if room not in known:
        group = {other for other in reach[room] if room in reach.get(other, set())} | {room}
        below = {other for member in group for other in doors[member]} - group
        known[room] = 1 + max((_level(other, doors, reach, known) for other in below), default=-1)
    return known[room]


def needed(doors: Graph) -> list[tuple[str, str]]:
    """The doors that do not follow from others."""
    reach = reachable(doors)
    return sorted(
        (room, other)
        for room, others in doors.items()
        for other in others
        if not any(other in reach[between] for between in others if between != other and room not in reach[between])
    )


class Panel:
    """A portion with its rooms, laid out from the left by level."""

    def __init__(self, portion: str, left: float, wide: float) -> None:
        self.portion, self.left, self.wide = portion, left, wide
        self.sizes, self.doors, self.outward = rooms_of(portion)
        folder = ROOT / HOMES[portion] / "unskew" / portion
        self.level = levels(self.doors) if any((folder / room).is_dir() for room in self.sizes) else {}
        self.floors = max(self.level.values(), default=0) + 1 if self.level else 0

    @property
    def high(self) -> float:
        return 52 + self.floors * STEP

    def places(self, top: float) -> dict[str, tuple[float, float]]:
        """The middle of each room's upper edge."""
        found = {}
        for level in range(self.floors):
            row = sorted(room for room, at in self.level.items() if at == level)
            step = self.wide / len(row) if row else 0
            for at, room in enumerate(row):
                found[room] = (self.left + (at + 0.5) * step, top + 48 + (self.floors - 1 - level) * STEP)
        return found

    def drawn(self, top: float) -> Iterable[str]:
        modules = sum(self.sizes.values())
        yield f'<rect class="house" x="{self.left}" y="{top}" width="{self.wide}" height="{self.high}" rx="10"/>'
        title = f'<tspan class="name">unskew.{self.portion}</tspan> {escape(WORDS[self.portion])}'
        count = f", {modules} modules" if modules and not self.floors else ""
        yield f'<text x="{self.left + 14}" y="{top + 22}">{title}{count}</text>'
        if self.outward:
            yield f'<text class="small" x="{self.left + 14}" y="{top + 39}">imports {self._outward()}</text>'
        places = self.places(top)
        for room, other in needed(self.doors) if self.floors else ():
            yield _door(places[room], places[other])
        for room, (x, y) in sorted(places.items()):
            yield f'<rect class="room" x="{x - ROOM / 2:.1f}" y="{y:.1f}" width="{ROOM}" height="{HIGH}" rx="6"/>'
            yield f'<text class="label" x="{x:.1f}" y="{y + 17:.1f}">{escape(room)}</text>'
            plural = "module" if self.sizes[room] == 1 else "modules"
            yield f'<text class="small middle" x="{x:.1f}" y="{y + 32:.1f}">{self.sizes[room]} {plural}</text>'

    def _outward(self) -> str:
        order = [portion for floor in FLOORS for portion in floor]
        return ", ".join(sorted(self.outward, key=order.index))


def _door(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:
        curve = f"Q{(x1 + x2) / 2:.1f} {y1 + HIGH + 18:.1f} {x2:.1f} {y2 + HIGH:.1f}"
    else:
        curve = f"C{x1:.1f} {y1 + HIGH + 16:.1f} {x2:.1f} {y2 - 18:.1f} {x2:.1f} {y2 - 2:.1f}"
    return f'<path class="door" d="M{x1:.1f} {y1 + HIGH:.1f} {curve}"/>'


STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.name { font-weight: 700 }
.label { font-weight: 600; text-anchor: middle }
.small { font-size: 11px; fill: #57606a }
.middle { text-anchor: middle }
.house { fill: #f6f8fa; stroke: #d0d7de }
.room { fill: #ffffff; stroke: #8c959f }
.door { fill: none; stroke: #0969da; stroke-opacity: .55; marker-end: url(#tip) }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9198a1 }
  .house { fill: #151b23; stroke: #3d444d }
  .room { fill: #212830; stroke: #656c76 }
  .door { stroke: #4493f8 }
}
"""


def picture() -> str:
    """The map as SVG."""
    body: list[str] = []
    top = 8.0
    for floor in FLOORS:
        wide = (WIDE - GAP * (len(floor) - 1)) / len(floor)
        left, panels = 0.0, []
        for portion in floor:
            panels.append(Panel(portion, round(left + 8, 1), round(wide, 1)))
            left += wide + GAP
        for panel in panels:
            body += panel.drawn(top)
        top += max(panel.high for panel in panels) + GAP
    marker = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE + 16} {top:.0f}" role="img">'
    title = "<title>The rooms of unskew and the doors between them</title>"
    tip = f'<defs>{marker}<path d="M0 0 8 4 0 8z" fill="#0969da"/></marker></defs>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", tip, *body, "</svg>", ""])


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        current = PICTURE.is_file() and PICTURE.read_text("utf-8") == picture()
        print("docs/pictures/house.svg is " + ("up to date" if current else "old; run `make reference`, then commit"))
        return 0 if current else 1
    PICTURE.write_text(picture(), "utf-8")
    print("wrote docs/pictures/house.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
