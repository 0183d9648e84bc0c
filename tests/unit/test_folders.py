"""``Folder.create``: a file is there whole or not at all, the first writer wins, whatever the file system can do."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs as arrow

from unskew.core.errors import ConfigError
from unskew.spark.folders import Folder

WRITERS = 8
_KILLED = """
import os, signal, sys
from unskew.spark.folders import Folder
where, call = sys.argv[1:]
def dying(*words, **named):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, call, dying)
Folder(where).create("7.pb", b"x" * 100_000)
"""


def elsewhere() -> Folder:
    """A folder on a file system that is not local, in memory."""
    made = Folder("mock:///here")
    made.fs.create_dir(made.path())
    return made


@pytest.fixture(params=["local", "no links", "elsewhere"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param == "no links":

        def link(*_: object) -> None:
            raise OSError(errno.EPERM, "a mounted object store")

        monkeypatch.setattr(os, "link", link)
    return elsewhere() if request.param == "elsewhere" else Folder(tmp_path)


def test_what_a_dead_writer_has_left_goes_when_nobody_can_be_at_it(tmp_path: Path) -> None:
    """A file without its name yet: an hour later, and not before. What is finished stays."""
    folder = Folder(tmp_path)
    assert folder.create("7.pb", b"mine")
    old, new = (tmp_path / f".unskew-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    past = time.time() - 2 * 3600
    for path in (old, tmp_path / "7.pb"):
        os.utime(path, (past, past))
    folder.tidy()
    folder.tidy("nothing here")
    assert (old.exists(), new.exists(), folder.names()) == (False, True, ["7.pb"])


def test_the_first_writer_wins(folder: Folder) -> None:
    """The second is told, and changes nothing; no other file is left."""
    assert folder.create("a/b/7.pb", b"mine")
    assert not folder.create("a/b/7.pb", b"yours")
    assert folder.read("a/b/7.pb") == b"mine"
    assert folder.names("a/b") == ["7.pb"]
    everything = folder.fs.get_file_info(arrow.FileSelector(folder.path("a/b")))
    assert [one.base_name for one in everything] == ["7.pb"]


def test_read_names_and_delete(folder: Folder) -> None:
    """What is not there is None, an empty list, or gone already."""
    assert folder.read("none") is None
    assert folder.names("none") == []
    folder.delete("none")
    for name in ("10.pb", "9.pb", ".9.pb.crc"):
        folder.put(f"sub/{name}", name.encode())
    assert folder.names("sub") == ["10.pb", "9.pb"]
    folder.put("sub/9.pb", b"anew")
    assert folder.read("sub/9.pb") == b"anew"
    folder.delete("sub/9.pb", "sub/8.pb")
    assert folder.names("sub") == ["10.pb"]


def test_many_at_once_and_one_wins(tmp_path: Path) -> None:
    """Two drivers at the same pin: all but one are told, and all read the same."""
    for name in map(str, range(20)):
        start, made = threading.Barrier(WRITERS), [False] * WRITERS

        def write(writer: int, name: str = name, start: Any = start, made: list[bool] = made) -> None:
            start.wait()
            made[writer] = Folder(tmp_path).create(name, bytes([writer]) * 10_000)

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert made.count(True) == 1
        assert Folder(tmp_path).read(name) == bytes([made.index(True)]) * 10_000


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_killed_on_the_way(tmp_path: Path, call: str) -> None:
    """SIGKILL before the file is on the disk, and before it has its name: it is not there, and can be made."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), call], timeout=60.0)
    assert done.returncode == -signal.SIGKILL
    folder = Folder(tmp_path)
    assert (folder.read("7.pb"), folder.names()) == (None, [])
    assert folder.create("7.pb", b"whole")
    assert folder.names() == ["7.pb"]


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of what lasts: new folders in those above them, contents, name, the name in its folder."""
    said: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(handle: int) -> None:
        said.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().relative_to(tmp_path)}")
        fsync(handle)

    def linked(temporary: str, final: str) -> None:
        said.append(f"link {Path(final).relative_to(tmp_path)}")
        link(temporary, final)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    assert Folder(tmp_path).create("a/b/7.pb", b"x")
    contents = said.pop(2)
    assert contents.startswith("sync a/b/.unskew-")
    assert said == ["sync .", "sync a", "link a/b/7.pb", "sync a/b"]


def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        Folder(tmp_path).create("7.pb", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_move_that_somebody_was_quicker_than(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on HDFS: the look before found nothing, the rename finds the name taken."""
    folder, other = elsewhere(), {"made": False}
    real = folder.fs

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def move(self, _: str, final: str) -> None:
            with real.open_output_stream(final) as stream:
                stream.write(b"theirs")
            other["made"] = True
            raise OSError("it is there already")

    monkeypatch.setattr(Folder, "fs", property(lambda _: Late()))
    monkeypatch.setattr(Folder, "local", None)
    assert not folder.create("7.pb", b"mine")
    assert other["made"]
    assert folder.read("7.pb") == b"theirs"


def test_where_it_is(tmp_path: Path) -> None:
    """Paths are taken as Spark writes them, nothing in them is escaped; a folder pickles to its name."""
    for name in ("plain", "a b", "a#b", "a%20b", "a?b", "ä", "a:b"):
        path = tmp_path / name
        for where in (str(path), f"file:{path}", f"file://{path}", f"{path}/"):
            made = pickle.loads(pickle.dumps(Folder(where)))
            assert made.path() == str(path)
            assert made.local == path
            assert made.same(Folder(path))
        assert Folder(path).uri("x") == f"file:{path}/x"
        assert not Folder(path).same(Folder(tmp_path))
    assert Folder(tmp_path).sub("y").same(Folder(tmp_path / "y"))
    assert Folder(tmp_path / "x" / ".." / "y").same(Folder(tmp_path / "y"))
    (tmp_path / "link").symlink_to(tmp_path / "y")
    (tmp_path / "y").mkdir()
    assert Folder(tmp_path / "link").same(Folder(tmp_path / "y"))


def test_the_same_path_on_another_file_system_is_another_folder() -> None:
    """A path without a scheme, and Spark's default file system is not the local one: no connection is made to tell."""
    assert not Folder("/user/x").same(Folder("hdfs://names:8020/user/x"))
    assert not Folder("mock:///user/x").same(Folder("/user/x"))


def test_what_cannot_be_opened_is_refused() -> None:
    with pytest.raises(ConfigError, match="checkpoint: 'ftp://host/x' is not allowed"):
        Folder("ftp://host/x").path()
