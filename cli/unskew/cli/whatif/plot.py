"""Draws a replay: the load of each partition, hash beside each policy, and the imbalance from batch to batch.

The loads are those of the batch in which the best policy has its median imbalance, a typical one for it. (The batch of
hash's median could be one in which the policy does unusually well.)
Loads are in multiples of the partition's fair share, so that 1 is perfect with and without weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.cli.errors import MissingExtraError
from unskew.cli.whatif.results import best_policies
from unskew.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unskew.cli.whatif.key_file import Keys
    from unskew.cli.whatif.measure import RoutedBatch
    from unskew.cli.whatif.results import PolicyResult, Replay

__all__ = ["check_plot", "draw"]

FORMATS = ("png", "svg", "pdf")
INK, FAINT, PLAIN = "#2b2f36", "#8a919c", "#c3c8d0"
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31", "#4d9221", "#b2182b",
)  # fmt: skip
_DASHES = ("-", "--", ":")  # for policies beyond the colours
_STYLE: Any = {
    "font.size": 10,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), FAINT),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    "text.parse_math": False,  # a column may be called "$price$"
    "svg.hashsalt": "unskew",
}
_LINES_FROM = 4  # counted batches; with fewer, lines lie on top of each other: markers side by side
_PAIRS_UP_TO = 48  # partitions; with more, side by side bars are too thin: hash is drawn behind the policy


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn."""
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise ConfigError("--plot", str(path), f"a file name ending in .{', .'.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "--plot needs matplotlib, which is not installed; pip install 'unskew[cli]', or '.[cli]' in a clone"
        )


def draw(keys: Keys, result: Replay, kind: str) -> bytes:
    """The picture as the bytes of a file of this kind."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    policies = [p for p in result.results if p.label != "hash"] or list(result.results)
    columns = min(len(policies), 2 if len(policies) <= 4 else 3)
    rows, lines = -(-len(policies) // columns), len(result.counted) > 1
    heights = [2.5] * rows + [2.9] * lines
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a file's name in another script: boxes in the title
        figure = Figure(figsize=(11, sum(heights) + 0.9), layout="constrained")
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        panels = [figure.add_subplot(grid[divmod(i, columns)]) for i in range(len(policies))]
        by = best_policies(policies)[0]
        shown = _typical(by)
        _load_panels(panels, result, policies, shown)
        if lines:
            _imbalance_panel(figure.add_subplot(grid[rows, :]), result, policies)
        figure.suptitle(_title(keys, result, by, shown), x=0.012, ha="left", fontsize=11)
        out = BytesIO()
        figure.savefig(out, format=kind.lower(), dpi=130)
    return out.getvalue()


def _title(keys: Keys, result: Replay, by: PolicyResult, shown: int) -> str:
    title = f"{keys.name}: load of {result.job.partitions} partitions"
    if len(result.batch_rows) == 1:
        return f"{title}, {result.batch_rows[0]:,} rows"
    which = f"batch {shown} (of 0 to {len(result.batch_rows) - 1}), {result.batch_rows[shown]:,} rows"
    if len(result.counted) == 1:
        return f"{title}\n{which}: the only one that is counted"
    half = "" if len(result.counted) % 2 else "upper "
    hashed = "" if by.label == "hash" else f"; hash's own median is {result.hash_imbalance:.2f}"
    return f"{title}\n{which}: where {by.label}, the best here, has its {half}median imbalance{hashed}"


def _typical(policy: PolicyResult) -> int:
    """The batch in which this policy has its median imbalance; of two in the middle the worse."""
    ordered = sorted((batch.routed.imbalance, batch.number) for batch in policy.batches)
    return ordered[len(ordered) // 2][1]


def _shares(result: Replay, routed: RoutedBatch) -> NDArray[np.float64]:
    weights = np.ones(result.job.partitions) if result.job.weights is None else np.array(result.job.weights)
    fair = sum(routed.loads) * weights / weights.sum()
    return np.asarray(np.array(routed.loads) / fair, np.float64)


def _load_panels(panels: Sequence[Axes], result: Replay, policies: Sequence[PolicyResult], shown: int) -> None:
    plain = _shares(result, result.hash[shown])
    loads = [_shares(result, p.batches[shown - result.counted[0]].routed) for p in policies]
    top = 1.18 * max(1.2, plain.max(), *(load.max() for load in loads))
    for number, (panel, policy, load) in enumerate(zip(panels, policies, loads, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        _bars(panel, plain, load, policy.label, colour)
        panel.axhline(1.0, color=INK, lw=0.8, ls=(0, (4, 3)), zorder=3)
        panel.set_ylim(0, top)
        hashed = "" if policy.label == "hash" else f", hash {plain.max():.2f}"
        panel.set_title(f"{policy.label}: fullest {load.max():.2f}{hashed}")
        panel.set_xlabel("partition")
        panel.legend(frameon=False, loc="upper right", ncols=2, handlelength=1.0)
    for panel in panels:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]  # every panel is in a grid
            panel.set_ylabel("load / fair share")


def _bars(panel: Axes, plain: NDArray[np.float64], load: NDArray[np.float64], name: str, colour: str) -> None:
    from matplotlib.ticker import MaxNLocator

    n = len(plain)
    edges = np.arange(n + 1) - 0.5
    if n > _PAIRS_UP_TO:
        panel.stairs(plain, edges, fill=True, color=PLAIN, label="hash")
        if name != "hash":
            panel.stairs(load, edges, color=colour, lw=1.4, baseline=None, label=name)
    elif name == "hash":
        panel.bar(np.arange(n), plain, 0.8, color=PLAIN, label=name)
    else:
        panel.bar(np.arange(n) - 0.21, plain, 0.4, color=PLAIN, label="hash")
        panel.bar(np.arange(n) + 0.21, load, 0.4, color=colour, label=name)
    panel.set_xlim(-0.8, n - 0.2)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 4, 5, 10]))


def _imbalance_panel(panel: Axes, result: Replay, policies: Sequence[PolicyResult]) -> None:
    """Hash over all counted batches, each policy over the same."""
    from matplotlib.ticker import MaxNLocator

    counted = np.array(result.counted)
    others = [policy for policy in policies if policy.label != "hash"]
    for number, policy in enumerate((None, *others)):
        routed = [result.hash[batch] for batch in counted] if policy is None else [b.routed for b in policy.batches]
        lines = len(counted) >= _LINES_FROM
        beside = 0.0 if lines else 0.06 * (number - len(others) / 2)
        panel.plot(
            counted + beside,
            [each.imbalance for each in routed],
            color=FAINT if policy is None else COLOURS[(number - 1) % len(COLOURS)],
            lw=max(2.6 - 0.2 * number, 1.2) if lines else 0,
            ls=_DASHES[max(number - 1, 0) // len(COLOURS) % len(_DASHES)],
            marker="o",
            ms=3.5 if lines else 6,
            label="hash" if policy is None else policy.label,
        )
    panel.axhline(1.0, color=INK, lw=0.8, ls=(0, (4, 3)))
    panel.set_ylim(bottom=0)
    panel.set_title("imbalance of every batch (fullest partition / its fair share)")
    panel.set_xlabel("batch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(counted) < _LINES_FROM:
        panel.set_xlim(counted[0] - 0.5, counted[-1] + 0.5)
    panel.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.005, 1.0))
