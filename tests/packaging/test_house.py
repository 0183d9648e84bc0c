"""The rules of the house hold, and each one that is broken on purpose is reported; the map is the one of this tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import house, house_map
from tools.public_api import FACES, Entry, entries

FILES = list(house.modules())


def test_the_house_is_in_order() -> None:
    """Folder sizes, class names, plain names, public docstrings and file lengths are within their bounds."""
    rules = (house.folder_sizes, house.class_names, house.packages, house.length_faults)
    assert [fault for rule in rules for fault in rule(FILES)] == []
    assert list(house.documentation()) == []


def test_what_breaks_a_rule_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with too many modules, a class name twice, a name that has to be decoded, an empty package."""
    folder = tmp_path / "core" / "unskew" / "core"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for number in range(house.MOST_MODULES):
        (folder / f"module{number}.py").write_text("class Router: ...\n" if number < 2 else "")
    (folder / "shelf.py").write_text("class Told: ...\n")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    files = list(house.modules())
    assert len(list(house.folder_sizes(files))) == 1
    assert "say in a docstring" in next(house.packages(files))
    named = "\n".join(house.class_names(files))
    for words in ("called 'shelf'", "called 'Told'", "class Router is defined in"):
        assert words in named


def test_a_public_name_without_its_parameters_or_example_is_reported() -> None:
    """A section ``Parameters`` or the name in double backquotes documents a parameter; a bare mention does not."""
    whole = Entry(
        "f", "function", "f(a)", "Do it.\n\nParameters\n----------\na : int\n    How often.\n\n>>> f(1)", ("a",), True
    )
    assert list(house.faults_of("unskew.core", whole)) == []
    short = Entry("f", "function", "f(a)", "Do a thing.", ("a",), True)
    assert len(list(house.faults_of("unskew.core", short))) == 2
    assert "no docstring" in next(house.faults_of("unskew.core", Entry("f", "function", "f()", "", (), True)))


@pytest.mark.parametrize("face", FACES)
def test_every_export_is_found_in_the_source(face: str) -> None:
    """The names of ``__all__`` but the version and former names lead to a definition."""
    found = {entry.name for entry in entries(face) if "." not in entry.name}
    assert found >= set(__import__(face, fromlist=["__all__"]).__all__) - {"__version__", "Told"}


def test_the_map_is_the_one_of_this_tree() -> None:
    """docs/pictures/house.svg is what the import graph gives; ``make reference`` writes it."""
    assert house_map.main(["--check"]) == 0


def test_a_door_that_follows_from_others_is_not_drawn() -> None:
    """Rooms stand above those that they import, and rooms that import each other stand side by side."""
    doors = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"e"}, "e": {"d"}}
    assert house_map.needed(doors) == [("a", "b"), ("b", "c"), ("d", "e"), ("e", "d")]
    assert house_map.levels(doors) == {"a": 2, "b": 1, "c": 0, "d": 0, "e": 0}
