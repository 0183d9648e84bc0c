"""Figure 12: state that is damaged, mixed up or of another release; does anybody route by what was not written?

Files beside checkpoints: each is cut, changed, lengthened and mixed with others, and read. It must be refused, or read
as it was written. A store: bytes in Redis are changed under the service; whoever asks for the plan must get the one
that was made, or an error. Other releases: ``tests/compat``, in which either reads, and shares a store with, the other.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import redis

from benchmarks.reliability.suites import passed
from benchmarks.reliability.taken import Dose, Taken
from tests.compat import golden
from tests.planning import some_histogram
from tests.servers import Server, single
from tests.service.faces import served
from unskew.client import Client, ServiceCallError
from unskew.core.errors import UnskewError

__all__ = ["damaged_states"]

_STREAM = "clicks"


def damaged_states(dose: Dose) -> Taken:
    draw = random.Random(12)
    files = files_read(dose.folder / "written", dose.of(150, 4000), draw)
    stores = stores_asked(dose.folder, dose.of(12, 200), draw)
    tests, bad = passed(dose, "compat", ["tests/compat"])
    wrong = files["wrong"] + stores["wrong"] + len(bad)
    said = (
        f"{wrong}: {files['wrong']} of {files.total():,} damaged files ({files['refused']:,} refused), "
        f"{stores['wrong']} of {stores.total():,} damaged stores ({stores['refused']} refused), "
        f"{len(bad)} of {tests} checks of two releases"
    )
    return Taken(said, wrong == 0, {"files": dict(files), "stores": dict(stores), "compat": tests, "failed": bad})


# -- files ----------------------------------------------------------------------------------------------------


def files_read(folder: Path, times: int, draw: random.Random) -> Counter[str]:
    """What this release and older ones wrote, each damaged so many times."""
    golden.write(folder)
    kept = sorted(one for one in (Path(golden.__file__).parent / "golden").iterdir() if one.is_dir())
    found: Counter[str] = Counter()
    for place in (folder, *kept):
        told = json.loads((place / "told.json").read_text())
        others = [(place / name).read_bytes() for name in told]
        for name, wanted in told.items():
            for data in damaged((place / name).read_bytes(), others, times, draw):
                found[read_again(name, data, wanted)] += 1
    return found


def read_again(name: str, data: bytes, wanted: object) -> str:
    """Whether it is refused with one of our errors, or read as it was meant, or otherwise."""
    try:
        found = golden.READ[Path(name).stem.partition("-")[0]](data)
    except UnskewError:
        return "refused"
    return "same" if json.loads(json.dumps(found)) == wanted else "wrong"


def damaged(data: bytes, others: list[bytes], times: int, draw: random.Random) -> Iterator[bytes]:
    """Other bytes than these: changed bits, cut, lengthened, a block of zeros, half of another file."""
    made = 0
    while made < times:
        at, other = draw.randrange(len(data)), draw.choice(others)
        bit = bytes([data[at] ^ 1 << draw.randrange(8)])
        ways = (
            data[:at] + bit + data[at + 1 :],
            data[:at],
            data + other[:at],
            data[:at] + bytes(min(64, len(data) - at)) + data[at + 64 :],
            data[:at] + other[at:],
        )
        one = draw.choice(ways)
        if one != data and one not in others:
            made += 1
            yield one


# -- a store --------------------------------------------------------------------------------------------------


def stores_asked(folder: Path, times: int, draw: random.Random) -> Counter[str]:
    """A replica that finds a changed store when it begins; its plan is asked for, and one is built."""
    with single(folder) as server:
        return Counter(asked(server, draw) for _ in range(times))


def asked(server: Server, draw: random.Random) -> str:
    """A stream with a plan, in which one value is changed; what a new replica then says."""
    server.ask("FLUSHALL")
    with served("engine", store=server.url) as one, Client(one.target, timeout=20) as client:
        client.put_stream(_STREAM, partitions=4, policy="balanced")
        made = client.build_plan(_STREAM, histogram=some_histogram(5000, 100)).plan
    change_one(server, draw)
    with served("engine", store=server.url) as one, Client(one.target, timeout=20) as client:
        try:
            plan = client.get_plan(_STREAM).plan
        except (ServiceCallError, UnskewError):
            outcome = "refused"
        else:
            outcome = "same" if plan.digest == made.digest else "wrong"
        try:
            client.build_plan(_STREAM, histogram=some_histogram(5000, 100, seed=2))
        except (ServiceCallError, UnskewError):
            return outcome if outcome == "wrong" else "refused"
    return outcome


def change_one(server: Server, draw: random.Random) -> None:
    """One byte of one value of the stream, or its end cut off."""
    with redis.Redis("127.0.0.1", server.port, protocol=2) as store:
        fields = [(key, field) for key in sorted(store.keys("{*")) if store.type(key) == b"hash"
                  for field in sorted(store.hkeys(key))]  # fmt: skip
        key, field = draw.choice(fields)
        value = store.hget(key, field) or b"?"
        at = draw.randrange(len(value)) if value else 0
        flipped = value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :] if value else b"?"
        store.hset(key, field, draw.choice((flipped, value[:at])))
