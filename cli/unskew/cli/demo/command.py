"""``unskew demo``: checks the options, runs the demo (``unskew.spark.demo``), shows it and writes the report."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.cli.errors import MissingExtraError
from unskew.cli.numbers import whole
from unskew.cli.output import check_folder, path_of, writing

if TYPE_CHECKING:
    from unskew.spark.demo import Demo

__all__ = ["DemoOptions", "run"]

PAGE = "index.html"
_NEEDED = {
    "spark": ("pyspark", "pandas"),
    "service": ("fastapi", "uvicorn", "pydantic_settings", "prometheus_client", "grpc_health"),
    "cli": ("matplotlib",),
}


@dataclass(frozen=True)
class DemoOptions:
    """The options, checked: the folder can be written to, and Java and all packages are installed."""

    demo: Demo
    out: Path
    service: str = ""

    @classmethod
    def of(
        cls, *, batches: str, rows: str, partitions: str, seed: str, out: str, service: str, quick: bool
    ) -> DemoOptions:
        _check_installed()
        from unskew.spark.demo import BOUNDS, Demo, check_java
        from unskew.spark.demo import quick as small

        texts = {"batches": batches, "rows": rows, "partitions": partitions, "seed": seed}
        sizes = {name: whole(f"--{name}", text, *BOUNDS[name]) for name, text in texts.items() if text}
        folder = path_of("--out", out)
        check_folder("--out", folder, [PAGE])
        check_java()
        if service:
            _check_service(service)
        return cls(replace(small() if quick else Demo(), **sizes), folder, service)


def _check_installed() -> None:
    missing = {name: extra for extra, names in _NEEDED.items() for name in names if find_spec(name) is None}
    if missing:
        extras = ",".join(dict.fromkeys(["cli", *missing.values()]))
        raise MissingExtraError(
            f"unskew demo needs {', '.join(missing)}, not installed; pip install 'unskew[{extras}]', "
            f"or '.[{extras}]' in a clone"
        )


def _check_service(target: str) -> None:
    """Call the service before Spark is started, to report a wrong address or credential (``UNSKEW_TOKEN``) early."""
    from unskew.client import Client

    with Client(target) as client:
        next(client.list_streams(), None)


def run(options: DemoOptions) -> int:
    """The exit code: 1 if the two results differ."""
    from rich.console import Console

    from unskew.cli.demo.report import page
    from unskew.cli.demo.screen import screen_for, summary
    from unskew.spark.demo import play

    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="unskew-demo-") as folder:
        with screen_for(console, options.demo) as screen:
            outcome = play(options.demo, Path(folder), screen, options.service)
            screen.phase("drawing the report")
            files = {options.out / PAGE: page(outcome).encode()}
        with writing(files):
            summary(console, outcome, options.out / PAGE)
    return 0 if outcome.proof.equal else 1
