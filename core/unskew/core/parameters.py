"""Parameters of policies by name: what an algorithm takes beyond the common settings, and whether a value is of its
kind. Ranges are checked by the algorithms themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields

from unskew.core.errors import ConfigError

__all__ = ["checked"]

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}


def checked(policy: str, algorithm: type, given: Mapping[str, object]) -> dict[str, object]:
    """The given parameters, or a ``ConfigError`` that names the one that is unknown or of the wrong kind."""
    known = _parameters(algorithm)
    for parameter, value in given.items():
        if parameter not in known:
            raise ConfigError(f"{policy} parameter", parameter, known or "none: it has no parameters")
        kinds = str(known[parameter].type)
        if not _is_a(value, kinds):
            raise ConfigError(parameter, value, f"{kinds.replace(' | ', ' or ')}, as {known[parameter].default!r}")
    return dict(given)


def _parameters(algorithm: type) -> dict[str, Field[object]]:
    return {field.name: field for field in fields(algorithm) if field.init and field.default is not MISSING}


def _is_a(value: object, kinds: str) -> bool:
    """Whether a value is of an annotated kind: names joined by " | " (annotations are not evaluated in this package);
    the words of a ``Literal`` are left to the algorithm. True and False are no numbers."""
    if kinds.startswith("Literal"):
        return isinstance(value, str)
    allowed = [kind for name in kinds.split(" | ") for kind in _KINDS[name]]
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, tuple(allowed))
