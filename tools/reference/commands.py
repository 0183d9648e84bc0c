"""The pages of the command line and of the service's settings, from the typer application and the settings model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer

from tools.reference.page import number, paragraphs, table
from unskew.cli.app import app
from unskew.service.app.settings import Settings

__all__ = ["cli", "settings"]

SETTINGS = """# Settings of the service

As flags of `unskew serve` or in the environment; a flag wins. Times are in seconds, sizes in bytes. `unskew config
check` takes the same, says what is wrong, and prints what would hold. Traces go where OpenTelemetry's own variables
(`OTEL_EXPORTER_OTLP_ENDPOINT`) say.
"""
CLI = """# The command line

`unskew` is there after installation; `unskew serve` needs the extra `service`, the others `cli`. An error is one line
on stderr and exit code 2.
"""
NO_FLAG = {"tokens"}  # secrets: not for a list of processes


def settings() -> str:
    rows = []
    for name, about in Settings.model_json_schema()["properties"].items():
        flag = "" if name in NO_FLAG else f"`--{name.replace('_', '-')}`"
        default = about.get("default")
        shown = "none" if default in ("", None) else f"`{default if isinstance(default, str) else json.dumps(default)}`"
        rows.append((flag, f"`UNSKEW_{name.upper()}`", shown, _allowed(about), about["description"]))
    return "\n\n".join((paragraphs(SETTINGS), table(("flag", "environment", "default", "allowed", "meaning"), rows)))


def _allowed(about: dict[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(f"`{one}`" for one in about["enum"])
    if "minimum" in about and "maximum" in about:
        return f"{number(about['minimum'])} to {number(about['maximum'])}"
    if "exclusiveMinimum" in about:
        return f"above {number(about['exclusiveMinimum'])}"
    return f"from {number(about['minimum'])}" if "minimum" in about else ""


def cli() -> str:
    return "\n\n".join((paragraphs(CLI), *_commands("unskew", typer.main.get_command(app))))


def _commands(name: str, command: Any) -> Iterator[str]:
    for short, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from _commands(f"{name} {short}", inner)
            continue
        yield f"## {name} {short}"
        yield paragraphs(inner.help or "")
        rows = [_row(one) for one in inner.params if one.name != "help"]
        if rows:
            yield table(("option", "value", "default", "meaning"), rows)
        else:
            yield "Its options are the [settings](settings.md)."


def _row(parameter: Any) -> tuple[str, str, str, str]:
    argument = parameter.param_type_name == "argument"
    names = parameter.metavar if argument else ", ".join(f"`{one}`" for one in parameter.opts)
    value = "" if argument else f"`{parameter.metavar}`" if parameter.metavar else ""
    needed = argument and parameter.required
    default = "needed" if needed else f"`{parameter.default}`" if parameter.default not in (None, "", False) else ""
    return (f"`{names}`" if argument else names), value, default, parameter.help or ""
