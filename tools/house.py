"""Hold the house to its rules: folder sizes, one class name a root, plain names, documented public API, short files.

``python tools/house.py`` prints each fault and ends with 1 if there is any; ``--figures`` prints the measures.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools.public_api import FACES, Entry, entries

ROOT = Path(__file__).resolve().parents[1]
SIX = {"core", "proto", "client", "service", "spark_integration", "cli"}
ROOTS = {*SIX, "simulate"}
MOST_MODULES = 16
# The rebuilt house had 41,056 (docs/decisions/0025-house.md). A feature that needs more raises this in its own commit.
MOST_LINES = 51_500
FILE_MEDIAN, FUNCTION_P90 = 150, 20

# The "now" columns of the redesign (docs/decisions/0025): names that had to be decoded.
RIDDLES = {
    "module": {
        "shelf", "mending", "courier", "notes", "diary", "grpc_face", "http_face", "grpc_border", "http_border",
        "syncs", "observed", "outside", "pouring", "demand", "cadence", "lane", "link", "base_", "known", "told",
        "company", "glance", "poke", "newsroom", "pour", "apart",
    },
    "class": {
        "Shelf", "MendedStore", "Courier", "Diary", "GrpcFace", "HttpFace", "Bell", "Flights", "Recent", "Syncs",
        "Told", "Made", "Keep", "Heard", "Wanted", "Known", "Found", "Asked", "Pin", "Pins", "Pinned", "Bound",
        "BoundTo", "Binding", "Demand", "Cadence", "Lane", "Link", "Newsroom", "Notes", "Note",
    },
}  # fmt: skip


def modules() -> Iterator[Path]:
    """The Python files of all roots, generated stubs left out."""
    for root in sorted(ROOTS):
        for path in sorted((ROOT / root).rglob("*.py")):
            if not path.stem.endswith(("_pb2", "_pb2_grpc")):
                yield path


def folder_sizes(files: list[Path]) -> Iterator[str]:
    """Folders with more modules than a reader takes in at a glance."""
    folders: dict[Path, int] = defaultdict(int)
    for path in files:
        folders[path.parent] += 1
    for folder, count in folders.items():
        if count > MOST_MODULES:
            yield f"{folder.relative_to(ROOT)}: {count} modules; at most {MOST_MODULES}: divide it by subject"


def class_names(files: list[Path]) -> Iterator[str]:
    """Class names that are defined twice in one root, and names that have to be decoded."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in files:
        if path.stem in RIDDLES["module"]:
            yield f"{path.relative_to(ROOT)}: a module may not be called {path.stem!r}; see docs/glossary.md"
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                inside = path.relative_to(ROOT)
                places[inside.parts[0], node.name].append(str(inside))
                if node.name.strip("_") in RIDDLES["class"]:
                    yield f"{inside}: a class may not be called {node.name!r}; see docs/glossary.md"
    for (root, name), homes in places.items():
        if len(homes) > 1:
            yield f"{root}: class {name} is defined in {', '.join(homes)}; one name, one idea"


def packages(files: list[Path]) -> Iterator[str]:
    """Packages that do not say what is decided there."""
    for path in files:
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text("utf-8"))):
            yield f"{path.relative_to(ROOT)}: say in a docstring what is decided here and where to begin"


def documentation() -> Iterator[str]:
    """Public names without a full docstring."""
    for face in FACES:
        for entry in entries(face):
            yield from faults_of(face, entry)


def faults_of(face: str, entry: Entry) -> Iterator[str]:
    """What the docstring of one public name lacks."""
    where = f"{face}.{entry.name}"
    if not entry.text:
        yield f"{where}: no docstring"
        return
    missing = [name for name in entry.parameters if not entry.documents(name)]
    if missing:
        yield f"{where}: parameters not documented: {', '.join(missing)}"
    if entry.needs_example and ">>>" not in entry.text:
        yield f"{where}: no example"


def lengths(files: list[Path]) -> tuple[int, float, float]:
    """Lines of the six roots, the median of a file, and the 90th percentile of a function."""
    sizes, functions, total = [], [], 0
    for path in files:
        text = path.read_text("utf-8")
        count = len(text.splitlines())
        if path.relative_to(ROOT).parts[0] in SIX:
            total += count
        if path.name != "__init__.py":
            sizes.append(count)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
    return total, statistics.median(sizes), statistics.quantiles(functions, n=10)[-1]


def length_faults(files: list[Path]) -> Iterator[str]:
    """Measures above their bounds."""
    total, median, p90 = lengths(files)
    if total > MOST_LINES:
        yield f"the six roots have {total:,} lines; at most {MOST_LINES:,}"
    if median > FILE_MEDIAN:
        yield f"the median file has {median:.0f} lines; at most {FILE_MEDIAN}"
    if p90 > FUNCTION_P90:
        yield f"one function in ten has more than {p90:.0f} lines; at most {FUNCTION_P90}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", action="store_true", help="print the measures, too")
    asked = parser.parse_args()
    files = list(modules())
    faults = [
        *folder_sizes(files), *class_names(files), *packages(files), *documentation(), *length_faults(files)
    ]  # fmt: skip
    if asked.figures:
        total, median, p90 = lengths(files)
        print(
            f"{len(files)} modules, {total:,} lines in the six roots; file median {median:.0f}, function p90 {p90:.0f}"
        )
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "the house is in order")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
