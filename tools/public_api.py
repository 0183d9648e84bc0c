"""The public API of Python: what the three faces export, with its docstrings, read from the source.

Nothing is imported from the faces, so this works without Spark and without a service.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

__all__ = ["FACES", "Entry", "entries"]

ROOT = Path(__file__).resolve().parents[1]
FACES = {
    "unskew.core": "core/unskew/core",
    "unskew.client": "client/unskew/client",
    "unskew.spark": "spark_integration/unskew/spark",
}
_ROOTS = ("core", "client", "spark_integration", "service", "simulate", "cli")
_SECTION = re.compile(r"^(Parameters|Attributes|Returns|Yields|Raises|Examples|Notes|References)\n-+$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One public name: a class, a function, or a method (``Class.method``)."""

    name: str
    kind: str  # "class", "function", "method", "property", "module", "value"
    signature: str
    text: str
    parameters: tuple[str, ...]
    needs_example: bool
    context: str = ""  # of a method: its class's docstring, which may document what several methods take

    def documents(self, parameter: str) -> bool:
        """Whether the docstring says something of this parameter, in a section or in its text."""
        listed = rf"(?m)^[\w*, ]*\b{parameter}\b[\w*, ]*( :|$)"
        return re.search(rf"{listed}|``{parameter}[`=. (]", f"{self.text}\n{self.context}") is not None

    def sections(self) -> dict[str, str]:
        """The docstring by its sections; what stands before the first is under the empty name."""
        parts = _SECTION.split(self.text)
        return {"": parts[0].strip(), **dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]), strict=True))}


@cache
def _tree(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise LookupError(f"no module {module!r} in the roots")
    return ast.parse(path.read_text("utf-8"))


def _path(module: str) -> Path | None:
    for root in _ROOTS:
        base = ROOT / root / module.replace(".", "/")
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def _exports(face: str) -> list[str]:
    for node in _tree(face).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return sorted(ast.literal_eval(node.value))
    raise LookupError(f"{face} has no __all__")


def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Of each name that a module imports from us: the module that it is from, and its name there."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unskew")
        for alias in node.names
    }


def _definition(module: str, name: str) -> tuple[str, ast.AST] | None:
    """The module and the node where a name is defined, behind any number of imports."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return module, node
    home = _imports(module).get(name)
    if home is None:
        return None
    if _path(f"{home[0]}.{home[1]}") is not None:
        return f"{home[0]}.{home[1]}", _tree(f"{home[0]}.{home[1]}")
    return _definition(*home)


def entries(face: str) -> Iterator[Entry]:
    """Everything that a face exports, and the public methods of its classes, by name."""
    for name in _exports(face):
        home = _definition(face, name)
        if home is None:
            continue  # a string such as __version__, or a former name of another export
        module, node = home
        if isinstance(node, ast.Module):
            yield Entry(name, "module", name, ast.get_docstring(node) or "", (), needs_example=False)
            yield from (_renamed(entry, name) for entry in entries(module))
        elif isinstance(node, ast.ClassDef):
            yield from _class(name, node)
        elif isinstance(node, ast.FunctionDef):
            yield _function(name, "function", node, needs_example=True)


def _renamed(entry: Entry, prefix: str) -> Entry:
    return replace(entry, name=f"{prefix}.{entry.name}", signature=f"{prefix}.{entry.signature}", needs_example=False)


def _class(name: str, node: ast.ClassDef) -> Iterator[Entry]:
    text = ast.get_docstring(node) or ""
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    failure = any(base.endswith(("Error", "Warning")) for base in bases)
    parameters = tuple(_parameters(init)) if init is not None and not failure else ()
    signature = f"{name}({_arguments(init)})" if init is not None and not failure else name
    yield Entry(name, "class", signature, text, parameters, needs_example=init is not None and not failure)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and not _overload(item):
            kind = "property" if _is_property(item) else "method"
            yield replace(_function(f"{name}.{item.name}", kind, item, needs_example=False), context=text)


def _function(name: str, kind: str, node: ast.FunctionDef, *, needs_example: bool) -> Entry:
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    signature = name if kind == "property" else f"{name}({_arguments(node)}){returned}"
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    return Entry(name, kind, signature, text, tuple(_parameters(node)), needs_example=needs_example)


def _parameters(node: ast.FunctionDef) -> Iterator[str]:
    given = node.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.arg not in ("self", "cls") and not argument.arg.startswith("_"):
            yield argument.arg


def _arguments(node: ast.FunctionDef) -> str:
    text = ast.unparse(node.args)
    return re.sub(r"^(self|cls)(, )?(/, )?", "", text)


def _is_property(node: ast.FunctionDef) -> bool:
    names = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in node.decorator_list}
    return bool(names & {"property", "derived", "cached_property"})


def _overload(node: ast.FunctionDef) -> bool:
    return any(getattr(mark, "id", "") == "overload" for mark in node.decorator_list)
