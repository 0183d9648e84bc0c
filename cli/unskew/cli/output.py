"""Writes results: all of them or none. What cannot be written is found out before the work is done."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from unskew.cli.errors import OutputError, first_line

__all__ = ["check_file", "check_folder", "write_all"]


def check_file(option: str, path: Path) -> None:
    """Refuse a file that could not be written, without touching anything."""
    if path.is_dir():
        raise OutputError(f"{option}: {str(path)!r} is a folder; give a file")
    if not path.parent.is_dir():
        raise OutputError(f"{option}: the folder {str(path.parent)!r} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{option}: the folder {str(path.parent)!r} cannot be written to; choose another")


def check_folder(option: str, path: Path) -> None:
    """Refuse a folder that could neither be used nor made."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{option}: {str(path)!r} is no folder; give a folder")
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(f"{option}: nothing can be written in {str(nearest)!r}; choose another folder")


def write_all(files: Mapping[Path, bytes]) -> None:
    """Each file whole or not at all: written beside its place, then renamed."""
    try:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_bytes(data)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as why:
        raise OutputError(f"{why.filename}: cannot be written: {why.strerror or first_line(why)}") from None
