"""Routers in `unskew whatif`: which names mean what, how rows are dealt to agents, figures per batch and per window."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command import Done, in_process, in_shell, on_a_terminal, skewed, write_stream
from tests.doses import some_of
from unskew.cli.whatif import agents
from unskew.cli.whatif.agents import COOPERATING, fleet_of
from unskew.cli.whatif.job import Job, Sliding
from unskew.cli.whatif.options import parse_policies
from unskew.cli.whatif.replay import replay
from unskew.cli.whatif.report import verdict
from unskew.cli.whatif.results import Replay, best_policies
from unskew.core import quality
from unskew.core.keys.hashing import hash_keys
from unskew.core.planners import PLANNERS, Origin
from unskew.core.quality.windows import window_imbalance, window_replication
from unskew.core.routers import ROUTERS, make_router
from unskew.simulate.fleet import Fleet

HASHES = hash_keys(skewed(8_000))
SLIDING = Sliding(1_000, 100)
BOTH = sorted({*PLANNERS} & {*ROUTERS} - {"hash"})


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8,000 rows of a drifting skewed stream."""
    return write_stream(tmp_path_factory.mktemp("stream") / "stream.parquet")


def whatif(capsys: pytest.CaptureFixture[str], stream: Path, *more: str | Path) -> Done:
    done = in_process(capsys, "whatif", stream, "--column", "key", "--partitions", "8", "--batch", "2000", *more)
    assert (done.code, done.err) == (0, "")
    return done


def run(routers: str, planners: str = "hash", **more: object) -> Replay:
    job = Job(tuple(planners.split(",")), 8, 2_000, routers=tuple(routers.split(",")), **more)  # type: ignore[arg-type]
    return replay(HASHES, job, Origin(), lambda: 0.0)


def rows_of(out: str) -> dict[str, list[str]]:
    """The lines of the last table by their first word."""
    lines = [line.split() for line in out.splitlines()]
    last = max(number for number, line in enumerate(lines) if line[:2] == ["policy", "kind"])
    return {line[0]: line[1:] for line in lines[last:] if len(line) > 3 and line[1] in ("planner", "router")}


# -- names --------------------------------------------------------------------------------------------------


def test_a_name_of_both_asks_for_both_and_a_prefix_for_one() -> None:
    """Nothing is left out silently; `hash` routes the same either way, so that it is one row unless asked for."""
    assert parse_policies("pk2,kip") == (("kip",), ("pk2",))
    assert BOTH
    for name in BOTH:
        assert parse_policies(name) == ((name,), (name,))
        assert parse_policies(f"planner:{name}") == ((name,), ())
        assert parse_policies(f"router:{name}, router:{name}") == ((), (name,))
    assert parse_policies("hash") == (("hash",), ())
    assert parse_policies("router:hash") == ((), ("hash",))
    assert parse_policies("") == (tuple(PLANNERS), ())


def test_hash_is_the_same_as_planner_and_as_router() -> None:
    """Row by row, so in every figure."""
    result = run("hash", sliding=SLIDING)
    planner, router = result.policies[0], result.routers[0]
    assert [b.routed for b in router.batches] == [b.routed for b in planner.batches]
    assert router.windows == planner.windows
    assert (router.label, router.relative_makespan, router.splits) == ("router:hash", 1.0, False)


# -- figures ------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_routed_rows() -> None:
    """Per batch and per window, over the batches that planners are counted over; the first one teaches."""
    result = run("pk2", sliding=SLIDING)
    at = make_router("pk2", 8, 7, 1_000, 100).route(HASHES)
    router = result.routers[0]
    parts = [slice(first, first + 2_000) for first in (2_000, 4_000, 6_000)]
    assert [b.number for b in router.batches] == [1, 2, 3]
    assert [b.routed.imbalance for b in router.batches] == [quality.imbalance(at[part], 8) for part in parts]
    pairs = [quality.replication(HASHES[part], at[part]) for part in parts]
    assert [b.routed.ksr for b in router.batches] == pairs
    assert (router.mean_imbalance, router.mean_replication) == (
        fmean(b.routed.imbalance for b in router.batches),
        fmean(pairs),
    )
    assert router.splits
    assert router.windows is not None
    looked = window_imbalance(at[2_000:], 8, 1_000, 100)
    assert (router.windows.windows, len(looked)) == (51, 51)
    assert (router.windows.imbalance, router.windows.worst_imbalance) == (fmean(looked.tolist()), looked.max())
    assert router.windows.replication == fmean(window_replication(HASHES[2_000:], at[2_000:], 1_000).tolist())


