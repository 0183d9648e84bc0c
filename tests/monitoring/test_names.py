"""The names: what two replicas under load tell is what docs/metrics.md lists, and nobody asks for what is not there."""

from __future__ import annotations

import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.boards import asked, metrics_in
from tests.monitoring.load import World
from tests.monitoring.prometheus import ROOT, RULES, Prometheus, promtool

pytestmark = pytest.mark.xdist_group("monitoring")
Watched = tuple[World, Prometheus]
PAGE = ROOT / "docs" / "metrics.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\|", re.MULTILINE)
OF_PROMETHEUS = {"up"}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric on the page."""
    rows = ROW.findall(PAGE.read_text())
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def told(page: str) -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric of an exposition."""
    found = {}
    for family in text_string_to_metric_families(page):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = family.type, {label for sample in family.samples for label in sample.labels} - {"le"}
    return found


def test_every_metric_is_documented_with_its_type_and_labels(watched: Watched) -> None:
    """Of both replicas together: no metric is undocumented, and none is documented that is not there."""
    world, prometheus = watched
    for name in documented():  # until each has something to tell
        prometheus.told(f"{{__name__=~'{name}|{name}_count'}}")
    first, second = told(world.page(0)), told(world.page(1))
    assert first.keys() == second.keys()
    assert {name: (kind, labels | second[name][1]) for name, (kind, labels) in first.items()} == documented()


def test_prometheus_finds_nothing_to_say_of_the_names(watched: Watched) -> None:
    """promtool's rules of naming, help and units."""
    page = watched[0].page(0)
    done = promtool("check", "metrics", given=page)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    worse = promtool("check", "metrics", given=page.replace("unskew_store_up", "unskewStoreUp"))
    assert worse.returncode


def _expressions() -> list[tuple[str, str]]:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    of_rules = [(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules]
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    of_pages = [(page.stem, query) for page in [*pages, PAGE] for query in promql(page.read_text())]
    return [(one.id, one.expr) for one in asked()] + of_rules + of_pages


def promql(page: str) -> list[str]:
    return re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_no_metric_is_asked_for_that_is_not_there() -> None:
    """In dashboards, rules, runbooks; a recorded series is one of the rules."""
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text()))
    there = documented()
    series = {f"{name}{end}" for name, (kind, _) in there.items() for end in _ends(kind)} | recorded | OF_PROMETHEUS
    expressions = _expressions()
    assert len(expressions) > 100
    assert {(where, name) for where, expr in expressions for name in metrics_in(expr) - series} == set()


def _ends(kind: str) -> tuple[str, ...]:
    return ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)


def test_every_metric_of_ours_is_on_a_dashboard_or_in_an_alert() -> None:
    """What nobody looks at need not be told."""
    used = {name for _, expr in _expressions() for name in metrics_in(expr)}
    ours = {name for name in documented() if name.startswith("unskew_")}
    assert {name for name in ours if not any(one.startswith(name) for one in used)} == set()
