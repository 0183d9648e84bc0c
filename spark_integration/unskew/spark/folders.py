"""A folder that outlives the job: where pins, state and output are kept, on any file system that Arrow knows.

``create`` is what exactness rests on: a file is there whole or not at all, it is on the disk when the call returns, and
the first writer wins. On a local (or mounted) disk that is a hard link to a finished file. HDFS has a rename that fails
where the name is taken. An object store, or a mount of one, has neither: there a look comes before the write, and what
keeps two drivers of one query apart is Spark's own log of batches.

Only the driver creates; tasks write files under names that no other attempt has (``put``).
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from unskew.core.arrays.frozen import derived
from unskew.core.errors import ConfigError

__all__ = ["Folder"]

_TEMPORARY = ".unskew-"
_ABANDONED = 3_600_000_000_000  # nanoseconds
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(.*)", re.DOTALL)  # one letter is a disk
_SAME = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names of what Arrow calls otherwise
_CANNOT = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}  # what some mounts answer


class Folder:
    """A folder by its path or URI (``/data/x``, ``file:/data/x``, ``hdfs://...``, ``s3://...``); pickles to that."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = os.fspath(where).rstrip("/") or "/"

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        return Folder, (self.where,)

    def __repr__(self) -> str:
        return f"Folder({self.where!r})"

    def sub(self, name: str) -> Folder:
        return Folder(f"{self.where}/{name}")

    @property
    def fs(self) -> FileSystem:
        """The file system, connected when it is first asked for."""
        return self._resolved[0]

    @property
    def local(self) -> Path | None:
        """The same on this machine's disks, or None."""
        return Path(self.path()) if isinstance(self.fs, LocalFileSystem) else None

    def path(self, name: str = "") -> str:
        """What ``fs`` calls this folder, or what is in it under this name."""
        root = self._resolved[1]
        return f"{root.rstrip('/')}/{name}" if name else root

    def uri(self, name: str = "") -> str:
        """What Spark calls it."""
        whole = f"{self.where}/{name}" if name else self.where
        return whole if _URI.fullmatch(whole) else f"file:{Path(whole).absolute()}"

    def same(self, other: Folder) -> bool:
        """Whether both are one folder, by what they are called."""
        if self._scheme != other._scheme:
            return False
        if self._scheme != "file":
            return self.path().rstrip("/") == other.path().rstrip("/") and bool(self.fs.equals(other.fs))
        return os.path.realpath(self.path()) == os.path.realpath(other.path())

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The whole file, or None where there is none."""
        try:
            with self.fs.open_input_stream(self.path(name), compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def names(self, sub: str = "") -> list[str]:
        """The finished files here or in a folder in here, sorted; none where there is no such folder."""
        entries = self.fs.get_file_info(FileSelector(self.path(sub), allow_not_found=True))
        files = [one.base_name for one in entries if one.type == FileType.File]
        return sorted(name for name in files if not name.startswith(_TEMPORARY) and not name.endswith(".crc"))

    def tidy(self, sub: str = "") -> None:
        """Delete temporary files of writers that died, an hour later."""
        now = time.time_ns()
        for one in self.fs.get_file_info(FileSelector(self.path(sub), allow_not_found=True)):
            if one.base_name.startswith(_TEMPORARY) and one.mtime_ns and now - one.mtime_ns > _ABANDONED:
                self._drop(one.path)

    # -- writing ----------------------------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> bool:
        """Whole and durable, or not at all; False, and nothing changed, where the file is there already."""
        if self.fs.get_file_info(self.path(name)).is_file:
            return False
        home = self._made(name)
        temporary = f"{home}/{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            self._write(temporary, data)
            return self._take(temporary, self.path(name))
        finally:
            self._drop(temporary)

    def put(self, name: str, data: bytes) -> None:
        """Write the file anew, durably. For names that only one writer uses."""
        self._made(name)
        self._write(self.path(name), data)
        if self.local is not None:
            _settle(Path(self.path(name)).parent)

    def delete(self, *names: str) -> None:
        """What is not there is gone already."""
        for name in names:
            self._drop(self.path(name))

    # -- how --------------------------------------------------------------------------------------------------

    @property
    def _scheme(self) -> str:
        uri = _URI.fullmatch(self.where)
        name = uri[1].lower() if uri else "file"
        return _SAME.get(name, name)

    @derived
    def _resolved(self) -> tuple[FileSystem, str]:
        whole = _URI.fullmatch(self.where)
        if self._scheme == "file":  # as Spark writes it: nothing is escaped
            return LocalFileSystem(), str(Path(whole[3] if whole else self.where).absolute())
        uri = f"{self._scheme}:{self.where.split(':', 1)[1]}"
        try:
            found: tuple[FileSystem, str] = FileSystem.from_uri(uri)
        except Exception as why:  # what Arrow raises depends on the file system
            opened = "a URI that pyarrow.fs.FileSystem.from_uri can open (file:, hdfs:, s3:, gs:, abfss:)"
            raise ConfigError("checkpoint", uri, f"a local path, or {opened}: {why}") from why
        return found

    def _made(self, name: str) -> str:
        """The folder that the file stands in, made where it is not there."""
        home = self.path(name).rsplit("/", 1)[0]
        if self.local is None:
            self.fs.create_dir(home, recursive=True)
        else:
            _make(Path(home))
        return home

    def _write(self, path: str, data: bytes) -> None:
        if self.local is None:
            with self.fs.open_output_stream(path, compression=None) as stream:
                stream.write(data)
            return
        with Path(path).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _take(self, temporary: str, final: str) -> bool:
        """Give the finished file its name, unless another one has it."""
        if self.local is not None and _linked(temporary, final):
            _settle(Path(final).parent)
            return True
        if self.fs.get_file_info(final).is_file:
            return False
        try:
            self.fs.move(temporary, final)
        except OSError:
            if self.fs.get_file_info(final).is_file and self.fs.get_file_info(temporary).is_file:
                return False  # another writer was quicker
            raise
        if self.local is not None:
            _settle(Path(final).parent)
        return True

    def _drop(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.fs.delete_file(path)


def _linked(temporary: str, final: str) -> bool:
    """Whether the file has its name now. Not, where the name is taken or the file system has no links."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as why:
        if why.errno not in _CANNOT:
            raise
        return False
    return True


def _make(folder: Path) -> None:
    """The folder and those above it, each on the disk."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _settle(folder.parent)


def _settle(folder: Path) -> None:
    """A new name is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as why:
        if why.errno not in _CANNOT:
            raise
    finally:
        os.close(handle)