def test_planners_are_measured_by_the_same_windows() -> None:
    """Each batch by its own plan: with a window of a batch, the windows that end with a batch are that batch."""
    sliding = Sliding(2_000, 500)
    planner = run("pk2", "hash,balanced", sliding=sliding).policies[1]
    assert planner.windows is not None
    assert planner.windows.windows == 9
    assert planner.windows.replication == pytest.approx(planner.mean_replication)
    assert planner.windows.worst_imbalance >= planner.worst_imbalance
    assert run("pk2").policies[0].windows is None


def test_windows_begin_where_those_of_the_routers_begin() -> None:
    """A batch that ends within a slide or a window: no key is split inside a window of exact sets, nor seems so."""
    job = Job(("hash",), 8, 1_950, routers=("am", "cam"), sliding=Sliding(900, 200), fresh="previous")
    result = replay(HASHES, job, Origin(), lambda: 0.0)
    for router in result.routers:
        assert router.windows is not None
        assert router.windows.replication == 1.0
        assert router.mean_replication > 1.0
    at = make_router("am", 8, 7, 900, 200).route(HASHES)
    assert result.routers[0].windows is not None
    assert result.routers[0].windows.imbalance == fmean(window_imbalance(at[2_000:], 8, 1_000, 200).tolist())


def test_without_a_whole_window_there_are_no_figures_of_one(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """The columns are left out and the reason is said; in JSON it is null."""
    told = whatif(capsys, stream, "--policies", "pk2", "--window", "7000")
    assert "no windows to look at: none of 7,000 rows is whole" in told.out
    assert "window:" not in told.out
    told = whatif(capsys, stream, "--policies", "pk2", "--window", "7000", "--json")
    assert json.loads(told.out)["routers"][0]["windows"] is None


def test_time_a_tuple_is_what_the_clock_says_without_the_warm_up() -> None:
    """One reading before and one after each batch, by all agents, over all rows."""
    now = iter(range(10_000))
    job = Job(("hash",), 8, 2_000, routers=("pk2",), agents=2)
    result = replay(HASHES, job, Origin(), lambda: float(next(now)))
    assert result.routers[0].ns_per_tuple == pytest.approx(1e9 * 4 * 2 / 8_000)


COMPILES = """
import sys
import numpy as np
from unskew.cli.whatif.agents import COOPERATING, fleet_of, warm_up
from unskew.cli.whatif.job import Job, Sliding
from unskew.core.keys.hashing import hash_keys
from unskew.core.routers import ROUTERS

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("unskew.core.kernels.base")]
    there = {id(each): each for module in modules for each in vars(module).values()}.values()
    return sum(len(each.signatures) for each in there if hasattr(each, "signatures"))

hashes = hash_keys(np.random.default_rng(1).zipf(1.2, 15_000) % 5_000)
together = Job((), sliding=Sliding(5_000, 100), agents=2, dsync=1_250)
for job in (Job(()), Job((), sliding=Sliding(5_000, 100), agents=2), together):
    for router in COOPERATING if job.dsync else ROUTERS:
        warm_up(router, job, lambda: 0.0)
        before = compiled()
        fleet_of(router, job, lambda: 0.0).route(hashes)
        print(router, compiled() - before)
"""


def test_nothing_is_compiled_while_the_clock_runs(tmp_path: Path) -> None:
    """After the warm-up no kernel of any router meets a kind of argument for the first time."""
    done = in_shell(tmp_path, python=("-c", COMPILES))
    assert done.out.splitlines() == [f"{router} 0" for router in (*ROUTERS, *ROUTERS, *COOPERATING)], done.err


# -- agents -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("router", ROUTERS)
def test_rows_are_dealt_in_turn_however_they_are_cut(router: str) -> None:
    """Row i to agent i mod P. The window is one of the stream's rows, so an agent sees a P-th of it."""
    job = Job((), 8, seed=7, sliding=SLIDING, agents=3)
    whole = fleet_of(router, job, lambda: 0.0).route(HASHES)
    pieces = fleet_of(router, job, lambda: 0.0)
    cuts = [0, 1, 2, 1_000, 1_001, 5_555, 8_000]
    again = [pieces.route(HASHES[a:b]) for a, b in pairwise(cuts)]
    assert whole.tolist() == np.concatenate(again).tolist()
    times = np.arange(len(HASHES), dtype=np.float64)
    for number in range(3):
        seed = 7 + number if router in ("shuffle", "potc", "dalton") else 7
        alone = make_router(router, 8, seed, 1_000, 100).route(HASHES[number::3], times[number::3])
        assert whole[number::3].tolist() == alone.tolist()


def test_agents_agree_where_a_key_belongs() -> None:
    """A key of PK-2 has two partitions, not two an agent; agents that would move in step do not."""
    at = fleet_of("pk2", Job((), 64, agents=8), lambda: 0.0).route(HASHES)
    assert max(len(np.unique(at[key == HASHES])) for key in np.unique(HASHES)) == 2
    turns = fleet_of("shuffle", Job((), 64, agents=8), lambda: 0.0).route(HASHES[:8])
    assert len(set(turns.tolist())) == 8


def test_agents_that_cooperate_are_one_fleet_made_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --dsync its maker is asked, with the job; other routers stay independent; without it, all do."""
    asked: list[int | None] = []

    class Together:
        seconds = 0.5

        def __init__(self, router: str, job: Job, clock: object) -> None:
            self.job = job

        def route(self, hashes: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
            assert self.job.agents == 4
            asked.append(self.job.dsync)
            return np.full(len(hashes), 3, np.int32)

    monkeypatch.setitem(agents.COOPERATING, "pk2", Together)
    result = run("pk2,pk5", agents=4, dsync=500)
    assert result.routers[0].batches[0].routed.loads == (0, 0, 0, 2_000, 0, 0, 0, 0)
    assert result.routers[0].ns_per_tuple == 0.5e9 / 8_000
    assert asked[-4:] == [500] * 4
    assert min(result.routers[1].batches[0].routed.loads) > 0
    assert min(run("pk2", agents=4).routers[0].batches[0].routed.loads) > 0


def test_daltons_agents_are_those_of_the_library() -> None:
    """With --dsync its own fleet, one round after so many rows of the stream; without it they learn by themselves."""
    job = Job((), 8, seed=9, sliding=SLIDING, agents=4)
    alone = fleet_of("dalton", job, lambda: 0.0).route(HASHES)
    together = fleet_of("dalton", replace(job, dsync=400), lambda: 0.0).route(HASHES)
    library = Fleet(agents=4, workers=8, dsync=400, seed=9, window=1_000, slide=100)
    assert together.tolist() == library.route(HASHES).tolist()
    assert library.rounds.merged >= 8_000 // 400 - 1
    assert together.tolist() != alone.tolist()


def test_agents_are_told_of(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """In the header and in JSON, and they change the routing."""
    options = ["--policies", "wchoices", "--agents", "3"]
    assert "as 3 agents with every 3rd row each" in whatif(capsys, stream, *options).out
    told = json.loads(whatif(capsys, stream, *options, "--json").out)
    alone = json.loads(whatif(capsys, stream, "--policies", "wchoices", "--json").out)
    assert (told["agents"], alone["agents"], told["dsync"]) == (3, 1, None)
    assert told["routers"][0]["batches"] != alone["routers"][0]["batches"]


# -- what is shown ------------------------------------------------------------------------------------------


def test_planners_and_routers_stand_side_by_side(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """One line a policy, of each kind; time a tuple for routers only; the verdict is over all."""
    out = whatif(capsys, stream, "--policies", "kip,cg,pk2,wchoices", "--window", "1000", "--slide", "100").out
    rows = rows_of(out)
    kinds = {label: row[0] for label, row in rows.items()}
    assert kinds == {
        "hash": "planner", "kip": "planner", "cg": "planner", "router:cg": "router", "pk2": "router",
        "wchoices": "router",
    }  # fmt: skip
    assert {len(row) for row in rows.values()} == {9}
    assert all((row[7] == "-") == (row[0] == "planner") for row in rows.values())
    assert "Windows of 1,000 rows are looked at every 100 rows." in out
    assert out.splitlines()[-3].startswith("Best here: wchoices, with batches in ")
    assert out.splitlines()[-2].startswith("Where a key may not be split: kip")
    assert out.splitlines()[-1].startswith("By Holistic's selection rule (section 7), each batch a window of its own: ")


def test_holistics_rule_is_told_beside_what_was_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Four groups in many rows: shuffle. A group for every other row: keep them whole. Without routers: not asked."""
    for keys, router in ((4, "shuffle"), (2_000, "cam")):
        path = tmp_path / f"{keys}.parquet"
        pq.write_table(pa.table({"key": pa.array(np.arange(4_000) * 7 % keys)}), path)
        told = json.loads(whatif(capsys, path, "--policies", "pk2", "--json").out)["selection_rule"]
        assert told["router"] == router, told
        assert f": {router}. " in whatif(capsys, path, "--policies", "pk2").out.splitlines()[-1]
        assert json.loads(whatif(capsys, path, "--policies", "kip", "--json").out)["selection_rule"] is None


@pytest.mark.parametrize(("width", "columns"), some_of([(60, 8), (80, 8), (120, 10)], (80, 8)))
def test_no_cell_is_cut_on_any_terminal(width: int, columns: int, stream: Path) -> None:
    """At 80 the makespan and the kind are left out, and the label still tells a router of a planner's name."""
    options = ["--column", "key", "--policies", "cg,dagreedy,wchoices", "--partitions", "64", "--batch", "2000"]
    lines = on_a_terminal(width, "whatif", stream, *options)
    last = max(number for number, line in enumerate(lines) if line.split()[:1] == ["policy"])
    rows = {line.split()[0]: line.split() for line in lines[last + 2 : last + 7]}
    assert list(rows) == ["hash", "cg", "router:cg", "dagreedy", "wchoices"]
    assert all(len(row) == columns for row in rows.values())
    assert all(cell[-1].isdigit() or cell == "-" for row in rows.values() for cell in row[2:])
    assert not any("…" in line for line in lines)
    if width >= 80:
        assert max(map(len, lines)) <= width


def test_routers_alone_need_one_table(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """Beside plain hash, the yardstick; planners alone without a window have theirs, as ever."""
    out = whatif(capsys, stream, "--policies", "pk2").out
    assert list(rows_of(out)) == ["hash", "pk2"]
    assert "planned" not in out
    assert "Windows of 2,000 rows are looked at every 40 rows." in out  # one batch, as for planners, and its fiftieth
    out = whatif(capsys, stream, "--policies", "kip").out
    assert "planned" in out
    assert "window:" not in out
    assert list(rows_of(whatif(capsys, stream, "--policies", "kip", "--window", "4000").out)) == ["hash", "kip"]


def test_json_has_routers_beside_planners(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """Two lists as in `unskew policies --json`, so that no name is there twice; the same figures by the same names."""
    done = whatif(capsys, stream, "--policies", "cg,pk2", "--json", "--window", "1000", "--slide", "100")
    told = json.loads(done.out)
    assert [p["policy"] for p in told["policies"]] == ["hash", "cg"]
    assert [p["policy"] for p in told["routers"]] == ["cg", "pk2"]
    assert told["sliding_window"] == {"window": 1000, "slide": 100, "unit": "rows"}
    for policy in (*told["policies"], *told["routers"]):
        assert policy["imbalance"]["worst"] >= policy["imbalance"]["mean"] >= 1.0
        assert policy["windows"]["imbalance"]["worst"] >= policy["windows"]["imbalance"]["mean"] >= 1.0
        assert policy["windows"]["mean_replication"] >= 1.0
        assert all(sum(batch["loads"]) == batch["rows"] == 2000 for batch in policy["batches"])
    assert all(router["ns_per_tuple"] > 0 for router in told["routers"])


def test_capacities_are_weights_and_routers_are_measured_by_them(
    capsys: pytest.CaptureFixture[str], stream: Path
) -> None:
    """A load is compared after dividing by the capacity, in every figure; either option says so."""
    capacities = "5,1,1,1,1,1,1,1"
    options = ["--policies", "shuffle,balanced", "--json", "--window", "1000", "--slide", "100"]
    one = json.loads(whatif(capsys, stream, *options, "--capacities", capacities).out)
    other = json.loads(whatif(capsys, stream, *options, "--weights", capacities).out)
    assert one["weights"] == other["weights"] == [5.0] + [1.0] * 7
    assert [b["loads"] for b in one["policies"][1]["batches"]] == [b["loads"] for b in other["policies"][1]["batches"]]
    assert one["routers"][0]["imbalance"]["mean"] == pytest.approx(12 / 8)  # an eighth each, a fair share is a twelfth
    assert one["routers"][0]["windows"]["imbalance"]["mean"] == pytest.approx(12 / 8)


def test_the_plot_has_a_panel_for_each_router(capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path) -> None:
    """By the name that tells it from a planner; more policies than colours included."""
    routers = ",".join(ROUTERS)
    whatif(capsys, stream, "--policies", routers, "--plot", tmp_path / "load.svg")
    drawn = (tmp_path / "load.svg").read_text()
    for label in [f"router:{name}" if name in PLANNERS else name for name in ROUTERS if name != "hash"]:
        assert f"<!-- {label}: fullest " in drawn


def test_only_planners_have_plans_to_save(capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path) -> None:
    """Of a name that is both, the planner's."""
    whatif(capsys, stream, "--policies", "cg,pk2", "--save-plans", tmp_path / "plans")
    assert [file.name for file in (tmp_path / "plans").iterdir()] == ["cg.plan"]


def test_about_equal_planners_come_before_routers() -> None:
    """Then the router that splits least: what a router will move, no plan says."""
    result = run("wchoices,pk2", "hash,kip")
    short = {"hash": 1.0, "kip": 0.505, "wchoices": 0.5, "pk2": 0.508}
    result = replace(
        result,
        policies=tuple(replace(p, relative_makespan=short[p.policy]) for p in result.policies),
        routers=tuple(replace(p, relative_makespan=short[p.policy]) for p in result.routers),
    )
    splits = sorted(result.routers, key=lambda p: p.replication)
    assert [p.policy for p in best_policies(result.results)] == ["kip", *(p.policy for p in splits)]
    assert verdict(result)[0].startswith("Best here: kip, with batches in 0.51 ")
    assert verdict(result)[0].endswith("; about equal: pk2, wchoices.")


@pytest.mark.parametrize("router", ROUTERS)
def test_one_row_and_one_partition_are_enough(router: str) -> None:
    """The smallest stream there is."""
    job = Job(("hash",), 1, routers=(router,), sliding=Sliding(1, 1), agents=2)
    result = replay(HASHES[:1], job, Origin(), lambda: 0.0)
    assert result.routers[0].imbalance == 1.0
    assert result.routers[0].windows is not None


# -- time ---------------------------------------------------------------------------------------------------

SECONDS = np.floor(np.arange(8_000) / 40) / 10  # 40 rows every tenth of a second


def timed(path: Path) -> Path:
    """The same stream with its times in several forms."""
    table = pq.read_table(write_stream(path))
    micros = (SECONDS * 1e6).round().astype(np.int64)
    for name, values in {
        "seconds": pa.array(SECONDS),
        "at": pa.array(micros).cast(pa.timestamp("us")),
        "zoned": pa.array(micros).cast(pa.timestamp("us", "Europe/Rome")),
        "text": pa.array([f"{second:.1f}" for second in SECONDS]),
    }.items():
        table = table.append_column(name, values)
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("column", ["seconds", "at", "zoned", "text"])
def test_windows_in_seconds(column: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By a column of times: routers and figures take both lengths in seconds, planners the batches of so many."""
    path = timed(tmp_path / "timed.parquet")
    options = ["--policies", "pk2,kip", "--time", column, "--window", "5.5", "--slide", "0.5", "--json"]
    told = json.loads(whatif(capsys, path, *options).out)
    assert told["sliding_window"] == {"window": 5.5, "slide": 0.5, "unit": "seconds"}
    assert told["window_batches"] == 1
    at = make_router("pk2", 8, 7, 5.5, 0.5).route(hash_keys(pq.read_table(path)["key"]), SECONDS)
    looked = window_imbalance(at[2_000:], 8, 5.5, 0.5, times=SECONDS[2_000:])
    assert told["routers"][0]["windows"]["imbalance"]["mean"] == fmean(looked.tolist())
    assert "Windows of 5.5 s are looked at every 0.5 s." in whatif(capsys, path, *options[:-1]).out
    longer = json.loads(whatif(capsys, path, *options, "--window", "11").out)
    assert longer["window_batches"] == 2


def test_times_in_csv_and_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text with a date or a number, file after file."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        lines = [f"k{row % 7},{2 * part}.{row},2026-01-0{part + 1}T00:00:0{row}Z" for row in range(10)]
        (tmp_path / "in" / f"{part}.csv").write_text("\n".join(["key,s,at", *lines]) + "\n")
    for column, window in (("s", "1"), ("at", "5")):
        options = ["--column", "key", "--policies", "pk2", "--time", column, "--window", window, "--json"]
        told = json.loads(in_process(capsys, "whatif", tmp_path / "in", *options).out)
        assert told["rows"] == 20
        assert told["sliding_window"]["unit"] == "seconds"
