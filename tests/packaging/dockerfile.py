"""Reads a Dockerfile: the instructions that ours has, and an error for any other.

No engine is at hand where the tests run. ``rootfs.py`` does what is read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Dockerfile", "Stage", "Step", "expanded", "ignored", "pairs", "read", "words"]

STARTING = frozenset({"ARG", "FROM"})
DOING = frozenset({"COPY", "ENV", "RUN", "USER", "WORKDIR"})
TELLING = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "STOPSIGNAL"})
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
PAIR = re.compile(r'([\w.]+)=(?:"([^"]*)"|(\S*))\s*')


@dataclass(frozen=True)
class Step:
    """One instruction; ``rest`` is what follows its name, continued lines joined."""

    name: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next."""

    base: str
    name: str
    steps: tuple[Step, ...]

    def last(self, name: str) -> str:
        """What the last instruction of this name says; empty if there is none."""
        return next((step.rest for step in reversed(self.steps) if step.name == name), "")


@dataclass(frozen=True)
class Dockerfile:
    """Arguments before the first FROM, with their defaults; and the stages by name."""

    arguments: Mapping[str, str | None]
    stages: Mapping[str, Stage]
    default: Stage = field(repr=False)


def read(path: Path) -> Dockerfile:
    """The file taken apart; ``ValueError`` for what this reader does not know."""
    arguments: dict[str, str | None] = {}
    found: list[tuple[str, str, list[Step]]] = []
    for step in _steps(path.read_text()):
        if step.name == "FROM":
            base, _, name = step.rest.partition(" AS ")
            found.append((base, name, []))
        elif found:
            found[-1][2].append(step)
        elif step.name == "ARG":
            arguments.update([argument(step.rest)])
        else:
            raise ValueError(f"{step.name} before the first FROM")
    stages = [Stage(base, name, tuple(steps)) for base, name, steps in found]
    return Dockerfile(arguments, {stage.name: stage for stage in stages if stage.name}, stages[-1])


def _steps(text: str) -> list[Step]:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    steps = []
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name not in STARTING | DOING | TELLING:
            raise ValueError(f"the instruction {name} is not known to this reader: {line}")
        steps.append(Step(name, rest.strip()))
    return steps


def argument(rest: str) -> tuple[str, str | None]:
    """An ARG: its name, and its default or None."""
    name, equals, value = rest.partition("=")
    return name, value if equals else None


def pairs(rest: str, variables: Mapping[str, str]) -> dict[str, str]:
    """What an ENV or a LABEL says."""
    found = {name: expanded(quoted or plain, variables) for name, quoted, plain in PAIR.findall(rest)}
    if PAIR.sub("", rest).strip():
        raise ValueError(f"not of the form NAME=value: {rest}")
    return found


def words(rest: str) -> list[str]:
    """A command in exec form; the shell form, which would make a shell process 1, is refused."""
    if not rest.startswith("["):
        raise ValueError(f'not in exec form ["..."]: {rest}')
    told: list[str] = json.loads(rest)
    return told


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$NAME`` and ``${NAME}`` by their values; empty where there is none, as engines do."""
    return VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def ignored(path: Path) -> tuple[list[str], list[str]]:
    """A ``.dockerignore`` that keeps away all but what it names: those names, and patterns of names never taken."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    if lines[0] != "*":
        raise ValueError(f"{path.name} must begin with *: only what is named is sent")
    kept = [line[1:] for line in lines[1:] if line.startswith("!")]
    never = [line[3:] for line in lines[1:] if line.startswith("**/")]
    if len(kept) + len(never) != len(lines) - 1:
        raise ValueError(f"{path.name} has a pattern that is neither !name nor **/name")
    return kept, never
