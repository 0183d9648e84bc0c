"""Write a skewed stream whose hot keys change while it runs: the input of `make demo`.

    python examples/drifting_stream.py demo-out/stream.parquet --rows 1000000 --seed 7

One row a millisecond, columns `time` and `key`. How often a key comes follows Zipf's law, and after every `--drift`
rows the `--hot` heaviest keys give way to others. At any time a few keys carry most of the rows, but never the same
ones for long: a plan that is made once and kept goes stale.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.core.errors import ConfigError
from unskew.core.streams import drifting

START = np.datetime64("2026-01-01T00:00:00", "us")


def table(numbers: npt.NDArray[np.int64], keys: int) -> pa.Table:
    """The rows as they would come from a click stream: a time, and a user's name as a string."""
    names = pa.array([f"user-{number:06d}" for number in range(keys)])
    times = START + np.arange(numbers.size, dtype=np.int64) * np.timedelta64(1, "ms")
    return pa.table({"time": pa.array(times), "key": names.take(pa.array(numbers))})


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write a Parquet file of skewed keys that drift.")
    parser.add_argument("file", type=Path, help="the Parquet file to write")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=50_000, help="distinct keys, default %(default)s")
    parser.add_argument("--hot", type=int, default=100, help="keys that change, default %(default)s")
    parser.add_argument("--drift", type=int, default=250_000, help="rows between changes, default %(default)s")
    parser.add_argument("--exponent", type=float, default=1.2, help="Zipf's, default %(default)s")
    parser.add_argument("--seed", type=int, default=7)
    return parser


def main(given: list[str] | None = None) -> int:
    parser = arguments()
    options = parser.parse_args(given)
    if options.rows < 1:
        parser.error(f"argument --rows: {options.rows} is not allowed; use 1 or more")
    rng = np.random.default_rng(options.seed)
    try:
        numbers = drifting(rng, options.rows, options.keys, options.exponent, options.drift, options.hot)
    except ConfigError as error:
        parser.error(str(error))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(numbers, options.keys), options.file)
    share = np.bincount(numbers[: options.drift]).max() / min(options.drift, options.rows)
    print(
        f"wrote {options.file}: {options.rows:,} rows over {options.keys:,} keys; the hottest key has "
        f"{share:.0%} of the rows, and it is another one after every {options.drift:,} rows"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
