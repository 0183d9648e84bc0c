"""The page of the Python API: what the three faces (``tools.public_api``) export, from their docstrings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from tools.public_api import FACES, Entry, entries
from tools.reference.page import prose

__all__ = ["page"]

_ITEM = re.compile(r"^(\S.*)$", re.MULTILINE)
_WHAT = {
    "unskew.core": "Pure decisions: numpy in, numpy out.",
    "unskew.client": "The service's verbs from any Python process. Errors are `unskew.core.errors.UnskewError`s.",
    "unskew.spark": "What a Spark job writes.",
}


def page() -> str:
    """The whole page as Markdown."""
    parts = ["# Python API\n\nWhat the three faces export. Everything else may change between releases without a word."]
    for face in FACES:
        parts.append(f"## {face}\n\n{_WHAT[face]}")
        parts += [_entry(face, entry) for entry in entries(face)]
    return "\n\n".join(parts)


def _entry(face: str, entry: Entry) -> str:
    level = "####" if "." in entry.name else "###"
    heading = f"{level} {face.removeprefix('unskew.')}: {entry.name}"
    code = "" if entry.kind == "module" else f"```py\n{_folded(entry.signature)}\n```"
    sections = [_section(name, text) for name, text in entry.sections().items()]
    return "\n\n".join(part for part in (heading, code, *sections) if part)


def _folded(signature: str) -> str:
    """One parameter a line where a line would be long."""
    if len(signature) <= 100 or "(" not in signature:
        return signature
    name, _, rest = signature.partition("(")
    arguments, closing, returned = rest.rpartition(")")
    return f"{name}(\n" + "".join(f"    {part},\n" for part in _split(arguments)) + f"{closing}{returned}"


def _split(arguments: str) -> Iterator[str]:
    """At the commas that are not within brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield arguments[start:at].strip()
            start = at + 1
    yield arguments[start:].strip()


def _section(name: str, text: str) -> str:
    if name in ("Parameters", "Attributes", "Returns", "Yields", "Raises"):
        return f"**{name}**\n\n{_items(text)}"
    body = "\n\n".join(_block(block) for block in re.split(r"\n{2,}", text) if block.strip())
    return f"**{name}**\n\n{body}" if name else body


def _block(block: str) -> str:
    if block.lstrip().startswith(">>>"):
        return f"```pycon\n{textwrap.dedent(block)}\n```"
    if block.lstrip().startswith("- "):
        return prose_lines(block)
    return prose(block)


def prose_lines(block: str) -> str:
    """A list keeps its lines."""
    return "\n".join(re.sub(r"``([^`]+)``", r"`\1`", line) for line in textwrap.dedent(block).splitlines())


def _items(text: str) -> str:
    """``name : type`` and an indented description, as a list; a bare paragraph stays one."""
    items = _ITEM.split(textwrap.dedent(text))
    lead, pairs = items[0].strip(), list(zip(items[1::2], items[2::2], strict=True))
    if all(not described.strip() for _, described in pairs):
        return prose(" ".join([lead, *(name for name, _ in pairs)]).strip())
    return "\n".join(_item(*pair) for pair in pairs)


def _item(name: str, described: str) -> str:
    label, _, kind = name.partition(" : ")
    typed = f" (`{kind}`)" if kind else ""
    return f"- `{label.strip('`')}`{typed}: {prose(' '.join(described.split()))}"
