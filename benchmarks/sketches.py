"""The sketches beside Apache DataSketches: cost a row from numpy, and accuracy at the same size.

    python benchmarks/sketches.py [--rows 400000] [--repeats 5]

Both sides see the same rows in the same batches in one run, turn by turn, and the best of the repeats counts.
The peer is fed in its two possible ways from Python: row by row, and folded first (our own ``tally``, then
one call for each distinct key). The ratio is the peer's better way over ours; above 1 ours is faster. The
peer has no array update for these sketches, and no way to hand in a hash (docs/decisions/0003-sketches.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import datasketches
import numpy as np

from papers.countmin import CountMin
from papers.hyperloglog import HyperLogLog
from unskew.core.keys.hashing import mix
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.sketches.tally import U64, tally

KEYS = 100_000
LG_ITEMS = 11  # the peer then has 0.75 * 2**11 = 1536 counters
CAPACITY = 1536
WORKERS = 64

Feed = Callable[[list[U64]], object]


def hashes_of(count: int, stream: int) -> U64:
    """Distinct key hashes, another set for each stream."""
    return mix(np.arange(count, dtype=np.uint64) + (np.uint64(stream) << np.uint64(32)), 1234)


def zipf(rows: int, exponent: float) -> np.ndarray:
    """Key numbers of a Zipf stream over 100,000 keys."""
    weights = 1 / np.arange(1, KEYS + 1) ** exponent
    return np.random.default_rng(7).choice(KEYS, size=rows, p=weights / weights.sum())


def ours(make: Callable[[], object]) -> Feed:
    """Feed batches to one of our sketches."""

    def feed(batches: list[U64]) -> object:
        sketch = make()
        for batch in batches:
            after = sketch.update(batch)
            sketch = sketch if after is None else after
        return sketch

    return feed


def peer_rows(make: Callable[[], object]) -> Feed:
    """Feed a DataSketches sketch row by row."""

    def feed(batches: list[U64]) -> object:
        sketch = make()
        update = sketch.update
        for batch in batches:
            for key in batch.view(np.int64).tolist():
                update(key)
        return sketch

    return feed


def peer_folded(make: Callable[[], object], *, weighted: bool) -> Feed:
    """Feed a DataSketches sketch one call for each distinct key of a batch."""

    def feed(batches: list[U64]) -> object:
        sketch = make()
        update = sketch.update
        for batch in batches:
            keys, counts, _ = tally(batch)
            if weighted:
                for key, count in zip(keys.view(np.int64).tolist(), counts.tolist(), strict=True):
                    update(key, count)
            else:
                for key in keys.view(np.int64).tolist():
                    update(key)
        return sketch

    return feed


def contestants() -> Iterator[tuple[str, Feed, Feed, Feed]]:
    """Each sketch of ours, and the peer's both ways, at the same size."""
    items = lambda: datasketches.frequent_items_sketch(LG_ITEMS)  # noqa: E731
    counts = lambda: datasketches.count_min_sketch(4, 16 * WORKERS)  # noqa: E731
    distinct = lambda: datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)  # noqa: E731
    yield (
        f"frequent items, {CAPACITY} counters",
        ours(lambda: FrequentItems(CAPACITY)),
        peer_rows(items),
        peer_folded(items, weighted=True),
    )
    yield (
        f"count-min, 4 x {16 * WORKERS}",
        ours(lambda: CountMin.for_workers(WORKERS)),
        peer_rows(counts),
        peer_folded(counts, weighted=True),
    )
    yield (
        "HyperLogLog, 4096 registers",
        ours(HyperLogLog),
        peer_rows(distinct),
        peer_folded(distinct, weighted=False),
    )


def best_times(feeds: tuple[Feed, ...], batches: list[U64], repeats: int) -> list[float]:
    """The best time of each, in turns, so that a busy moment of the machine hits all alike."""
    best = [float("inf")] * len(feeds)
    for _ in range(repeats):
        for i, feed in enumerate(feeds):
            start = time.perf_counter()
            feed(batches)
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def print_cost(rows: int, repeats: int) -> None:
    """The table of update costs."""
    print("| sketch | z | batch | ours, ns/row | peer by row | peer folded | peer's better / ours |")
    print("|---|---|---|---|---|---|---|")
    for exponent in (1.0, 1.5):
        stream = hashes_of(KEYS, 0)[zipf(rows, exponent)]
        for name, *feeds in contestants():
            for size in (1_000, 10_000, 100_000):
                batches = [stream[at : at + size] for at in range(0, rows, size)]
                mine, by_row, folded = (t * 1e9 / rows for t in best_times(tuple(feeds), batches, repeats))
                ratio = min(by_row, folded) / mine
                times = f"{mine:.0f} | {by_row:.0f} | {folded:.0f} | {ratio:.1f}"
                print(f"| {name} | {exponent} | {size:,} | {times} |")


