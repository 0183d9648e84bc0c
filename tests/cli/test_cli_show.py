"""What a replay is shown as: a table that fits its terminal, a verdict by the figures, a fair picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command import in_process, on_a_terminal, skewed, write_stream
from unskew.cli.whatif.job import Job
from unskew.cli.whatif.json_report import document
from unskew.cli.whatif.key_file import Keys
from unskew.cli.whatif.replay import replay
from unskew.cli.whatif.report import heading, verdict
from unskew.cli.whatif.results import PolicyResult, Replay, best_policies
from unskew.core.keys.hashing import hash_keys
from unskew.core.planners import PLANNERS, Origin

MAIN = ["policy", "imbalance", "imbalance", "planned", "replication", "moved", "makespan"]
ALL = [
    "policy",
    "imbalance",
    "imbalance",
    "planned",
    "replication",
    "BSI",
    "BCI",
    "moved",
    "plans",
    "makespan",
    "build",
]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        pytest.param(60, MAIN, marks=pytest.mark.long),
        pytest.param(80, MAIN, marks=pytest.mark.long),
        pytest.param(100, MAIN, marks=pytest.mark.long),
        (120, ALL),
    ],
)
def test_no_cell_is_cut_on_any_terminal(width: int, columns: list[str], tmp_path: Path) -> None:
    """Every policy's name and every figure is whole; what does not fit is left out by columns, at 120 nothing is. Lines
    are broken between words."""
    path = write_stream(tmp_path / "s.parquet", 20_000)
    lines = on_a_terminal(width, "whatif", path, "--column", "key", "--partitions", "64", "--batch", "5000")
    rows = {line.split()[0]: line.split() for line in lines if line.split()[:1] and line.split()[0] in PLANNERS}
    assert list(rows) == list(PLANNERS)
    assert all(len(row) == len(columns) for row in rows.values())
    assert all(cell[-1].isdigit() or cell.endswith("%") for row in rows.values() for cell in row[1:])
    assert not any("…" in line for line in lines)
    heads = [line.split() for line in lines if line.split()[:1] in (["imbalance"], ["policy"])]
    assert sorted({*heads[0], "policy"}) == sorted({*columns} - {"plans"} - {"planned"})
    assert {"planned", "plans"} & {*heads[1]} == {"planned", "plans"} & {*columns}
    if width >= 80:
        assert max(map(len, lines)) <= width
    assert any(line.startswith("Best here: ") for line in lines)


def test_plain_hash_is_always_the_first_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Asked for last, or not at all; but only plans that were asked for are saved."""
    path = write_stream(tmp_path / "s.parquet")
    for policies in ("kip", "kip,hash"):
        arguments = ["--policies", policies, "--save-plans", tmp_path / policies]
        lines = in_process(capsys, "whatif", path, "--column", "key", *arguments).out.splitlines()
        assert [line.split()[0] for line in lines if line.split()[:1] in (["hash"], ["kip"])] == ["hash", "kip"]
        assert {file.stem for file in (tmp_path / policies).iterdir()} == set(policies.split(","))


def run(policies: str, partitions: int = 8, hashes: np.ndarray | None = None, **more: object) -> Replay:
    job = Job(("hash", *policies.split(",")), partitions, 2_000, fresh="same", **more)  # type: ignore[arg-type]
    return replay(hash_keys(skewed(8_000)) if hashes is None else hashes, job, Origin(), lambda: 0.0)


def with_makespans(result: Replay, **makespans: float) -> Replay:
    """The same replay, had the policies taken so long."""
    return replace(result, policies=tuple(replace(p, relative_makespan=makespans[p.policy]) for p in result.policies))


def test_a_key_that_may_not_be_split_has_its_verdict_too() -> None:
    """The best of the policies that keep keys whole; plain hash and why, if none of them helps; or what to try."""
    result = run("balanced,kip")
    told = verdict(with_makespans(result, hash=1.0, balanced=0.5, kip=0.8))
    assert told[1].startswith("Where a key may not be split: kip, with batches in 0.80 ")
    lucky = replace(result, policies=tuple(replace(p, splits=False) for p in result.policies))
    assert verdict(with_makespans(lucky, hash=1.0, balanced=0.5, kip=0.8)) == told  # it did not split, but it may
    told = verdict(with_makespans(result, hash=1.0, balanced=0.5, kip=0.99))
    share = f"{result.heaviest_in_batch:.1%}"
    assert told[1:] == [
        f"Where a key may not be split: leave it at plain hash (the heaviest key is {share} of the rows of a batch)."
    ]
    told = verdict(with_makespans(run("balanced"), hash=1.0, balanced=0.5))
    assert told[1:] == ["Where a key may not be split: none of these policies; try --policies kip."]
    assert len(verdict(with_makespans(result, hash=1.0, balanced=0.9, kip=0.5))) == 1


