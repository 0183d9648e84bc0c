"""The release before this one, unpacked from git: its six roots, and processes that import them and nothing of ours."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["FIRST", "Release", "git", "name_of_previous", "unpacked"]

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("core", "proto", "client", "service", "spark_integration", "cli")
FIRST = "72250f5c5c31eac13ed55f8d1453fcb002a02e83"
"""What stands for the last release until there is one: service, client and streaming, before there was a chart."""


@dataclass(frozen=True)
class Release:
    """Where the roots of a release lie."""

    name: str
    folder: Path

    @property
    def path(self) -> str:
        """PYTHONPATH. The roots of this checkout, which an editable install adds, come after it and are not reached."""
        return os.pathsep.join(str(self.folder / root) for root in ROOTS)


def git(*arguments: str) -> str:
    """What git says; empty where it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def name_of_previous() -> str:
    """The highest version tagged before this commit; ``FIRST`` where none is. A commit that is a release itself is
    compared with the one before it."""
    tagged = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split()
    here = set(git("tag", "--points-at", "HEAD").split())
    return next((tag for tag in tagged if tag not in here), FIRST)


def unpacked(into: Path) -> Release:
    """The previous release. Skips where git has no history to take it from; fails where it should have."""
    if not git("rev-parse", "--git-dir"):
        pytest.skip("no git history here to take the previous release from (an unpacked source archive?)")
    name = name_of_previous()
    if not git("cat-file", "-t", f"{name}^{{commit}}"):
        shallow = git("rev-parse", "--is-shallow-repository") == "true"
        assert shallow, f"{name} is not in this repository, and it is no shallow clone: was its history rewritten?"
        pytest.skip(f"a shallow clone has no {name[:12]} to compare with; git fetch --unshallow --tags gets it")
    archive = subprocess.run(["git", "archive", name, *ROOTS], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return Release(name, into)
