"""What a report, an answer and a histogram cost to encode and to decode.

Run ``python -m benchmarks.wire [--rounds N]``. Each figure is the best of the rounds. Peers in the same run: copying
the same bytes through protobuf and numpy with no check at all (``bare``), and the same table as ``repeated`` numbers,
which is what packed bytes are instead of. Target: encode + decode of a report or an answer with 64 hot rows x 64
workers in 40 us. About met for a report, 42 us (18 to encode, 24 to decode) on a machine at rest: it is read by the
fewest walks over its arrays that show it to be right (``wire.fast_reports``), and only else by core's own constructors,
which take 20 us more. An answer is packed once for all agents of a round.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable

import numpy as np
from google.protobuf.struct_pb2 import ListValue

from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histograms, round_messages
from unskew.wire.histograms import Assembler


def table(rows: int, workers: int) -> QTable:
    rng = np.random.default_rng(7)
    values = np.where(rng.random((rows, workers)) < 0.5, UNTRIED, rng.uniform(-1.0, 1.0, (rows, workers)))
    counts = rng.integers(1, 10_000, rows)
    return QTable.of(rng.integers(0, 2**63, rows).astype(np.uint64), values, counts, values != UNTRIED)


def report(rows: int, workers: int) -> Report:
    rng = np.random.default_rng(8)
    frequent = FrequentItems(4 * workers).update((rng.zipf(1.3, 100_000) % 4096).astype(np.uint64))
    loads = rng.integers(0, 10_000, workers)
    return Report("agent-1", 3, 17, table(rows, workers), frequent.total, frequent, loads, 20.0, longer=False)


def answer(rows: int, workers: int) -> Answer:
    rng = np.random.default_rng(9)
    unsure = frozenset(rng.integers(0, 2**63, 32).tolist())
    split = np.unique(rng.integers(0, 2**63, 2 * rows).astype(np.uint64))
    return Answer(9, (), table(rows, workers), 10**7, unsure, rng.integers(0, 10**6, workers), 20.0, split)


def bare(rows: int, workers: int) -> tuple[Callable[[], bytes], Callable[[], object]]:
    """The least that protobuf and numpy do: bytes of the same size in, bytes out, arrays over them."""
    source = table(rows, workers)
    held = np.packbits(source.held, axis=1)

    def encode() -> bytes:
        packed = pb.QTable(
            workers=workers,
            hashes=source.hashes.tobytes(),
            values=source.values.tobytes(),
            rows=source.rows.tobytes(),
            held=held.tobytes(),
        )
        return pb.SyncReport(agent="agent-1", table=packed).SerializeToString()

    data = encode()

    def decode() -> object:
        message = pb.SyncReport.FromString(data).table
        return [np.frombuffer(array, np.uint64) for array in (message.hashes, message.values, message.rows)]

    return encode, decode


def best(work: Callable[[], object], rounds: int) -> float:
    """Microseconds of one run."""
    number = max(int(0.05 / max(timeit.timeit(work, number=1), 1e-7)), 1)
    return min(timeit.repeat(work, number=number, repeat=rounds)) / number * 1e6


def line(name: str, encode: Callable[[], bytes], decode: Callable[[], object], rounds: int) -> None:
    out, back = best(encode, rounds), best(decode, rounds)
    print(f"{name:34} {len(encode()):>10,} {out:>10,.1f} {back:>10,.1f} {out + back:>10,.1f}")


def learned(rows: int, workers: int, rounds: int) -> None:
    size = f"{rows} x {workers}"
    told, heard = report(rows, workers), answer(rows, workers)
    sent, got = round_messages.report_to_bytes(told), round_messages.answer_to_bytes(heard)
    line(
        f"report {size}",
        lambda: round_messages.report_to_bytes(told),
        lambda: round_messages.report_from_bytes(sent),
        rounds,
    )

    def anew() -> bytes:
        round_messages._PACKED.clear()
        return round_messages.answer_to_bytes(heard)

    line(f"answer {size}, the first of a round", anew, lambda: round_messages.answer_from_bytes(got), rounds)
    line(f"answer {size}, another", lambda: round_messages.answer_to_bytes(heard), lambda: None, rounds)
    line(f"bare {size}", *bare(rows, workers), rounds)
    checks(told, rounds)


def checks(told: Report, rounds: int) -> None:
    """What the constructors of core take of decoding: arrays that are right and frozen already."""
    own, seen = told.table, told.frequent
    parts: dict[str, Callable[[], object]] = {
        "QTable": lambda: QTable(own.hashes, own.values, own.rows, own.held),
        "FrequentItems": lambda: FrequentItems(seen.capacity, seen.hashes, seen.counts, seen.error, seen.total),
    }
    for name, make in parts.items():
        print(f"{f'  of which core builds {name}':34} {'':>10} {'':>10} {best(make, rounds):>10,.1f}")


def repeated(rows: int, workers: int, rounds: int) -> None:
    """The same values as a list of numbers."""
    values = table(rows, workers).values.ravel()

    def encode() -> bytes:
        message = ListValue()
        message.extend(values.tolist())
        return message.SerializeToString()

    data = encode()
    line(
        f"values {rows} x {workers} as a list",
        encode,
        lambda: np.array([v.number_value for v in ListValue.FromString(data).values]),
        rounds,
    )


def counted(keys: int, rounds: int) -> None:
    rng = np.random.default_rng(5)
    tail = Tail(np.full(4096, 9), np.full(4096, 3))
    whole = Histogram.from_counts(rng.integers(0, 2**64, keys, dtype=np.uint64), rng.integers(1, 99, keys), tail)
    data = histograms.histogram_to_bytes(whole)
    line(
        f"histogram {keys:,} keys",
        lambda: histograms.histogram_to_bytes(whole),
        lambda: histograms.histogram_from_bytes(data),
        rounds,
    )
    mixed = histograms.histogram_to_message(whole)
    order = rng.permutation(len(whole.hashes))
    mixed.hashes, mixed.counts = whole.hashes[order].tobytes(), whole.counts[order].tobytes()
    shuffled = mixed.SerializeToString()
    line("  in no order", lambda: shuffled, lambda: histograms.histogram_from_bytes(shuffled), rounds)
    sent = [chunk.SerializeToString() for chunk in histograms.chunks(whole, "clicks", Part("app", 1))]
    first = pb.ReportHistogramRequest.FromString(sent[0])

    def cut() -> bytes:
        return [chunk.SerializeToString() for chunk in histograms.chunks(whole, "clicks", Part("app", 1))][-1]

    def assemble() -> object:
        assembler = Assembler()
        for one in sent:
            assembler.add(pb.ReportHistogramRequest.FromString(one))
        return assembler.finish()

    line(f"  in {len(sent)} chunk(s), the last's bytes", cut, assemble, rounds)
    taken = best(lambda: Assembler().add(first), rounds)
    print(f"{'  one chunk on the event loop':34} {first.ByteSize():>10,} {'':>10} {taken:>10,.1f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    print(f"best of {rounds}\n{'':34} {'bytes':>10} {'encode us':>10} {'decode us':>10} {'both us':>10}")
    for rows, workers in ((16, 16), (64, 64), (256, 256)):
        learned(rows, workers, rounds)
    repeated(64, 64, rounds)
    for keys in (10_000, 1_000_000):
        counted(keys, max(rounds // 3, 3))


if __name__ == "__main__":
    main()