def test_about_equal_makespans_are_told_apart_by_what_moves() -> None:
    """Within 2 % the one that moves least comes first and the others are named; beyond, the shortest alone."""
    result = run("redist,scan,kip")
    moved = {p.policy: sum(p.moved) for p in result.policies}
    assert moved["scan"] < moved["redist"]
    near = with_makespans(result, hash=1.0, redist=0.500, scan=0.509, kip=0.6)
    assert [p.policy for p in best_policies(near.policies)] == ["scan", "redist"]
    assert verdict(near)[0].startswith("Best here: scan, with batches in 0.51 ")
    assert verdict(near)[0].endswith("; about equal: redist.")
    far = with_makespans(result, hash=1.0, redist=0.500, scan=0.511, kip=0.6)
    assert [p.policy for p in best_policies(far.policies)] == ["redist"]
    assert "about equal" not in verdict(far)[0]


def test_with_weights_shares_are_by_weight() -> None:
    """The header says how far the fair shares go, the verdict compares with them; equal weights are even."""
    keys = Keys("s", ("key",), ("string",), np.array([1], np.uint64))
    heavy = run("balanced", 4, weights=(4.0, 2.0, 1.0, 1.0))
    assert "the fair share of a partition is 12.5% to 50.0%, by its weight." in heading(keys, heavy)[1]
    assert "times its fair share" in verdict(with_makespans(heavy, hash=1.0, balanced=0.5))[0]
    assert "an even share of a partition is 25.0%." in heading(keys, run("balanced", 4))[1]
    assert "is 25.0% (the weights are equal)" in heading(keys, run("balanced", 4, weights=(2.0,) * 4))[1]


def test_batch_figures_are_those_of_the_median_batch() -> None:
    """Imbalance, replication, BSI and BCI: one bad batch of five changes none of them."""
    calm = np.tile(hash_keys(np.arange(2_000)), 4)
    result = run("balanced", hashes=np.concatenate([calm, np.full(2_000, calm[0])]))
    keys = Keys("s", ("key",), ("bigint",), calm)
    for p, told in zip(result.policies, document(keys, result)["policies"], strict=True):
        batches = [b.routed for b in p.batches]
        assert len({b.bsi for b in batches}) > 1
        assert (p.imbalance, p.replication) == (batches[0].imbalance, batches[0].ksr)
        assert (told["bsi"], told["bci"], told["ksr"]) == (batches[0].bsi, batches[0].bci, batches[0].ksr)


def test_the_picture_shows_the_best_policy_at_its_median(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not hash's: the batch and the reason are in the title, and the policy's panel has exactly that figure."""
    path = write_stream(tmp_path / "s.parquet", 16_000)
    arguments = ["--column", "key", "--partitions", "8", "--batch", "2000", "--policies", "balanced,kip"]
    in_process(capsys, "whatif", path, *arguments, "--plot", tmp_path / "p.svg")
    hashes = hash_keys(pq.read_table(path)["key"])
    job = Job(("hash", "balanced", "kip"), 8, 2_000)
    result = replay(hashes, job, Origin(), lambda: 0.0)
    best = best_policies(result.policies)[0]
    batch = middle(best)
    drawn = (tmp_path / "p.svg").read_text()
    assert f"batch {batch} (of 0 to 7), 2,000 rows: where {best.policy}, the best here, has its median imba" in drawn
    assert f"; hash's own median is {result.policies[0].imbalance:.2f} -->" in drawn
    assert f"<!-- {best.policy}: fullest {best.imbalance:.2f}, hash {result.hash[batch].imbalance:.2f} -->" in drawn


def middle(policy: PolicyResult) -> int:
    return next(b.number for b in policy.batches if b.routed.imbalance == policy.imbalance)


@pytest.mark.parametrize(("rows", "lines"), [(6_000, False), (12_000, True)])
def test_few_batches_are_markers_many_are_lines(
    rows: int, lines: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two counted batches would be flat lines on top of each other: each policy has a place of its own instead."""
    path = write_stream(tmp_path / "s.parquet", rows)
    arguments = ["--column", "key", "--batch", "2000", "--policies", "balanced,kip,prompt"]
    in_process(capsys, "whatif", path, *arguments, "--plot", tmp_path / "p.svg")
    axes = [g for g in ElementTree.parse(tmp_path / "p.svg").iter() if g.get("id", "").startswith("axes_")]
    series = [[use.get("x") for use in group.iter("{http://www.w3.org/2000/svg}use")] for group in axes[-1]]
    places = [xs for xs in series if len(xs) == rows // 2_000 - 1]
    assert len(places) == 4
    assert len({xs[0] for xs in places}) == (1 if lines else 4)


def test_the_only_batch_needs_no_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One key, one row, one batch: there was nothing to choose."""
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "k.parquet")
    in_process(capsys, "whatif", tmp_path / "k.parquet", "--plot", tmp_path / "p.svg")
    assert "load of 16 partitions, 1 rows -->" in (tmp_path / "p.svg").read_text()