def print_items_accuracy(rows: int) -> None:
    """How far the frequent items are off, and what each side states."""
    print("\n| frequent items | z | stated error | bound before the data | largest real error | keys listed |")
    print("|---|---|---|---|---|---|")
    for exponent in (0.8, 1.0, 1.5):
        numbers = zipf(rows, exponent)
        hashes, exact = hashes_of(KEYS, 0), np.bincount(numbers, minlength=KEYS)
        batches = [hashes[numbers[at : at + 10_000]] for at in range(0, rows, 10_000)]
        summary = ours(lambda: FrequentItems(CAPACITY))(batches)
        off = int((exact - summary.lower(hashes)).max())
        print(f"| ours | {exponent} | {summary.error} | {summary.bound} | {off} | {len(summary.hashes)} |")
        peer = peer_rows(lambda: datasketches.frequent_items_sketch(LG_ITEMS))(batches)
        low = np.array([peer.get_lower_bound(key) for key in hashes.view(np.int64).tolist()])
        stated = int(peer.get_upper_bound(-1) - peer.get_lower_bound(-1))
        before = int(peer.get_apriori_error(LG_ITEMS, rows))
        off = int((exact - low).max())
        print(f"| peer | {exponent} | {stated} | {before} | {off} | {peer.num_active_items} |")


def print_counts_accuracy(rows: int) -> None:
    """How far count-min is too high, and what that does to the share of rows called hot."""
    print("\n| count-min | n | z | mean over-estimate | e L / width | rows called hot | rows really hot |")
    print("|---|---|---|---|---|---|---|")
    for workers in (8, 64):
        for exponent in (1.0, 1.5):
            numbers = zipf(rows, exponent)
            hashes, exact = hashes_of(KEYS, 0), np.bincount(numbers, minlength=KEYS)
            batches = [hashes[numbers[at : at + 1_000]] for at in range(0, rows, 1_000)]
            mine = CountMin.for_workers(workers)
            for batch in batches:
                mine.update(batch)
            peer = peer_folded(lambda n=workers: datasketches.count_min_sketch(4, 16 * n), weighted=True)(batches)
            found = {"ours": mine.estimate(hashes)}
            found["peer"] = np.array([peer.get_estimate(key) for key in hashes.view(np.int64).tolist()])
            really = exact[exact >= rows / workers].sum() / rows
            for side, estimate in found.items():
                called, over = exact[estimate >= rows / workers].sum() / rows, np.mean(estimate - exact)
                shares = f"{called:.1%} | {really:.1%}"
                print(f"| {side} | {workers} | {exponent} | {over:.0f} | {mine.bound:.0f} | {shares} |")


def print_distinct_accuracy(draws: int = 200) -> None:
    """Relative error of the cardinality, and how often a new key passes for a known one."""
    print(f"\nHyperLogLog, {draws} key sets; 1.04 / sqrt(4096) = {HyperLogLog().relative_error:.2%}\n")
    print("| distinct | RMS error, ours | peer | peer, merged | new keys taken for known |")
    print("|---|---|---|---|---|")
    for count in (100, 1024, 4096, 10_000, 40_960, 100_000):
        errors = {"ours": [], "peer": [], "merged": []}
        false = []
        for draw in range(draws):
            hashes = hashes_of(count, draw + 1)
            sketch = HyperLogLog()
            sketch.update(hashes)
            peer = peer_rows(lambda: datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8))([hashes])
            union = datasketches.hll_union(12)
            union.update(peer)
            union.update(peer)
            errors["ours"].append(sketch.estimate() / count - 1)
            errors["peer"].append(peer.get_estimate() / count - 1)
            errors["merged"].append(union.get_result().get_estimate() / count - 1)
            false.append(sketch.contains(hashes_of(5_000, draw + 1000)).mean())
        rms = [np.sqrt(np.mean(np.square(errors[side]))) for side in ("ours", "peer", "merged")]
        print(f"| {count:,} | {rms[0]:.2%} | {rms[1]:.2%} | {rms[2]:.2%} | {np.mean(false):.1%} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print_cost(arguments.rows, arguments.repeats)
    print_items_accuracy(arguments.rows)
    print_counts_accuracy(60_000)
    print_distinct_accuracy()


if __name__ == "__main__":
    main()
