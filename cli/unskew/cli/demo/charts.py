"""The report's charts, as SVG inside the page, in the page's own colours for light and dark mode.

matplotlib draws in colours that stand for a role; in the SVG each becomes a CSS variable of the page. Metadata and XML
namespaces are removed: a browser does not need them inside a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from unskew.core.dalton.qtable import UNTRIED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unskew.core.dalton.qtable import QTable
    from unskew.spark.demo import DemoBatch, Outcome

__all__ = ["dsync", "imbalance", "loads", "q_table", "times"]

_ROLES = {"ink": "#010101", "faint": "#020202", "line": "#030303", "hash": "#040404", "unskew": "#050505"}
_ROLES |= {"agents": "#060606", "page": "#070707"}
INK, FAINT, LINE, HASH, UNSKEW, AGENTS, PAGE = _ROLES.values()
_STYLE: Any = {
    "font.size": 10.5,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "axes.facecolor": "none",
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
_WIDE = 9.2
_FEW = 24  # batches up to which bars stand side by side
_KEYS = 8  # rows of the Q-table that are shown


def loads(batch: DemoBatch) -> str:
    """Rows of each partition, both arms."""

    def draw(axes: Axes) -> None:
        at = np.arange(len(batch.hash.loads))
        fair = sum(batch.hash.loads) / len(at)
        axes.bar(at - 0.2, batch.hash.loads, 0.38, color=HASH, label="hash")
        axes.bar(at + 0.2, batch.unskew.loads, 0.38, color=UNSKEW, label="unskew")
        axes.axhline(fair, color=INK, lw=1.0, ls=(0, (4, 3)), label="fair share")
        axes.set_xticks(at)
        axes.set_xlabel("partition")
        axes.set_ylabel("rows")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows:,.0f}"))

    return _svg_of("loads", draw, 3.2)


def times(outcome: Outcome) -> str:
    """Seconds of each batch, both arms; the full colour is the longest task, the pale one the rest."""

    def draw(axes: Axes) -> None:
        at = np.arange(len(outcome.batches))
        for arm, colour, side in (("hash", HASH, -0.2), ("unskew", UNSKEW, 0.2)):
            seconds = [ran.seconds for ran in outcome.of(arm)]
            if len(at) <= _FEW:
                axes.bar(at + side, seconds, 0.38, color=colour, alpha=0.4, lw=0)
                axes.bar(at + side, [ran.longest for ran in outcome.of(arm)], 0.38, color=colour, label=arm)
            else:
                axes.plot(at, seconds, color=colour, lw=2, label=arm)
        _shade_unplanned(axes, outcome)
        axes.set_ylabel("seconds")

    return _svg_of("times", draw, 3.0)


def imbalance(outcome: Outcome) -> str:
    """The fullest partition over its fair share, batch by batch; the agents beside the arms."""

    def draw(axes: Axes) -> None:
        at = [batch.number for batch in outcome.batches]
        series = (
            ("hash", HASH, [ran.imbalance for ran in outcome.of("hash")], "-"),
            ("unskew, by plan", UNSKEW, [ran.imbalance for ran in outcome.of("unskew")], "-"),
            ("unskew, learning agents", AGENTS, [batch.learned for batch in outcome.batches], (0, (5, 2))),
        )
        for label, colour, values, dashes in series:
            axes.plot(at, values, color=colour, lw=2, ls=dashes, marker="o", ms=4.5, label=label)
        axes.axhline(1.0, color=INK, lw=1.0, ls=(0, (4, 3)))
        axes.set_ylim(bottom=0)
        _shade_unplanned(axes, outcome)
        axes.set_ylabel("fullest / fair share")

    return _svg_of("imbalance", draw, 3.0)


def dsync(outcome: Outcome) -> str:
    """The agents' interval after each round; dotted lines where batches with other hot keys begin."""

    def draw(axes: Axes) -> None:
        at = [each.at for each in outcome.rounds]
        axes.step(at, [each.dsync for each in outcome.rounds], where="post", color=AGENTS, lw=2)
        axes.plot(at, [each.dsync for each in outcome.rounds], ls="", marker="o", ms=2.5, color=AGENTS)
        for batch in outcome.batches:
            if batch.changed:
                axes.axvline(batch.began, color=FAINT, lw=1, ls=(0, (1, 2)))
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("seconds since the first batch")
        axes.set_ylabel("DSYNC, seconds")

    return _svg_of("dsync", draw, 2.5, legend=False)


def q_table(table: QTable, named: Callable[[int], str]) -> str:
    """The Q-values of the hottest keys' partitions; shaded where the partition holds rows of the key."""
    top = np.argsort(-table.rows, kind="stable")[:_KEYS]
    values, held = table.values[top], table.held[top]

    def draw(axes: Axes) -> None:
        for row, worths in enumerate(values):
            for partition, worth in enumerate(worths):
                if held[row, partition]:
                    axes.barh(row, 0.94, 0.9, left=partition - 0.47, color=AGENTS, alpha=0.25, lw=0)
                text = "·" if worth <= UNTRIED else f"{worth:.2f}"
                axes.text(partition, row, text, ha="center", va="center", fontsize=9, color=INK)
        axes.set_yticks(range(len(top)), [named(int(table.hashes[at])) for at in top])
        axes.set_xticks(range(values.shape[1]))
        axes.set_xlim(-0.6, values.shape[1] - 0.4)
        axes.set_ylim(len(top) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("partition")

    return _svg_of("q", draw, 0.75 + 0.34 * len(top), legend=False)


def _shade_unplanned(axes: Axes, outcome: Outcome) -> None:
    """Shade the batches whose hot keys were in no plan yet."""
    label: str | None = "hot keys not known yet"
    for batch in outcome.batches:
        if not batch.known:
            axes.axvspan(batch.number - 0.5, batch.number + 0.5, color=FAINT, alpha=0.14, lw=0, zorder=0, label=label)
            label = None
    axes.set_xlim(-0.6, len(outcome.batches) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=24))
    axes.set_xlabel("batch")


def _svg_of(name: str, draw: Callable[[Axes], None], height: float, *, legend: bool = True) -> str:
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(_WIDE, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        if legend:
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, handlelength=1.4, borderaxespad=0.2)
        out = StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline_svg(out.getvalue(), name)


def _inline_svg(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r' id="[a-zA-Z0-9.]+_\d+"', "", svg)  # groups: not referred to, and charts share the names
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{name}"', svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for role, colour in _ROLES.items():
        svg = svg.replace(colour, f"var(--{role})")
    return svg
