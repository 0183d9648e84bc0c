"""Names that this release and the one before have in different modules.

``golden.py`` and ``job.py`` run under either release, as programs: so this file imports nothing of the project itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["either"]


def either(*addresses: str) -> Any:
    """The first of these ``module:name`` that the release which runs this has."""
    for address in addresses:
        module, _, name = address.partition(":")
        try:
            return getattr(import_module(f"unskew.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"neither release has any of {', '.join(addresses)}")
