"""Bad input: one clear line on stderr with what is allowed, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import environment, in_process, in_shell, is_one_line, write_stream
from tests.doses import some_of
from unskew.core.histogram.histogram import Histogram
from unskew.core.planners import make_planner
from unskew.wire import plan_to_bytes

WRITING = ["--plot", "out.png", "--save-plans", "plans"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Good files and bad ones."""
    write_stream(tmp_path / "good.parquet", 400)
    (tmp_path / "good.csv").write_text("id,name\n1,x\n2,y\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "header.csv").write_text("id,name\n")
    (tmp_path / "empty.txt.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "half.parquet").write_bytes((tmp_path / "good.parquet").read_bytes()[:700])
    (tmp_path / "half.txt.gz").write_bytes(gzip.compress(b"a\nb\n" * 100)[:20])
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    (tmp_path / "ragged.csv").write_text("id,name\n1,x\n2\n")
    (tmp_path / "hollow").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "good\udcff.parquet").write_bytes((tmp_path / "good.parquet").read_bytes())
    (tmp_path / "twice.csv").write_text("id,id\n1,2\n")
    (tmp_path / "latin.csv").write_bytes("id,n\nnaïve,1\n".encode("latin-1"))
    (tmp_path / "header.latin.csv").write_bytes("naïve,n\nx,1\n".encode("latin-1"))
    (tmp_path / "wide.csv").write_bytes("id,n\nx,1\n".encode("utf-16"))
    (tmp_path / "latin.txt").write_bytes("naïve\n".encode("latin-1"))
    (tmp_path / "keys.txt").write_text("a\n")
    (tmp_path / "times.csv").write_text("key,falls,gaps,words\na,1,1,x\nb,2,,y\nc,1.5,3,z\n")
    (tmp_path / "semicolons.csv").write_text("id;n\nx;1\n")
    return tmp_path


def files_in(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


LONG = "a" * 300
GOOD = ["whatif", "good.parquet", "--column", "key"]
ROUTED = [*GOOD, "--policies", "kip,pk2"]
TIMED = ["whatif", "times.csv", "--column", "key", "--policies", "kip,pk2", "--window", "5", "--time"]
BAD = {
    "unknown policy": (
        [*GOOD, "--policies", "hash,kipp"],
        ["--policies: 'kipp'", "hash", "balanced", "prompt", "(did you mean kip?)"],
    ),
    "no policy": ([*GOOD, "--policies", ","], ["--policies", "hash", "kip"]),
    "unknown router": ([*GOOD, "--policies", "wchoice"], ["--policies: 'wchoice'", "kip", "(did you mean wchoices?)"]),
    "a planner as router": ([*GOOD, "--policies", "router:kip"], ["'router:kip'", "pk2", "wchoices"]),
    "a router as planner": ([*GOOD, "--policies", "planner:pk2"], ["'planner:pk2'", "kip", "balanced"]),
    "another kind": ([*GOOD, "--policies", "plan:kip"], ["'plan:kip'", "planner: or router:"]),
    "a kind without name": ([*GOOD, "--policies", "router:"], ["'router:'", "pk2"]),
    "no kind before a name": ([*GOOD, "--policies", ":kip"], ["':kip'", "planner: or router:"]),
    "slide beyond the window": ([*ROUTED, "--window", "100", "--slide", "101"], ["--slide", "101", "the window, 100"]),
    "slides too many": ([*ROUTED, "--window", "1000000", "--slide", "1"], ["--slide", "10 or more"]),
    "slides too large": (
        [*ROUTED, "--partitions", "8192", "--window", "100000", "--slide", "1", "--agents", "1024"],
        ["--slide", "12500 or more (memory)"],
    ),
    "agents of planners": ([*GOOD, "--agents", "2"], ["--agents: '2'", "a router among --policies"]),
    "agents too many": ([*ROUTED, "--agents", "1025"], ["--agents", "1 to 1024"]),
    "dsync alone": ([*ROUTED, "--dsync", "100"], ["--dsync", "100", "--agents"]),
    "dsync of strangers": ([*ROUTED, "--agents", "2", "--dsync", "100"], ["--dsync", "cooperate (dalton)"]),
    "dsync no number": ([*ROUTED, "--agents", "2", "--dsync", "1e3"], ["--dsync", "1e3", "a whole number"]),
    "capacities too few": ([*GOOD, "--capacities", "1,2"], ["--capacities: '1,2'", "16 numbers"]),
    "capacities too far apart": ([*GOOD, "--partitions", "2", "--capacities", "1,1e7"], ["--capacities", "1e6"]),
    "capacities and weights": (
        [*GOOD, "--partitions", "2", "--capacities", "1,2", "--weights", "1,2"],
        ["--weights", "--capacities", "not both"],
    ),
    "time without a window": ([*ROUTED, "--time", "day"], ["--window", "seconds", "--time"]),
    "time and no such window": ([*ROUTED, "--time", "day", "--window", "1e3"], ["--window", "1e3", "60 or 0.5"]),
    "time and no such slide": (
        [*ROUTED, "--time", "day", "--window", "1.5", "--slide", "2"],
        ["--slide", "not more than the window, 1.5"],
    ),
    "time of no column": ([*TIMED, "fall"], ["--time: 'fall'", "key, falls, gaps, words (did you mean falls?)"]),
    "time that falls": ([*TIMED, "falls"], ["--time: 'falls'", "after row 2"]),
    "time with gaps": ([*TIMED, "gaps"], ["--time: 'gaps'", "without NULL"]),
    "time in words": ([*TIMED, "words"], ["--time: 'words'", "timestamps"]),
    "time in text": (["whatif", "keys.txt", "--window", "5", "--time", "value"], ["--time", "Parquet or CSV"]),
    "wrong column": (
        ["whatif", "good.parquet", "--column", "kee"],
        ["kee", "key", "number", "day (did you mean key?)"],
    ),
    "wrong column of CSV": (["whatif", "good.csv", "--column", "kee"], ["kee", "id", "name"]),
    "wrong column of text": (["whatif", "binary.txt", "--column", "kee"], ["kee", "value"]),
    "no column": (["whatif", "good.parquet"], ["--column", "key", "number", "day"]),
    "no such file": (["whatif", "gone.parquet", "--column", "key"], ["gone.parquet", "no such file"]),
    "empty text": (["whatif", "empty.txt"], ["empty.txt", "at least one key"]),
    "empty Parquet": (["whatif", "empty.parquet", "--column", "key"], ["empty.parquet", "at least one key"]),
    "empty gzip": (["whatif", "empty.txt.gz"], ["empty.txt.gz", "at least one key"]),
    "header only": (["whatif", "header.csv", "--column", "id"], ["header.csv", "at least one key"]),
    "cut-off Parquet": (["whatif", "half.parquet", "--column", "key"], ["half.parquet", "parquet"]),
    "cut-off gzip": (["whatif", "half.txt.gz"], ["half.txt.gz", "text"]),
    "binary as text": (["whatif", "binary.txt"], ["binary.txt", "text"]),
    "ragged CSV": (["whatif", "ragged.csv", "--column", "id"], ["ragged.csv", "csv"]),
    "folder without files": (["whatif", "hollow"], ["hollow", "without files"]),
    "partitions no number": ([*GOOD, "--partitions", "many"], ["--partitions", "many", "1 to 8192"]),
    "partitions a fraction": ([*GOOD, "--partitions", "1.5"], ["--partitions", "1.5", "1 to 8192"]),
    "partitions zero": ([*GOOD, "--partitions", "0"], ["--partitions", "0", "1 to 8192"]),
    "partitions too many": ([*GOOD, "--partitions", "8193"], ["--partitions", "8193", "1 to 8192"]),
    "batch no number": ([*GOOD, "--batch", "big"], ["--batch", "big", "1 to"]),
    "window zero": ([*GOOD, "--window", "0"], ["--window", "0", "1 to"]),
    "seed negative": ([*GOOD, "--seed", "-1"], ["--seed", "-1", "0 to"]),
    "fresh": ([*GOOD, "--fresh", "never"], ["--fresh", "never", "previous", "same"]),
    "weights no numbers": ([*GOOD, "--weights", "1,heavy"], ["--weights", "heavy", "16"]),
    "weights too few": ([*GOOD, "--weights", "1,2"], ["--weights: '1,2'", "16 numbers"]),
    "weights negative": ([*GOOD, "--partitions", "2", "--weights", "1,-2"], ["--weights", "-2", "above 0"]),
    **{
        f"{option} as {text[:4]!a}": ([*GOOD, option, text], [option, "a whole number"])
        for option in ("--partitions", "--batch", "--window", "--seed", "--agents", "--slide")
        for text in ("1_6", "\u0661\u0666", " 16", "+16", "0x10", "1e1", "9" * 5000)
    },
    "weights with an underscore": ([*GOOD, "--partitions", "2", "--weights", "1_0,1"], ["--weights", "1_0,1", "2 num"]),
    "weights in another script": ([*GOOD, "--partitions", "2", "--weights", "\u0661,1"], ["--weights", "2 numbers"]),
    "file name too long": (["whatif", LONG], [LONG, "File name too long"]),
    "file below a file": (["whatif", "good.csv/keys"], ["good.csv/keys", "Not a directory"]),
    "pipe": (["whatif", "pipe"], ["pipe", "regular file"]),
    "device": (["whatif", "/dev/null"], ["/dev/null", "regular file"]),
    "explain pipe": (["explain", "pipe", "x"], ["pipe", "regular file"]),
    "explain name too long": (["explain", LONG, "x"], [LONG, "File name too long"]),
    "path not UTF-8": (["whatif", "good\udcff.parquet", "--column", "key"], ["good", "UTF-8", "rename"]),
    "column twice in CSV": (["whatif", "twice.csv", "--column", "id"], ["twice.csv", "2 columns", "'id'"]),
    **{
        f"not UTF-8: {name}": (["whatif", name, "--column", column], [name, "not UTF-8; re-encode it"])
        for name, column in (("latin.csv", "id"), ("header.latin.csv", "n"), ("wide.csv", "id"), ("latin.txt", "value"))
    },
    "another separator": (["whatif", "semicolons.csv", "--column", "id"], ["'id;n'", "separator seems to be ';'"]),
    "columns with commas": (
        ["whatif", "good.parquet", "--column", "key, day"],
        ["'key, day'", "--column key --column day"],
    ),
    "empty file name": (["whatif", ""], ["FILE: ''", "name of a file"]),
    "empty plan name": (["explain", "", "x"], ["PLAN: ''", "name of a file"]),
    "a table for a plan": (["explain", "good.csv", "x"], ["good.csv", "`unskew whatif --save-plans` wrote"]),
    "weights not finite": ([*GOOD, "--partitions", "2", "--weights", "1,nan"], ["--weights", "2 numbers above 0"]),
    "weights too far apart": ([*GOOD, "--partitions", "2", "--weights", "1,1e7"], ["--weights", "1e6"]),
    "unknown type": ([*GOOD, "--type", "strong"], ["strong", "bigint", "string"]),
    "types too many": ([*GOOD, "--type", "string", "--type", "int"], ["--type", "string, int"]),
    "unknown option": ([*GOOD, "--partition", "4"], ["--partition", "--help"]),
    "option without value": ([*GOOD, "--batch"], ["--batch", "--help"]),
    "file left out": (["whatif"], ["FILE", "--help"]),
    "unknown command": (["whatiff"], ["whatiff", "policies", "whatif", "explain"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_that_says_what_is_allowed(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, with --json, and with every option that writes: exit code 2, nothing on stdout, nothing written."""
    arguments, parts = BAD[case]
    monkeypatch.chdir(folder)
    before = files_in(folder)
    writing = WRITING if arguments[0] == "whatif" else []
    if arguments[-1] == "--batch":
        writing = []
    for more in ([], ["--json"] if writing else [], writing):
        done = in_process(capsys, *arguments, *more)
        assert (done.code, done.out) == (2, "")
        assert is_one_line(done.err), done.err
        assert [part for part in parts if part not in done.err] == []
    assert files_in(folder) == before


@pytest.mark.parametrize(
    "case",
    some_of(
        ["unknown policy", "wrong column", "empty text", "cut-off Parquet", "partitions no number", "unknown option"],
        "cut-off Parquet",
        "unknown option",
    ),
)
def test_the_real_command_keeps_the_contract_too(case: str, folder: Path) -> None:
    """The same in a process of its own, where nothing but the command itself catches what goes wrong."""
    arguments, parts = BAD[case]
    before = files_in(folder)
    done = in_shell(folder, *arguments, *WRITING, "--json")
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert [part for part in parts if part not in done.err] == []
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--plot", "out.jpg"], ["--plot", "out.jpg", ".png, .svg, .pdf"]),
        (["--plot", "no/such/out.png"], ["--plot", "no/such"]),
        (["--plot", "good.png"], ["--plot", "good.png", "is a folder"]),
        (["--save-plans", "good.csv"], ["--save-plans", "good.csv", "no folder"]),
        (["--save-plans", "good.csv/plans"], ["--save-plans", "good.csv"]),
        (["--plot", f"{LONG}.png"], ["--plot", LONG, "File name too long"]),
        (["--save-plans", LONG], ["--save-plans", LONG, "File name too long"]),
        (["--save-plans", f"new/{LONG}"], [LONG, "File name too long"]),
        (["--save-plans", ""], ["--save-plans: ''", "name of a file or folder"]),
        (["--plot", ""], ["--plot: ''", "name of a file"]),
        (["--plot", "pipe.png"], ["--plot", "pipe.png", "regular file"]),
        (["--policies", "pk2", "--save-plans", "plans"], ["--save-plans", "planner", "routers make no plans"]),
        (["--save-plans", "taken"], ["--save-plans", "taken/kip.plan", "is a folder"]),
        (["--plot", "same.png", "--save-plans", "same.png"], ["--plot", "same.png", "--save-plans"]),
        (["--plot", "same.png", "--save-plans", "same.png/plans"], ["--plot", "same.png", "--save-plans"]),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    more: list[str],
    parts: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bad place for one output keeps the other from being written as well."""
    (folder / "good.png").mkdir()
    (folder / "taken/kip.plan").mkdir(parents=True)
    os.mkfifo(folder / "pipe.png")
    monkeypatch.chdir(folder)
    before = files_in(folder)
    others = ["--save-plans", "plans"] if "--plot" in more else ["--plot", "out.png"]
    done = in_process(capsys, *GOOD, *others, *more)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert [part for part in parts if part not in done.err] == []
    assert files_in(folder) == before


def test_a_disk_that_fills_leaves_nothing_half_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two plans cannot be written: the first is not there either, its older version is as it was."""
    (folder / "old").mkdir()
    (folder / "old/balanced.plan").write_bytes(b"old")
    monkeypatch.chdir(folder)
    before = files_in(folder)
    write, written = Path.write_bytes, []

    def full(path: Path, data: bytes) -> int:
        written.append(path)
        if len(written) % 2 == 0:
            write(path, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    for place in ("old", "new/er"):
        done = in_process(capsys, *GOOD, "--policies", "balanced,kip", "--save-plans", place)
        assert (done.code, done.out) == (2, "")
        assert is_one_line(done.err), done.err
        assert f"{place}/kip.plan cannot be written: No space left on device" in done.err
    assert files_in(folder) == before
    assert len(written) == 4


KIP = [*GOOD, "--policies", "kip"]
STDOUT = [
    ["--help"], ["--version"], ["policies"], ["policies", "--json"], KIP, [*KIP, "--json", *WRITING],
    ["explain", "kip.plan", "user-1"],
]  # fmt: skip


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
@pytest.mark.parametrize("arguments", some_of(STDOUT, *STDOUT[::2]), ids=" ".join)
def test_a_stdout_that_takes_nothing_is_one_line(arguments: list[str], redirect: str, folder: Path) -> None:
    """A full disk or a closed stream: no traceback, no complaint at exit, and the files are not written either."""
    (folder / "kip.plan").write_bytes(saved_plan())
    before = files_in(folder)
    done = redirected(redirect, folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr), done.stderr
    assert "standard output" in done.stderr
    assert files_in(folder) == before


@pytest.mark.parametrize("redirect", some_of(["2>&-", "2>/dev/full"], "2>&-"))
def test_without_stderr_the_exit_code_still_tells(redirect: str, folder: Path) -> None:
    """The line goes nowhere, least of all to stdout; what succeeds, succeeds."""
    failed = redirected(redirect, folder, "whatif", "gone.parquet")
    assert (failed.returncode, failed.stdout) == (2, "")
    good = redirected(redirect, folder, *GOOD, "--json", "--policies", "hash")
    assert (good.returncode, json.loads(good.stdout)["rows"]) == (0, 400)


def redirected(redirect: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real command with one of its streams sent elsewhere by the shell."""
    command = ["sh", "-c", f'exec "$0" -W error -m unskew.cli.entry "$@" {redirect}', sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def saved_plan(types: tuple[str, ...] = ("string",)) -> bytes:
    planner = make_planner("kip", partitions=4)
    plan = planner.plan(Histogram.from_hashes(np.arange(100, dtype=np.uint64)))
    return plan_to_bytes(type(plan)(plan.partitions, plan.tail, plan.hot, types, plan.info))


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty", "gone", "folder"])
def test_a_damaged_plan_is_one_line(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever happened to the file: its name, what is wrong, exit code 2."""
    path, data = tmp_path / "kip.plan", bytearray(saved_plan())
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(b"no plan at all\n" if damage == "text" else b"")
    done = in_process(capsys, "explain", path, "user-1")
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert str(path) in done.err


@pytest.mark.parametrize(
    ("types", "key", "parts"),
    [
        (("bigint",), ["seven"], ["KEY", "seven", "bigint"]),
        (("int",), [str(2**31)], ["KEY", "int, -2147483648 to 2147483647"]),
        (("boolean",), ["maybe"], ["maybe", "boolean such as true"]),
        (("timestamp",), ["2024-01-31T12:00:00"], ["KEY", "timestamp such as 2024-01-31T12:00:00Z"]),
        (("timestamp_ntz",), ["2024-01-31T12:00:00Z"], ["KEY", "timestamp_ntz such as 2024-01-31T12:00:00"]),
        (("string", "int"), ["--null", "3", "a"], ["--null", "'3'", "1 to 2"]),
        (("string", "int"), ["--null", "0", "a"], ["--null", "'0'", "1 to 2"]),
        (("string", "int"), ["--null", "2", "a", "7"], ["KEY", "1 value (string) beside --null 2"]),
        (("string", "int"), ["--null", "2"], ["KEY", "1 value (string) beside --null 2"]),
        (("string",), ["--null", "1", "a"], ["KEY", "no values beside --null 1"]),
        (("string",), ["--null", "1", "--hash", "0x1"], ["--hash", "not both"]),
        ((), ["--null", "1"], ["KEY", "--hash"]),
        (("date",), ["yesterday"], ["KEY", "yesterday", "date", "2024-01-31"]),
        (("string", "int"), ["a"], ["KEY", "2 values", "string, int"]),
        (("string",), ["a", "b"], ["KEY", "a b", "1 value (string); a hash"]),
        (("string",), [], ["KEY", "--hash"]),
        ((), ["a"], ["KEY", "--hash"]),
        (("string",), ["\udcff"], ["KEY", "UTF-8", "--hash"]),
        (("string",), ["--hash", "0xg"], ["--hash", "0xg", "64 bits"]),
        (("string",), ["--hash", "1_6"], ["--hash", "1_6", "64 bits"]),
        (("string",), ["--hash", "0x_f"], ["--hash", "0x_f", "64 bits"]),
        (("string",), ["--hash", "\u0661"], ["--hash", "64 bits"]),
        (("string",), ["--hash", str(2**64)], ["--hash", str(2**64), "64 bits"]),
        (("string",), ["a", "--hash", "0x1"], ["--hash", "not both"]),
    ],
)
def test_a_key_that_the_plan_cannot_have_is_refused(
    types: tuple[str, ...], key: list[str], parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the value and the key's types."""
    path = tmp_path / "kip.plan"
    path.write_bytes(saved_plan(types))
    done = in_process(capsys, "explain", path, *key)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert [part for part in parts if part not in done.err] == []


def without(*packages: str) -> tuple[str, str]:
    """Python that behaves as if these packages were not installed."""
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in packages)
    return "-c", f"import sys; {hidden}from unskew.cli.entry import main; main()"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_command_says_what_to_install(missing: str, tmp_path: Path) -> None:
    """The base install has the command but not its packages."""
    done = in_shell(tmp_path, "policies", python=without(missing))
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert missing in done.err
    assert "pip install 'unskew[cli]'" in done.err


def test_without_matplotlib_only_the_plot_is_refused(folder: Path) -> None:
    """--plot says what to install and nothing is done; without --plot nobody misses it."""
    hide = (
        "import sys, importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *more: None if name == 'matplotlib' else find(name, *more); "
        "sys.modules['matplotlib'] = None; from unskew.cli.entry import main; main()"
    )
    refused = in_shell(folder, *GOOD, *WRITING, python=("-c", hide))
    assert (refused.code, refused.out) == (2, "")
    assert is_one_line(refused.err), refused.err
    assert "pip install 'unskew[cli]'" in refused.err
    assert not (folder / "plans").exists()
    assert in_shell(folder, *KIP, python=("-c", hide)).code == 0


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors raised on purpose become one line; anything else keeps its traceback."""
    import unskew.cli.policies
    from unskew.cli.entry import main

    def broken(*, as_json: bool) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(unskew.cli.policies, "policy_list", broken)
    with pytest.raises(ZeroDivisionError):
        main(["policies"])
    assert sys.exc_info()[0] is None
