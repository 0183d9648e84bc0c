"""What the pages of reliability say: tests and pages that they name are there, and the table is that of the file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.reliability import record
from benchmarks.reliability.figures import FIGURES
from benchmarks.reliability.taken import Dose, Taken

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("reliability.md", "threat-model.md")
NAMED = re.compile(r"`((?:tests|benchmarks|tools)/[\w/.-]+)`")
LINKED = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = set(NAMED.findall((ROOT / "docs" / page).read_text()))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    assert [name for name in sorted(named) if name.endswith(".py") and name.startswith("tests/")
            and "/test_" in name and "def test_" not in (ROOT / name).read_text()] == []  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_heading_that_a_page_links_to_is_there(page: str) -> None:
    """``test_docs`` looks for the files."""
    for target, heading in LINKED.findall((ROOT / "docs" / page).read_text()):
        text = (ROOT / "docs" / (target or page)).read_text()
        headings = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
                    for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}  # fmt: skip
        assert heading in headings, (target, heading)


@pytest.mark.parametrize("page", PAGES)
def test_every_row_of_a_page_names_what_shows_it(page: str) -> None:
    """A promise or a threat without a test or a page is a wish."""
    sections = (ROOT / "docs" / page).read_text().split("\n## ")
    (section,) = [one for one in sections if one.startswith(("What is promised", "Who may do what"))]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 8
    assert [row for row in rows if not NAMED.search(row) and "](" not in row.split("|")[-2]] == []


def test_the_table_of_the_page_is_that_of_the_file() -> None:
    """And the file's figures are those of the command: `python -m benchmarks.reliability --page` writes it."""
    page, entries = record.PAGE.read_text(), record.read()
    assert record.with_table(page, entries) == page
    assert [(one["number"], one["figure"], one["mark"]) for one in entries.values()] == [
        (number, FIGURES[number].what, FIGURES[number].mark) for number in entries
    ]
    assert sorted(FIGURES) == list(range(1, 16))


def test_a_run_replaces_what_it_took_and_says_what_is_missed(tmp_path: Path) -> None:
    file, dose = tmp_path / "figures.json", Dose(tmp_path, quick=True)
    late = record.entry(FIGURES[3], Taken("60 ms", met=False), dose, 1.0)
    record.write({3: late, 4: record.entry(FIGURES[4], Taken("not there", None), dose, 1.0)}, file)
    assert "Missed: figures 3." in record.missed(record.read(file))
    assert "Not measured: figures 1, 2, 4, 5" in record.missed(record.read(file))
    record.write({**record.read(file), 3: {**late, "met": True}}, file)
    assert [one["number"] for one in json.loads(file.read_text())] == [3, 4]
    assert "None of the figures" in record.missed(record.read(file))
    assert "| **missed**, in a small dose |" in record.table({3: late})
    assert "| met |" in record.table({3: {**late, "met": True, "command": "--figures 9 --inputs 1000000"}})
