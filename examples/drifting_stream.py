"""Write a skewed stream whose hot keys change while it runs: the input of `make demo`.

    python examples/drifting_stream.py demo-out/stream.parquet --rows 1000000 --seed 7

One row a millisecond, columns `time` and `key`. How often a key comes follows Zipf's law; which key is the
hottest, the second hottest and so on is drawn anew every `--drift` rows. At any time a few keys carry most of
the rows, but never the same ones for long: a plan that is made once and kept goes stale.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

START = np.datetime64("2026-01-01T00:00:00", "us")


def drifting_keys(rows: int, keys: int, exponent: float, drift: int, seed: int) -> npt.NDArray[np.int64]:
    """The key number of each row: Zipf-distributed ranks, the keys ranked anew every `drift` rows."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    upper = np.cumsum(share / share.sum())
    out = np.empty(rows, dtype=np.int64)
    for first in range(0, rows, drift):
        count = min(drift, rows - first)
        ranks = np.minimum(np.searchsorted(upper, rng.random(count)), keys - 1)
        out[first : first + count] = rng.permutation(keys)[ranks]
    return out


def table(numbers: npt.NDArray[np.int64], keys: int) -> pa.Table:
    """The rows as they would come from a click stream: a time, and a user's name as a string."""
    names = pa.array([f"user-{number:06d}" for number in range(keys)])
    times = START + np.arange(numbers.size, dtype=np.int64) * np.timedelta64(1, "ms")
    return pa.table({"time": pa.array(times), "key": names.take(pa.array(numbers))})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write a Parquet file of skewed keys that drift.")
    parser.add_argument("file", type=Path, help="the Parquet file to write")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=50_000, help="distinct keys, default %(default)s")
    parser.add_argument("--exponent", type=float, default=1.2, help="Zipf's, default %(default)s")
    parser.add_argument("--drift", type=int, default=250_000, help="rows of one ranking, default %(default)s")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    if min(options.rows, options.keys, options.drift) < 1:
        parser.error("--rows, --keys and --drift must be 1 or more")
    numbers = drifting_keys(options.rows, options.keys, options.exponent, options.drift, options.seed)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(numbers, options.keys), options.file)
    hottest = np.bincount(numbers[: options.drift]).max() / min(options.drift, options.rows)
    print(
        f"wrote {options.file}: {options.rows:,} rows over {options.keys:,} keys; the hottest key has "
        f"{hottest:.0%} of the rows, and it is another one every {options.drift:,} rows"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
