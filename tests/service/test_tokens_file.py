"""A tokens file is taken as a whole or not at all: no cut of it grants what the whole one does not, an empty one locks
nobody out, and a Secret that was made without a last newline is taken where the kubelet shows it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.service.faces import digest_of
from unskew.core.errors import ConfigError
from unskew.service.auth.access import Access
from unskew.service.errors import UnauthenticatedError

EXPIRED = f"{digest_of('old')} old admin *-staging 2020-01-31\n"
LINES = f"# who may do what\n{digest_of('a')} etl admin clicks,eu/*\n{EXPIRED}"


class Clock:
    """The file is looked at once a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def granted(access: Access, token: str) -> set[str]:
    """The patterns that this token has."""
    try:
        return {grant.pattern for grant in access.identify(f"Bearer {token}").grants}
    except UnauthenticatedError:
        return set()


def test_no_cut_of_the_file_grants_anything_or_takes_anything_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At each byte: of an expired `*-staging` was left `*` for ever. Cut between two lines it is a shorter list."""
    path = tmp_path / "tokens"
    path.write_text(LINES)
    access = Access(str(path), timer=Clock())
    whole = {at + 1 for at, letter in enumerate(LINES) if letter == "\n"}
    for size in range(len(LINES)):
        path.write_text(LINES[:size])
        assert granted(access, "a") == {"clicks", "eu/*"}, size
        assert granted(access, "old") == set(), size
    path.write_text(LINES)
    assert granted(access, "a") == {"clicks", "eu/*"}
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(whole) == 3
    assert any("whole lines: this one may be written in part" in line for line in lines)
    assert digest_of("a") not in "".join(lines)


@pytest.mark.parametrize("empty", ["", "\n", "# nobody\n", '{"tokens": []}'])
def test_a_list_that_becomes_empty_does_not_replace_one_with_entries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, empty: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(LINES)
    access = Access(str(path), timer=Clock())
    path.write_text(empty)
    assert [granted(access, "a") for _ in range(5)] == [{"clicks", "eu/*"}] * 5
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "the credentials before stay" in line
    assert "no credential" in line
    with pytest.raises(ConfigError, match="no credential"):
        Access(str(path))


def test_an_unfinished_file_is_an_error_at_the_start_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(LINES.rstrip("\n"))
    with pytest.raises(ConfigError) as raised:
        Access(str(path))
    assert "a last line without a newline" in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_secret_without_a_last_newline_is_taken_where_the_kubelet_shows_it(tmp_path: Path) -> None:
    """`kubectl create secret --from-literal=tokens=...`: a link to a folder that is put in place at once, whole."""

    def show(version: str, text: str) -> None:
        folder = tmp_path / version
        folder.mkdir()
        (folder / "tokens").write_text(text)
        new = tmp_path / "..data_tmp"
        new.symlink_to(folder.name)
        new.rename(tmp_path / "..data")

    show("..2026_1", f"{digest_of('a')} etl admin clicks")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    access = Access(str(tmp_path / "tokens"), timer=Clock())
    assert granted(access, "a") == {"clicks"}
    show("..2026_2", f"{digest_of('b')} etl admin eu/*")
    assert (granted(access, "a"), granted(access, "b")) == (set(), {"eu/*"})


def test_json_is_whole_where_it_can_be_read_and_the_environment_always_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    row = {"sha256": digest_of("a"), "identity": "etl", "role": "admin", "streams": ["clicks"]}
    text = json.dumps({"tokens": [row]})
    path.write_text(text)
    assert granted(Access(str(path)), "a") == {"clicks"}
    for size in range(1, len(text)):
        path.write_text(text[:size])
        with pytest.raises(ConfigError):
            Access(str(path))
    assert granted(Access(tokens=LINES.rstrip("\n")), "a") == {"clicks", "eu/*"}
