"""Write docs/reference from what is served and shipped; with ``--check`` say which pages are not as they should be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools.reference import commands, grpc, python, rest
from tools.reference.page import note

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "grpc.md": grpc.page,
    "rest.md": rest.page,
    "settings.md": commands.settings,
    "cli.md": commands.cli,
    "python.md": python.page,
}


def pages() -> dict[str, str]:
    """The pages by their names."""
    return {name: f"{note('make reference')}\n{make()}\n" for name, make in PAGES.items()}


def stale(folder: Path = FOLDER) -> list[str]:
    """The pages that are not as they should be, and files that nobody makes."""
    wanted = pages()
    there = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    if arguments == ["--check"]:
        found = stale(folder)
        if found:
            print(f"not as it should be in docs/reference: {', '.join(found)}; run `make reference`, then commit")
        else:
            print(f"{len(PAGES)} pages of docs/reference are up to date")
        return 1 if found else 0
    if arguments:
        print("usage: python -m tools.reference [--check]", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        (folder / name).write_text(page, "utf-8")
    print(f"wrote {len(PAGES)} pages to docs/reference")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
