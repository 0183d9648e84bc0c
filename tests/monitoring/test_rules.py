"""The alerts: each fires when it should and only then, says what and how bad, and has a page that helps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.doses import some_of
from tests.monitoring.load import World
from tests.monitoring.prometheus import ROOT, RULES, Prometheus, promtool
from tests.monitoring.test_names import promql

pytestmark = pytest.mark.xdist_group("monitoring")
Watched = tuple[World, Prometheus]
FILES = sorted(Path(__file__).parent.glob("rules_*test.yaml"))
OF_HOURS = Path(__file__).parent / "rules_test.yaml"  # promtool takes as long for the days of the other
CASES = [case for file in FILES for case in yaml.safe_load(file.read_text())["tests"]]
DOCS = ROOT / "docs"
RUNBOOKS = DOCS / "runbooks"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule
}
PAGES = sorted(RUNBOOKS.glob("*.md"))
_LOGS = re.compile(r"kubectl\b.*\blogs\b.*(?:\s-l\b|--selector)")
SECTIONS = ("**Means:**", "**Users notice:**", "## How to look", "## What to do", "**Ignore it**")


def test_the_rules_are_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", some_of(FILES, OF_HOURS), ids=[file.stem for file in FILES])
def test_each_alert_fires_when_it_should_and_only_then(file: Path) -> None:
    """The cases of the file, by promtool."""
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    """And no case is of an alert that is not there."""
    fires: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    for case in CASES:
        for one in case["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent)[one["alertname"]] += 1
    assert set(fires) == set(ALERTS)
    assert set(silent) == set(ALERTS)


def test_each_alert_has_a_case_in_which_it_fires_and_there_are_two_replicas() -> None:
    """Each replica tells of itself, and any may take any message: what is right of one may be wrong of two."""
    of_two = {
        one["alertname"]
        for case in CASES
        for one in case["alert_rule_test"]
        if one["exp_alerts"] and len(set(re.findall(r'instance="(\w+)"', str(case["input_series"])))) > 1
    }
    assert of_two == set(ALERTS)


NEVER, ALWAYS = ("vector(0) > 1", True), ("vector(1)", False)


@pytest.mark.parametrize(("broken", "fires"), some_of([NEVER, ALWAYS], NEVER), ids=["never", "always"])
def test_the_cases_see_an_alert_that_never_fires_and_one_that_always_does(
    broken: str, fires: bool, tmp_path: Path
) -> None:
    """The cases in which it fires the one, those in which it does not the other: none is a case that cannot fail."""
    groups = [{**group, "rules": [_broken(rule, broken) for rule in group["rules"]]} for group in GROUPS]
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": groups}))
    seen: set[str] = set()
    for file in FILES:
        found = yaml.safe_load(file.read_text()) | {"evaluation_interval": "10m"}  # often enough for what is constant
        cases = tmp_path / file.name
        cases.write_text(json.dumps({**found, "rule_files": [str(rules)], "tests": _only(found["tests"], fires)}))
        done = promtool("test", "rules", cases)
        assert done.returncode == 1
        seen |= set(re.findall(r"alertname: ?(Unskew\w+), time", done.stdout + done.stderr))
    assert seen == set(ALERTS)


def _only(cases: list[dict[str, Any]], fires: bool) -> list[dict[str, Any]]:
    return [
        {
            "interval": case["interval"],
            "input_series": case["input_series"],
            "alert_rule_test": [one for one in case["alert_rule_test"] if bool(one["exp_alerts"]) == fires],
        }
        for case in cases
    ]


def _broken(rule: dict[str, Any], expr: str) -> dict[str, Any]:
    return {**rule, "expr": expr} if "alert" in rule else rule


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_it_is_and_where_help_is(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["for"]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"RUNBOOKS/{alert}.md"
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    assert [section for section in SECTIONS if section not in text] == []
    assert promql(text)


def test_the_runbooks_are_those_of_the_alerts_and_all_in_the_index() -> None:
    """With the severity that the rule has."""
    assert {page.stem for page in PAGES} == {*ALERTS, "README"}
    rows = re.findall(r"^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \|", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
    assert dict(rows) == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}


def test_every_selector_is_of_the_job_that_the_chart_puts_in() -> None:
    """Two releases under one Prometheus must not tell of each other."""
    for name, expr in _all_expressions().items():
        selectors = re.findall(r"\{([^{}]*)\}", expr)
        assert selectors, name
        assert all(selector.startswith('job="unskew"') for selector in selectors), name


def test_that_nothing_answers_is_told_with_the_labels_of_the_release(tmp_path: Path) -> None:
    """Of a release of which Prometheus knows nothing at all, too: else AlertmanagerConfig would not route it, and
    nobody would know which of two it is."""
    own = 'namespace="plans",job="planner"'
    (tmp_path / "rules.yaml").write_text(RULES.read_text().replace('job="unskew"', own))
    down = ALERTS["UnskewDown"]
    told = {
        "exp_labels": {"severity": "critical", "namespace": "plans", "job": "planner"},
        "exp_annotations": {**down["annotations"], "summary": "No replica of planner answers in namespace plans"},
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": 'up{namespace="other",job="planner",instance="a"}', "values": "1x20"}],
        "alert_rule_test": [{"alertname": "UnskewDown", "eval_time": "10m", "exp_alerts": [told]}],
    }
    cases = tmp_path / "cases.yaml"
    cases.write_text(json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}))
    done = promtool("test", "rules", cases)
    assert done.returncode == 0, done.stdout + done.stderr


def test_logs_of_several_pods_are_read_to_their_beginning() -> None:
    """``kubectl logs -l`` shows ten lines a pod, and ``grep`` does not know: so each says how many."""
    pages = {page: page.read_text().replace("\\\n", " ") for page in sorted(DOCS.rglob("*.md"))}
    lines = [(page.name, line) for page, text in pages.items() for line in text.splitlines() if _LOGS.search(line)]
    assert len(lines) > 5
    assert [one for one in lines if "--tail=" not in one[1]] == []
    assert [one for one in lines if "grep" in one[1] and "--tail=-1" not in one[1]] == []


def _all_expressions() -> dict[str, str]:
    return {rule.get("alert") or rule["record"]: rule["expr"] for group in GROUPS for rule in group["rules"]}


# -- before two replicas --------------------------------------------------------------------------------------


def test_prometheus_evaluates_every_rule(watched: Watched) -> None:
    """None has an error, as two series where one should be; those that record have something to record."""
    _, prometheus = watched
    for rule in _all_expressions():
        if rule not in ALERTS:
            prometheus.told(rule)
    rules = prometheus.rules()
    assert {rule["name"] for rule in rules} == set(_all_expressions())
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules} == {
        (rule["name"], "ok", "") for rule in rules
    }


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_queries_and_calls_of_a_runbook_are_right(watched: Watched, page: Path) -> None:
    """Prometheus takes each query; each address is one of the REST face; each command and flag of ours exists."""
    world, prometheus = watched
    text = page.read_text()
    for query in promql(text):
        prometheus.ask(query)
    headers = {"authorization": "Bearer root"}
    answer = httpx.get(world.replicas[0].url("/openapi.json"), headers=headers, trust_env=False, timeout=60)
    paths = [re.escape(path) for path in (*answer.json()["paths"], "/readyz")]
    known = re.compile("|".join(re.sub(r"\\\{[a-z]+\\\}", "[^/]+", path) for path in paths))
    for path in re.findall(r"localhost:8080(/[^\s'?`]*)", text):
        assert known.fullmatch(path), path
    for flag in re.findall(r"(?<=`)--[a-z-]+", text):
        assert flag in _help("serve"), flag
    for command in set(re.findall(r"(?:^|`)unskew ([a-z]+)", text, re.MULTILINE)):
        _help(command)


@cache
def _help(command: str) -> str:
    line = [sys.executable, "-m", "unskew.cli.entry", command, "--help"]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=240).stdout
