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

from tests.monitoring.load import World
from tests.monitoring.prometheus import ROOT, RULES, Prometheus, promtool
from tests.monitoring.test_names import promql

pytestmark = pytest.mark.xdist_group("monitoring")
Watched = tuple[World, Prometheus]
CASES = Path(__file__).with_name("rules_test.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule
}
PAGES = sorted(RUNBOOKS.glob("*.md"))
SECTIONS = ("**Means:**", "**Users notice:**", "## How to look", "## What to do", "**Ignore it**")


def test_the_rules_are_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stderr


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    """The cases of rules_test.yaml, by promtool."""
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    """And no case is of an alert that is not there."""
    fires: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent)[one["alertname"]] += 1
    assert set(fires) == set(ALERTS)
    assert set(silent) == set(ALERTS)


@pytest.mark.parametrize(("broken", "fires"), [("vector(0) > 1", True), ("vector(1)", False)], ids=["never", "always"])
def test_the_cases_see_an_alert_that_never_fires_and_one_that_always_does(
    broken: str, fires: bool, tmp_path: Path
) -> None:
    """The cases in which it fires the one, those in which it does not the other: none is a case that cannot fail."""
    groups = [{**group, "rules": [_broken(rule, broken) for rule in group["rules"]]} for group in GROUPS]
    rules, cases = tmp_path / "rules.yaml", tmp_path / "cases.yaml"
    rules.write_text(json.dumps({"groups": groups}))
    found = yaml.safe_load(CASES.read_text())
    tests = [_only(case, fires) for case in found["tests"]]
    cases.write_text(json.dumps({**found, "rule_files": [str(rules)], "tests": tests}))
    done = promtool("test", "rules", cases)
    assert done.returncode == 1
    assert set(re.findall(r"alertname: ?(Unskew\w+), time", done.stdout + done.stderr)) == set(ALERTS)


def _only(case: dict[str, Any], fires: bool) -> dict[str, Any]:
    return {**case, "alert_rule_test": [one for one in case["alert_rule_test"] if bool(one["exp_alerts"]) == fires]}


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
    answer = httpx.get(world.replicas[0].url("/openapi.json"), headers=headers, trust_env=False)
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
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout
