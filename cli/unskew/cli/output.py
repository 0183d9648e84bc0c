"""Writes result files: all of them or none. Whether they can be written is checked before the work is done."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unskew.cli.errors import OutputError, first_line
from unskew.core.errors import ConfigError

__all__ = ["check_apart", "check_file", "check_folder", "path_of", "writing"]


def path_of(option: str, text: str) -> Path:
    """The path. An empty one (``"$UNSET_VARIABLE"``), which would be the current folder, is refused."""
    if not text:
        raise ConfigError(option, text, "the name of a file or folder; . is the current folder")
    return Path(text)


def check_file(option: str, path: Path) -> None:
    """Refuse a file that cannot be written; nothing is changed."""
    with _os_errors_as_output_errors(f"{option}: {str(path)!r}"):
        _check_target(option, path)
        if not stat.S_ISDIR(_mode(path.parent)):
            raise OutputError(f"{option}: the folder {str(path.parent)!r} does not exist; make it first")
        if not os.access(path.parent, os.W_OK):
            raise OutputError(f"{option}: the folder {str(path.parent)!r} cannot be written to; choose another")


def check_folder(option: str, path: Path, names: Iterable[str]) -> None:
    """Refuse a folder that cannot be made or written to, or in which something else has one of these names."""
    with _os_errors_as_output_errors(f"{option}: {str(path)!r}"):
        if _mode(path) and not path.is_dir():
            raise OutputError(f"{option}: {str(path)!r} is no folder; give a folder")
        nearest = next(folder for folder in (path, *path.absolute().parents) if _mode(folder))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise OutputError(f"{option}: nothing can be written in {str(nearest)!r}; choose another folder")
        for name in names:
            _check_target(option, path / name)


def check_apart(plot: Path, folder: Path) -> None:
    """Refuse a plot with the name of the folder, or of a folder above it, that will be made."""
    real = Path(os.path.realpath(folder))
    if Path(os.path.realpath(plot)) in (real, *real.parents):
        raise OutputError(f"--plot: {str(plot)!r} is to be a folder, by --save-plans; give another file")


def _check_target(option: str, path: Path) -> None:
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise OutputError(f"{option}: {str(path)!r} is a folder; give a file, or move it away")
    if mode and not stat.S_ISREG(mode):
        raise OutputError(f"{option}: {str(path)!r} is no regular file; give another name, or move it away")


def _mode(path: Path) -> int:
    """The mode of the file; 0 if there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@contextmanager
def _os_errors_as_output_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as why:
        raise OutputError(f"{what} cannot be written: {why.strerror or first_line(why)}") from None


@contextmanager
def writing(files: Mapping[Path, bytes]) -> Iterator[None]:
    """All of the files or none: written under temporary names, and renamed when the block has run.

    If the block fails, nothing is left behind. If the reader of stdout has left (``| head``), the files are still
    written.
    """
    broken_pipe: BrokenPipeError | None = None
    with ExitStack() as undo:
        temporary = {path: path.with_name(f".unskew.{os.getpid()}.{number}") for number, path in enumerate(files)}
        for path, data in files.items():
            with _os_errors_as_output_errors(str(path)):
                _make(path.parent, undo)
                undo.callback(_remove, temporary[path])
                temporary[path].write_bytes(data)
        try:
            yield
        except BrokenPipeError as why:
            broken_pipe = why
        for path in files:
            with _os_errors_as_output_errors(str(path)):
                temporary[path].replace(path)
        undo.pop_all()
    if broken_pipe is not None:
        raise broken_pipe


def _make(folder: Path, undo: ExitStack) -> None:
    """Make the folder and those above it; ``undo`` removes what was made here."""
    for each in (*reversed(folder.parents), folder):
        if not _mode(each):
            each.mkdir()
            undo.callback(_remove, each)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.rmdir() if path.is_dir() else path.unlink()
