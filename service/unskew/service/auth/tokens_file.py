"""A tokens file as a whole, or not at all. A line that is cut may grant more than was meant: of ``*-staging``
remains ``*``.

A file of lines is whole where it ends with a newline. A Secret that Kubernetes shows to a pod is whole without one: the
kubelet puts it in place at once, by a link ``..data``. A file of JSON is whole where it can be read
(docs/decisions/0038-whole-tokens-files.md).
"""

from __future__ import annotations

from pathlib import Path

from unskew.core.errors import ConfigError
from unskew.service.auth.credentials import Entry, is_json, read_credentials

__all__ = ["read_tokens_file", "unreadable"]


def read_tokens_file(path: Path) -> tuple[Entry, ...]:
    """Its entries, at least one; a ``ConfigError`` where it is not whole, has none, or cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise unreadable(path, why) from None
    if text and not (is_json(text) or text.endswith("\n") or (path.parent / "..data").is_symlink()):
        raise ConfigError(
            f"--tokens-file {path}",
            "a last line without a newline",
            "whole lines: this one may be written in part; end it",
        )
    entries = read_credentials(text, str(path))
    if not entries:
        raise ConfigError(f"--tokens-file {path}", "no credential", "one line at least, or nobody could get in")
    return entries


def unreadable(path: Path, why: Exception) -> ConfigError:
    return ConfigError("--tokens-file", str(path), f"a file in UTF-8 that can be read ({why})")
