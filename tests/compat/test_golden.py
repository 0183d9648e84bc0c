"""Plans, pins and manifests outlive a release: what an older one wrote is read as it was meant, and after a rollback
the older one reads what this one wrote.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.compat import golden
from tests.compat.previous import git, unpacked

pytestmark = pytest.mark.xdist_group("compat")

KEPT = sorted(folder for folder in (Path(__file__).parent / "golden").iterdir() if folder.is_dir())


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_what_an_older_release_wrote_is_read_as_it_was_meant(folder: Path) -> None:
    """The same plans that route the same rows the same way, and all that is said about them."""
    assert golden.check(folder) == []


def test_every_release_left_its_files() -> None:
    """Each tagged version has a folder of files that it wrote (docs/releasing.md); the first one has one anyhow."""
    assert KEPT
    tagged = set(git("tag", "--list", "v*", "--merged", "HEAD").split())
    assert tagged - {folder.name for folder in KEPT} == set()


def test_a_file_that_reads_otherwise_is_told(tmp_path: Path) -> None:
    """The check itself: one plan in the place of another."""
    golden.write(tmp_path)
    assert golden.check(tmp_path) == []
    (tmp_path / "plan-kip.pb").write_bytes((tmp_path / "plan-balanced.pb").read_bytes())
    assert golden.check(tmp_path) == ["plan-kip.pb"]


def test_after_a_rollback_the_older_release_reads_what_this_one_wrote(tmp_path: Path) -> None:
    """A query that went on under this release goes on under the one before, by the same pins."""
    before = unpacked(tmp_path / "previous")
    golden.write(tmp_path / "written")
    command = [sys.executable, "-W", "error", golden.__file__, "check", str(tmp_path / "written")]
    path = environment() | {"PYTHONPATH": before.path}
    done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
