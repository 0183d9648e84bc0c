"""Parameters of policies by name: what an algorithm takes beyond the common settings, and whether a value is of its
kind. Ranges are checked by the algorithms themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from unskew.core.errors import ConfigError

__all__ = ["checked", "defaults_of"]


def defaults_of(algorithm: type) -> dict[str, object]:
    """The parameters of an algorithm (a dataclass) and their defaults."""
    return {field.name: field.default for field in fields(algorithm) if field.init and field.default is not MISSING}


def checked(policy: str, algorithm: type, given: Mapping[str, object]) -> dict[str, object]:
    """The given parameters, or a ``ConfigError`` that names the one that is unknown or of the wrong kind."""
    known = defaults_of(algorithm)
    for parameter, value in given.items():
        if parameter not in known:
            raise ConfigError(f"{policy} parameter", parameter, known or "none: it has no parameters")
        if not _like(known[parameter], value):
            raise ConfigError(parameter, value, f"a value like its default, {known[parameter]!r}")
    return dict(given)


def _like(default: object, value: object) -> bool:
    """Whether a value is of the kind that the default is of; None stands for an optional whole number."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if default is None:
        return value is None or isinstance(value, int)
    return isinstance(value, type(default))
