"""The table of values in the chart's README, made from the comments of its values.yaml.

A comment that begins with ``# --`` is of the key below it, which then is a row with its default. Lines that follow
belong to it. Other comments are for whoever reads values.yaml.

``python tools/chart_readme.py`` writes the table, ``--check`` says whether it is as it should be.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[1] / "helm" / "unskew"
BEGIN, END = "<!-- values: made by tools/chart_readme.py -->", "<!-- end of values -->"
_KEY = re.compile(r"( *)([A-Za-z0-9_]+):")


@dataclass(frozen=True)
class Row:
    """A value by its dotted name."""

    name: str
    default: object
    text: str


def rows(text: str) -> list[Row]:
    """Every key that has a comment of its own, in their order."""
    values = yaml.safe_load(text)
    return [Row(name, _at(values, name), said) for name, said in _described(text.splitlines())]


def _described(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Names with their comments. Indentation is two spaces a level, as yamllint would have it."""
    path: list[str] = []
    said: list[str] = []
    for line in lines:
        comment = line.strip().removeprefix("#").strip() if line.strip().startswith("#") else None
        if comment is not None:
            if comment.startswith("-- "):
                said = [comment[3:]]
            elif said:
                said.append(comment)
            continue
        key = _KEY.match(line)
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            if said:
                yield ".".join(path), " ".join(said)
        said = []


def _at(values: Any, name: str) -> object:
    for step in name.split("."):
        values = values[step]
    return values


def undescribed(text: str) -> list[str]:
    """Values that neither have a comment nor are part of one that has."""
    known = {row.name for row in rows(text)}

    def leaves(values: object, path: tuple[str, ...]) -> Iterator[str]:
        if ".".join(path) in known:
            return
        if isinstance(values, dict) and values:
            for key, value in values.items():
                yield from leaves(value, (*path, key))
        else:
            yield ".".join(path)

    return list(leaves(yaml.safe_load(text), ()))


def table(text: str) -> str:
    lines = ["| value | what it is | default |", "|---|---|---|"]
    for row in rows(text):
        default = json.dumps(row.default).replace("|", "\\|")
        lines.append(f"| `{row.name}` | {row.text} | `{default}` |")
    return "\n".join(lines)


def page(readme: str, values: str) -> str:
    """The README with the table as it should be."""
    before, begun, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        sys.exit(f"chart_readme: {BEGIN} and {END} must be in the README")
    return f"{before}{BEGIN}\n\n{table(values)}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    values, readme = (CHART / "values.yaml").read_text(), CHART / "README.md"
    left = undescribed(values)
    if left:
        print(f"chart_readme: no comment (# -- ...) in values.yaml: {', '.join(left)}", file=sys.stderr)
        return 1
    made = page(readme.read_text(), values)
    if arguments == ["--check"]:
        if made != readme.read_text():
            print(
                "chart_readme: the table is not that of values.yaml; run python tools/chart_readme.py", file=sys.stderr
            )
            return 1
        return 0
    if arguments:
        print("usage: python tools/chart_readme.py [--check]", file=sys.stderr)
        return 2
    readme.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
