"""Draw docs/pictures/before-after.svg, the README's picture, from a run of the demo: a batch, task by task.

    JAVA_HOME=$(bash tools/java.sh) python tools/before_after.py

The batch is the last one whose hot key the plan knew. Plain SVG by hand: text stays text, and is readable on light and
on dark pages.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from unskew.spark.demo import Demo, DemoBatch, Step, play
from unskew.spark.demo.work import MeasuredRun

OUT = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "before-after.svg"
WIDTH, BAR, GAP, LEFT, TOP = 860, 9, 3, 16, 62
HASH, UNSKEW, INK = "#d9822b", "#0f8b8d", "#8a8f98"
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#57606a}"
    ".head{font-size:17px;font-weight:600;fill:#24292f}.note{font-size:13px}"
    "@media (prefers-color-scheme:dark){text{fill:#9198a1}.head{fill:#f0f6fc}}"
)


class Quiet:
    """Watches nothing but which batch is done."""

    def phase(self, what: str) -> None:
        print(what)

    def page(self, address: str) -> None:
        print(address)

    def running(self, step: Step) -> None:
        print(step)

    def done(self, batch: DemoBatch) -> None:
        print(f"batch {batch.number}: {batch.hash.seconds:.2f} s, {batch.unskew.seconds:.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = play(Demo(), Path(folder), Quiet())
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(drawn(outcome.planned[-1]), "utf-8")
    print(OUT)


def drawn(batch: DemoBatch) -> str:
    tasks = len(batch.hash.tasks)
    height = len(batch.hash.tasks) * (BAR + GAP)
    most = max(*batch.hash.tasks, batch.hash.seconds)
    below = TOP + height + 74
    whole = below + height + 16
    said = (
        f"{tasks} tasks of one micro-batch, a bar each. By hash one task works {batch.hash.longest:.1f} s and the "
        f"others wait; with unskew the longest works {batch.unskew.longest:.1f} s."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" role="img" aria-label="{said}">',
        f"<style>{STYLE}</style>",
        *_panel("Before: repartition(n, key)", batch.hash, HASH, most, TOP),
        *_panel("After: the same rows, work and slots, by unskew's plan", batch.unskew, UNSKEW, most, below),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(title: str, ran: MeasuredRun, colour: str, most: float, top: int) -> list[str]:
    scale = (WIDTH - 2 * LEFT) / most
    end = LEFT + ran.seconds * scale
    height = len(ran.tasks) * (BAR + GAP)
    anchor = "end" if end > WIDTH / 2 else "start"
    bars = [
        f'<rect x="{LEFT}" y="{top + at * (BAR + GAP)}" width="{max(seconds * scale, 1):.1f}" height="{BAR}" rx="2" '
        f'fill="{colour}"/>'
        for at, seconds in enumerate(ran.tasks)
    ]
    return [
        f'<text class="head" x="{LEFT}" y="{top - 34}">{title}</text>',
        f'<text class="note" x="{LEFT}" y="{top - 13}">the fullest task has {ran.imbalance:.1f} times its share; the '
        f"batch took {ran.seconds:.1f} s</text>",
        *bars,
        f'<line x1="{end:.1f}" x2="{end:.1f}" y1="{top - 6}" y2="{top + height}" stroke="{INK}" '
        'stroke-dasharray="4 3"/>',
        f'<text class="note" x="{end + (-6 if anchor == "end" else 6):.1f}" y="{top + height - 6}" '
        f'text-anchor="{anchor}">{ran.seconds:.1f} s</text>',
    ]


if __name__ == "__main__":
    main()
