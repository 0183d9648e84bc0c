"""The commands as a user sees them: tables, JSON, plots, plans, explanations."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.cli.command import Done, environment, in_process, in_shell, write_stream
from tests.doses import some_of
from unskew.cli.app import app
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS
from unskew.core.version import __version__
from unskew.wire import plan_from_bytes

PNG = b"\x89PNG"
FIGURES = [
    "imbalance", "planned", "replication", "KSR", "BSI", "BCI", "moved", "plans", "makespan", "build",
]  # fmt: skip


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8,000 rows of a drifting skewed stream."""
    return write_stream(tmp_path_factory.mktemp("stream") / "stream.parquet")


def whatif(capsys: pytest.CaptureFixture[str], stream: Path, *more: str | Path) -> Done:
    arguments = ["--column", "key", "--partitions", "8", "--batch", "2000", "--policies", "hash,kip,balanced"]
    done = in_process(capsys, "whatif", stream, *arguments, *more)
    assert (done.code, done.err) == (0, "")
    return done


def test_policies_lists_every_registered_policy_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Planners, then routers, each under a heading: the name, and whether it may split keys."""
    done = in_process(capsys, "policies")
    for group, heading, entries in zip(
        done.out.split("\n\n"), ("Planners", "Routers"), (PLANNERS, ROUTERS), strict=True
    ):
        first, *lines = group.splitlines()
        assert first.split()[0] == heading
        for line, (name, entry) in zip(lines, entries.items(), strict=True):
            assert line.split()[0] == name
            assert ("may split keys" if entry.splits else "keeps keys whole") in line
            assert entry.summary in line


def test_policies_as_json() -> None:
    """One document with the same content."""
    done = CliRunner().invoke(app, ["policies", "--json"])
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert list(told) == ["planners", "routers"]
    for rows, entries in ((told["planners"], PLANNERS), (told["routers"], ROUTERS)):
        assert [(row["name"], row["splits"], row["summary"]) for row in rows] == [
            (name, entry.splits, entry.summary) for name, entry in entries.items()
        ]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the package's own; --help lists the commands."""
    assert in_process(capsys, "--version").out == f"unskew {__version__}\n"
    helped = in_process(capsys, "--help")
    assert helped.code == 0
    assert all(command in helped.out for command in ("policies", "whatif", "explain"))
    bare = in_process(capsys)
    assert (bare.code, bare.out, bare.err) == (0, helped.out, "")


def test_policies_starts_without_what_only_whatif_needs(tmp_path: Path) -> None:
    """Listing names does not wait for the plotting, the table or the wire format."""
    code = (
        "import sys\nfrom unskew.cli.entry import main\ntry:\n    main(['policies'])\n"
        "except SystemExit:\n    print(*sorted(m for m in sys.modules))\n"
    )
    loaded = in_shell(tmp_path, python=("-c", code)).out.splitlines()[-1].split()
    assert "typer" in loaded
    heavy = {"matplotlib", "rich.table", "google.protobuf", "pyarrow.parquet", "grpc", "pyspark", "fastapi"}
    assert not heavy & set(loaded)


