"""The parameters of a policy by name: which ones an algorithm has, and whether a value has the right type.

Each algorithm checks the range of its parameters itself, by ``check_range`` and ``check_whole``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from unskew.core.errors import ConfigError

__all__ = ["check_range", "check_whole", "checked"]

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}


def check_range(name: str, value: float, least: float, most: float, allowed: str | None = None) -> None:
    """Refuse a number outside ``least`` to ``most``, both of which are allowed. ``allowed`` says more of the range."""
    if not least <= value <= most:
        raise ConfigError(name, value, allowed or f"{least} to {most}")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse what is not a whole number in this range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(name, value, f"a whole number from {least} to {most}")


def checked(policy: str, algorithm: type, parameters: Mapping[str, object]) -> dict[str, object]:
    """The parameters, or a ``ConfigError`` that names one that is unknown or of the wrong type."""
    fields_of = {field.name: field for field in fields(algorithm) if field.init and field.default is not MISSING}
    for parameter, value in parameters.items():
        if parameter not in fields_of:
            raise ConfigError(f"{policy} parameter", parameter, fields_of or "none: it has no parameters")
        kinds = str(fields_of[parameter].type)
        if not _is_a(value, kinds):
            raise ConfigError(parameter, value, f"{kinds.replace(' | ', ' or ')}, as {fields_of[parameter].default!r}")
    return dict(parameters)


def _is_a(value: object, kinds: str) -> bool:
    """Whether a value has an annotated type: names joined by " | " (annotations are not evaluated in this package).

    The algorithm checks the words of a ``Literal``. True and False do not count as numbers.
    """
    if kinds.startswith("Literal"):
        return isinstance(value, str)
    allowed = [kind for name in kinds.split(" | ") for kind in _KINDS[name]]
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, tuple(allowed))
