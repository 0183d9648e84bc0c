"""Key hashes against a loop over values: ``hash_keys`` and the xxhash package, side by side in one run.

Run ``python benchmarks/hashing.py [--rows N] [--rounds N]``. Each figure is nanoseconds a row, the best of the
rounds, which alternate between the two sides; the ratio is what counts. Three loops stand for what a user would
write: over ``column.to_pylist()``, over the column's scalars (``as_py``), and over a list of str he already has.
Targets: 3 times the ``to_pylist`` loop on distinct values, 15 times where 1 % are distinct.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from unskew.core.keys.hashing import hash_keys

SHAPES: dict[str, Callable[[int], str]] = {
    "16 bytes each": lambda i: f"user-{i:011d}",
    "6 to 11 bytes": lambda i: f"user-{i}",
    "36 bytes each": lambda i: f"{i * 2654435761 % 2**32:08x}-0000-4000-8000-{i:012x}",
    "70 to 110 bytes": lambda i: f"https://shop.example/items/{'x' * (i % 37)}{i}/details?session={i % 1000}&ref=1",
}


def loops(column: pa.Array, ready: list[str]) -> dict[str, Callable[[], list[int]]]:
    return {
        "to_pylist": lambda: [xxh64_intdigest(v.encode(), 42) for v in column.to_pylist()],
        "as_py": lambda: [xxh64_intdigest(v.as_py().encode(), 42) for v in column],
        "list": lambda: [xxh64_intdigest(v.encode(), 42) for v in ready],
    }


def best(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of ``rounds``, the works taking turns."""
    seconds = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    head = (
        f"{'keys':16} {'distinct':>8} {'given as':11} {'ns a row':>8} {'x to_pylist':>12} {'x as_py':>8} {'x list':>7}"
    )
    print(f"{asked.rows:,} rows, best of {asked.rounds}\n{head}")
    for shape, text in SHAPES.items():
        for share in (1.0, 0.01):
            compare(shape, text, share, asked.rows, asked.rounds)


def compare(shape: str, text: Callable[[int], str], share: float, rows: int, rounds: int) -> None:
    rng = np.random.default_rng(7)
    few = int(rows * share)
    picked = rng.permutation(rows) if share == 1 else rng.integers(0, few, rows)
    texts = [text(int(i)) for i in picked]
    plain = pa.array(texts)
    ours: dict[str, Any] = {"Arrow plain": plain, "Arrow dict": plain.dictionary_encode(), "list": texts}
    peers = loops(plain, texts)
    if hash_keys(plain).tolist() != peers["list"]():
        raise SystemExit("hash_keys differs from the xxhash package")
    spent = best({**{name: (lambda v=v: hash_keys(v)) for name, v in ours.items()}, **_renamed(peers)}, rounds)
    for name in ours:
        ratios = [spent[f"loop {peer}"] / spent[name] for peer in peers]
        shown = f"{ratios[0]:11.1f}x {ratios[1]:7.1f}x {ratios[2]:6.1f}x"
        print(f"{shape:16} {share:8.0%} {name:11} {spent[name] / rows * 1e9:8.1f} {shown}")
    peer = ", ".join(f"{name} {spent[f'loop {name}'] / rows * 1e9:.0f}" for name in peers)
    print(f"{'':16} {'':8} the loops, ns a row: {peer}")


def _renamed(peers: dict[str, Callable[[], list[int]]]) -> dict[str, Callable[[], list[int]]]:
    return {f"loop {name}": loop for name, loop in peers.items()}


if __name__ == "__main__":
    main()