def test_whatif_shows_every_policy_with_every_figure(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """What was replayed, one line a policy, and a verdict that names the best."""
    out = whatif(capsys, stream).out
    assert "stream.parquet: 8,000 rows" in out
    assert "4 batches of 2,000 rows, 8 partitions" in out
    assert "--fresh previous" in out
    assert [name for name in FIGURES if name not in out] == []
    assert [line.split()[0] for line in out.splitlines() if line.strip()[:4] in ("hash", "kip ", "bala")] == [
        "hash", "kip", "balanced",
    ]  # fmt: skip
    assert "Best here: balanced" in out
    assert "Where a key may not be split: kip" in out


def test_whatif_tries_all_policies_by_default(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """Each registered one has its line."""
    done = in_process(capsys, "whatif", stream, "--column", "key", "--json")
    assert [p["policy"] for p in json.loads(done.out)["policies"]] == list(PLANNERS)


def test_whatif_prints_one_json_document_and_nothing_else(
    capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path
) -> None:
    """Also when files are written. The figures are in it, and every batch's loads add up."""
    done = whatif(capsys, stream, "--json", "--save-plans", tmp_path / "plans", "--plot", tmp_path / "p.png")
    told = json.loads(done.out)
    assert (told["rows"], told["partitions"], told["batch_rows"]) == (8000, 8, [2000] * 4)
    assert (told["fresh"], told["counted_batches"], told["key_types"]) == ("previous", [1, 2, 3], ["string"])
    for policy in told["policies"]:
        assert policy["imbalance"]["worst"] >= policy["imbalance"]["median"] >= 1.0
        assert policy["ksr"] == policy["replication"]
        assert all(sum(batch["loads"]) == batch["rows"] == 2000 for batch in policy["batches"])
    assert told["policies"][0]["makespan_relative_to_hash"] == 1.0


def test_whatif_says_when_one_batch_plans_for_itself(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """The file is shorter than a batch: same instead of previous, in words and in JSON."""
    assert "one batch only" in whatif(capsys, stream, "--batch", "8000").out
    told = json.loads(whatif(capsys, stream, "--batch", "8000", "--json").out)
    assert (told["fresh"], told["fresh_asked"]) == ("same", "previous")


def test_whatif_window_is_rounded_to_whole_batches(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """4,700 rows of batches of 2,000 are two batches; a window below half a batch is still one."""
    windows = [
        json.loads(whatif(capsys, stream, "--json", "--window", rows).out)["window_batches"]
        for rows in ("4700", "2000", "1")
    ]
    assert windows == [2, 1, 1]


def test_whatif_uses_weights_and_seed(capsys: pytest.CaptureFixture[str], stream: Path) -> None:
    """Both are in the document, and weights change where rows go."""
    weights = "4,1,1,1,1,1,1,1"
    told = json.loads(whatif(capsys, stream, "--json", "--weights", weights, "--seed", "9").out)
    assert (told["weights"], told["seed"]) == ([4.0] + [1.0] * 7, 9)
    loads = told["policies"][2]["batches"][0]["loads"]
    assert loads[0] == max(loads)


def test_an_even_stream_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Promise 6: where plain hashing copes, the advice is to do nothing."""
    pq.write_table(pa.table({"key": range(200_000)}), tmp_path / "even.parquet")
    done = in_process(capsys, "whatif", tmp_path / "even.parquet", "--partitions", "4", "--batch", "50000")
    assert done.out.splitlines()[-1].startswith("Do nothing:")


def test_no_policy_worth_it_is_said_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One key that may not be split: kip cannot help, and the verdict does not pretend."""
    (tmp_path / "one.txt").write_text("a\n" * 5000)
    done = in_process(capsys, "whatif", tmp_path / "one.txt", "--policies", "hash,kip")
    assert "Leave it at plain hash" in done.out
    alone = in_process(capsys, "whatif", tmp_path / "one.txt", "--policies", "hash")
    assert "Try other policies" in alone.out


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
def test_whatif_draws_a_plot(
    kind: str, magic: bytes, capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path
) -> None:
    """A picture of the kind that the name says; the folder holds nothing else afterwards."""
    path = tmp_path / f"load.{kind}"
    assert f"wrote {path}" in whatif(capsys, stream, "--plot", path).out
    assert path.read_bytes().startswith(magic)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "more", [["--policies", "hash"], ["--partitions", "100"], ["--batch", "8000"], ["--partitions", "1"], []]
)
def test_the_plot_names_hash_and_each_policy(
    more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With one policy, with many partitions, one batch or one partition; a `$` in the file's name is no formula."""
    path = write_stream(tmp_path / "a$b$.parquet")
    whatif(capsys, path, "--plot", tmp_path / "load.svg", *more)
    text = ElementTree.parse(tmp_path / "load.svg")
    comments = (tmp_path / "load.svg").read_text()
    assert text.getroot().tag.endswith("svg")
    for name in ["hash"] if "hash" in more else ["hash", "kip", "balanced"]:
        assert f"<!-- {name}" in comments
    assert "<!-- a$b$.parquet: load of" in comments


@pytest.mark.parametrize("partitions", some_of(["8", "16", "20", "32"], "32"))
def test_the_ticks_of_a_small_panel_are_few(
    partitions: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With all policies a panel is a third of the picture wide: at most ten partitions are named below it."""
    path = write_stream(tmp_path / "s.parquet")
    arguments = ["--column", "key", "--partitions", partitions, "--batch", "8000", "--plot", tmp_path / "load.svg"]
    in_process(capsys, "whatif", path, *arguments)
    axes = [
        g for g in ElementTree.parse(tmp_path / "load.svg").iter() if g.get("id", "").startswith("matplotlib.axis_")
    ]
    ticks = [sum(g.get("id", "").startswith("xtick") for g in axis.iter()) for axis in axes[::2]]
    assert ticks == [max(ticks)] * (len(PLANNERS) - 1)
    assert 3 <= max(ticks) <= 10


def test_saved_plans_route_as_the_replay_did(capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path) -> None:
    """One file a policy, with the stream's name and key type inside, and the digest that JSON tells."""
    told = json.loads(whatif(capsys, stream, "--json", "--save-plans", tmp_path / "a/b").out)
    assert sorted(file.name for file in (tmp_path / "a/b").iterdir()) == ["balanced.plan", "hash.plan", "kip.plan"]
    for policy in told["policies"]:
        plan = plan_from_bytes((tmp_path / "a/b" / f"{policy['policy']}.plan").read_bytes())
        assert plan.digest == policy["last_plan"]["digest"]
        assert (plan.info.stream, plan.key_types) == ("stream.parquet", ("string",))


def explain(capsys: pytest.CaptureFixture[str], plan: Path, *key: str) -> str:
    done = in_process(capsys, "explain", plan, *key)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_explain_says_where_a_key_goes_and_why(
    capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path
) -> None:
    """Plan, policy, the reason for the plan; the key's kind, share, partitions and reason."""
    whatif(capsys, stream, "--save-plans", tmp_path, "--fresh", "same", "--batch", "8000")
    hot = explain(capsys, tmp_path / "balanced.plan", "user-0")
    assert "plan 0.1 of stream.parquet: policy balanced, 8 partitions, 8,000 rows" in hot
    assert hot.count("because") == 2
    assert "hot, split in" in hot
    assert "tail" in explain(capsys, tmp_path / "balanced.plan", "nobody")


def test_explain_by_key_and_by_hash_agree(capsys: pytest.CaptureFixture[str], stream: Path, tmp_path: Path) -> None:
    """The hash that JSON tells for a key leads to the same answer."""
    whatif(capsys, stream, "--save-plans", tmp_path)
    told = json.loads(explain(capsys, tmp_path / "kip.plan", "user-3", "--json"))
    again = json.loads(explain(capsys, tmp_path / "kip.plan", "--hash", told["hash"], "--json"))
    assert (told.pop("key"), again.pop("key")) == (["user-3"], None)
    assert told == again
    assert told["plan"]["policy"] == "kip"


def test_explain_reads_a_key_by_the_types_of_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every key of a composite type is found hot with exactly its rows, negative numbers included."""
    days = pa.array([1, 1, 1, 2], pa.int32()).cast(pa.date32())
    table = {"n": pa.array([-5, -5, -5, 5], pa.int16()), "d": days, "x": [0.5, 0.5, 0.5, -1.0], "b": [True] * 4}
    pq.write_table(pa.table(table), tmp_path / "k.parquet")
    columns = [part for name in table for part in ("--column", name)]
    in_process(capsys, "whatif", tmp_path / "k.parquet", *columns, "--policies", "kip", "--save-plans", tmp_path)
    told = json.loads(explain(capsys, tmp_path / "kip.plan", "-5", "1970-01-02", "0.5", "true", "--json"))
    assert (told["rows"], told["share_of_rows"]) == (3, 0.75)
    assert told["plan"]["key_types"] == ["smallint", "date", "double", "boolean"]
    dashed = json.loads(explain(capsys, tmp_path / "kip.plan", "--json", "--", "5", "1970-01-03", "-1", "true"))
    assert dashed["rows"] == 1


def test_explain_takes_null_for_a_part_of_a_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--null N stands for the N-th part, whose KEY is left out: the rows of exactly that key are found."""
    keys = {"a": [None, None, "x", "x"], "n": pa.array([1, 1, None, 2]), "b": ["y", "y", None, "y"]}
    pq.write_table(pa.table(keys), tmp_path / "k.parquet")
    columns = [part for name in keys for part in ("--column", name)]
    in_process(capsys, "whatif", tmp_path / "k.parquet", *columns, "--policies", "kip", "--save-plans", tmp_path)
    told = json.loads(explain(capsys, tmp_path / "kip.plan", "1", "y", "--null", "1", "--json"))
    assert (told["key"], told["rows"]) == ([None, "1", "y"], 2)
    told = json.loads(explain(capsys, tmp_path / "kip.plan", "--null", "2", "--null", "3", "x", "--json"))
    assert (told["key"], told["rows"]) == (["x", None, None], 1)
    void = json.loads(explain(capsys, tmp_path / "kip.plan", "--null", "1", "--null", "2", "--null", "3", "--json"))
    assert void["hash"] == f"{42:#018x}"


def test_a_progress_bar_shows_on_a_terminal_only(stream: Path, tmp_path: Path) -> None:
    """With stderr on a terminal the bar is drawn there and stdout stays clean; otherwise stderr stays empty."""
    arguments = ["whatif", str(stream), "--column", "key", "--policies", "hash,kip", "--json"]
    assert in_shell(tmp_path, *arguments).err == ""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "unskew.cli.entry", *arguments],
        env={**environment(), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as run:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        out, _ = run.communicate()
    os.close(ours)
    assert b"replaying" in shown
    assert json.loads(out)["rows"] == 8000


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports the closed other end so
        return b""


@pytest.mark.parametrize("policies", some_of(["hash,balanced", "hash"], "hash,balanced"))
def test_a_reader_that_leaves_early_is_no_error(policies: str, stream: Path, tmp_path: Path) -> None:
    """`unskew ... | head -1`: no traceback, no complaint at exit, and the plans are written all the same; whether
    much or little was to come."""
    batch = "8000" if policies == "hash" else "200"
    arguments = ["whatif", str(stream), "--column", "key", "--json", "--batch", batch, "--policies", policies]
    arguments += ["--save-plans", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "unskew.cli.entry", *arguments],
        env={**environment(), "PYTHONUNBUFFERED": ""},  # as in a pipe: what is left goes out at exit
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 1
    assert {file.stem for file in tmp_path.iterdir()} == set(policies.split(","))


def test_the_command_runs_where_only_ascii_can_be_printed(tmp_path: Path) -> None:
    """A column name that the terminal cannot show is escaped, not a crash."""
    pq.write_table(pa.table({"schlüssel": ["a", "b"]}), tmp_path / "k.parquet")
    done = subprocess.run(
        [sys.executable, "-m", "unskew.cli.entry", "whatif", str(tmp_path / "k.parquet"), "--policies", "hash"],
        env={**environment(), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"schl\\xfcssel" in done.stdout


@pytest.mark.parametrize("name", some_of([b"n\xff.txt", "\u952e.txt".encode()], b"n\xff.txt"))
def test_a_file_name_that_nobody_can_show_is_no_obstacle(name: bytes, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, or a script that the plot's font lacks: escaped or boxes, without a complaint."""
    path = tmp_path / os.fsdecode(name)
    path.write_text("a\nb\na\n")
    done = in_shell(
        tmp_path, "whatif", path, "--policies", "kip", "--json", "--plot", "p.png", "--save-plans", tmp_path
    )
    assert (done.code, done.err) == (0, "")
    shown = name.decode("utf-8", "backslashreplace")
    assert json.loads(done.out)["file"] == shown
    assert plan_from_bytes((tmp_path / "kip.plan").read_bytes()).info.stream == shown
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)
