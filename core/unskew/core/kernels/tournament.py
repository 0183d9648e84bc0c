"""The least loaded worker at any time: a tournament tree of the workers by load.

A row plays only the matches again that its worker had won: about two.
"""

from __future__ import annotations

from unskew.core.arrays.types import I64
from unskew.core.kernels.base import Int, inner, kernel

__all__ = ["build_tree", "update_tree"]


@inner
def less_loaded(load: I64, first: int, second: int) -> Int:
    """The less loaded of two workers, the first on ties; -1 stands for no worker."""
    return first if second < 0 or load[first] <= load[second] else second


@kernel
def build_tree(load: I64, tree: I64) -> None:
    """Play all matches: ``tree[1]`` is then the least loaded worker, the lowest on ties. Leaves are set once."""
    for at in range(tree.shape[0] // 2 - 1, 0, -1):
        tree[at] = less_loaded(load, tree[2 * at], tree[2 * at + 1])


@inner
def update_tree(load: I64, tree: I64, worker: int) -> None:
    """After one more row for this worker: play the matches again that it had won."""
    at = (tree.shape[0] // 2 + worker) >> 1
    while at > 0 and tree[at] == worker:
        tree[at] = less_loaded(load, tree[2 * at], tree[2 * at + 1])
        at >>= 1
