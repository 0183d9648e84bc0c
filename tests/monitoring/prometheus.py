"""A real Prometheus that scrapes a few times a second, and promtool: found or fetched by ``tools/prometheus.sh``.

Where there is none and none can be had, its tests are skipped and say why; in CI they fail.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import free_ports

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "unskew" / "rules" / "unskew.yaml"
JOB, NAMESPACE = "unskew", "data"
SCRAPE = "250ms"
WINDOW = "5s"  # what Grafana would put in place of $__rate_interval, which is four scrapes at least
_PATIENCE = 120.0


@cache
def _program() -> tuple[str, str]:
    """Its path, or why there is none."""
    done = subprocess.run(["bash", "tools/prometheus.sh"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", done.stderr.strip())


def program() -> Path:
    path, why = _program()
    if not path and os.environ.get("CI"):
        pytest.fail(why)
    if not path:
        pytest.skip(why)
    return Path(path)


def promtool(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [program().parent / "promtool", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=240)


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass
class Prometheus:
    """One that runs."""

    web: httpx.Client

    def _get(self, path: str, **given: Any) -> Any:
        answer = self.web.get(f"/api/v1/{path}", params=given).json()
        assert answer["status"] == "success", f"{given}: {answer.get('error')}"
        return answer["data"]

    def ask(self, expr: str) -> list[Sample]:
        """What the expression gives now, without what is no number."""
        data = self._get("query", query=expr)
        found = data["result"] if data["resultType"] == "vector" else [{"metric": {}, "value": data["result"]}]
        samples = [Sample(one["metric"], float(one["value"][1])) for one in found]
        return [sample for sample in samples if math.isfinite(sample.value)]

    def told(self, expr: str) -> list[Sample]:
        """The same, as soon as there is something."""
        end = time.monotonic() + _PATIENCE
        while not (found := self.ask(expr)):
            assert time.monotonic() < end, f"no data: {expr}"
            time.sleep(0.1)
        return found

    def values(self, label: str, selector: str) -> list[str]:
        return list(self._get(f"label/{label}/values", **{"match[]": selector}))

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def metadata(self) -> dict[str, str]:
        """The type of each metric that is scraped."""
        return {name: of[0]["type"] for name, of in self._get("metadata").items()}


def config(folder: Path, targets: Sequence[str], token: str) -> Path:
    """Scrapes these replicas as the chart's ServiceMonitor has it done, and evaluates the rules of the chart."""
    path = folder / "prometheus.yml"
    path.write_text(f"""
global: {{scrape_interval: {SCRAPE}, scrape_timeout: {SCRAPE}, evaluation_interval: {SCRAPE}}}
rule_files: ["{RULES}"]
scrape_configs:
  - job_name: {JOB}
    authorization: {{credentials: {token}}}
    static_configs:
      - targets: {list(targets)}
        labels: {{namespace: {NAMESPACE}}}
""")
    return path


@contextlib.contextmanager
def prometheus(folder: Path, targets: Sequence[str], token: str) -> Iterator[Prometheus]:
    """On a free port, ended by its pid."""
    port = free_ports(1)[0]
    command = [
        program(),
        f"--config.file={config(folder, targets, token)}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        run = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as web:
            _until_ready(run, web, folder / "prometheus.log")
            yield Prometheus(web)
    finally:
        run.kill()
        run.wait()


def _until_ready(run: subprocess.Popen[bytes], web: httpx.Client, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        assert run.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            if web.get("/-/ready").status_code == 200:
                return
        time.sleep(0.05)
