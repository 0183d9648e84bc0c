"""The dashboards: whole, as their description says, and every query of every panel has an answer from two replicas."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.monitoring.boards import FOLDER, NAMES, Asked, Json, asked, board, filled, panels
from tests.monitoring.load import CLICKS, LEARNED, PARTITIONS, World, batch, ran, silent_agents
from tests.monitoring.prometheus import JOB, NAMESPACE, ROOT, Prometheus
from tools.dashboards.__main__ import main

pytestmark = pytest.mark.xdist_group("monitoring")
Watched = tuple[World, Prometheus]
ASKED = list(asked())


@pytest.mark.parametrize("one", ASKED, ids=[one.id for one in ASKED])
def test_every_query_of_every_panel_has_an_answer(watched: Watched, one: Asked) -> None:
    """Of all namespaces and jobs, as at first; and of the one that there is, for a stream that has such a thing."""
    prometheus = watched[1]
    learning = one.panel in {"Agents", "DSYNC", "Rounds"}
    stream = LEARNED if learning and one.board == "unskew-stream" else CLICKS
    assert prometheus.told(filled(one.expr, stream))
    assert prometheus.told(filled(one.expr, stream, every=f"{NAMESPACE}|{JOB}"))


def panel(name: str, title: str) -> str:
    """The query of a panel that has one."""
    (found,) = [one.expr for one in ASKED if (one.board, one.panel) == (name, title)]
    return found


def test_the_variables_list_what_there_is(watched: Watched) -> None:
    """Namespace and job of the replicas, the streams of both."""
    prometheus = watched[1]
    prometheus.told(f'unskew_heard_timestamp_seconds{{stream="{LEARNED}"}}')
    prometheus.told(f'unskew_heard_timestamp_seconds{{stream="{CLICKS}"}}')
    found = {}
    for variable in board("unskew-stream")["templating"]["list"]:
        if variable["type"] == "query":
            values = re.fullmatch(r"label_values\((.*), ([a-z]+)\)", variable["query"]["query"])
            assert values
            found[variable["name"]] = prometheus.values(values[2], filled(values[1], ""))
    assert found["namespace"] == [NAMESPACE]
    assert found["job"] == [JOB]
    assert {CLICKS, LEARNED} <= set(found["stream"])


def test_two_replicas_are_added_up_or_not_as_it_should_be(watched: Watched) -> None:
    """Both are counted; a stream that both tell of is one, with all its partitions, once each."""
    _, prometheus = watched
    assert [sample.value for sample in prometheus.told(filled(panel("unskew-service", "Replicas"), ""))] == [2.0]
    plan = [one for one in ASKED if (one.board, one.panel) == ("unskew-stream", "Rows per partition")]
    for one in plan:
        found = prometheus.told(filled(one.expr, CLICKS))
        assert sorted(int(sample.labels["partition"]) for sample in found) == list(range(PARTITIONS))
    both = {sample.labels["instance"] for sample in prometheus.told(f'unskew_plan_version{{stream="{CLICKS}"}}')}
    assert both == set(watched[0].targets)


def test_a_stream_is_shown_as_the_replica_tells_it_that_heard_of_it_last(watched: Watched) -> None:
    """A job that reported to one replica reports to the other now. The first still tells what it heard then."""
    world, prometheus = watched
    first, second = world.clients
    first.put_stream("moved", partitions=4, policy="balanced")
    plan = batch(first, "moved", 1)
    ran(first, "moved", 2, plan, [97, 1, 1, 1])
    query = filled(panel("unskew-stream", "Observed imbalance"), "moved")
    assert [round(sample.value, 2) for sample in prometheus.told(f"{query} > 2")] == [3.88]
    ran(second, "moved", 3, plan, [25, 25, 25, 25])
    prometheus.told('count(unskew_observed_imbalance{stream="moved"}) == 2')
    assert [sample.value for sample in prometheus.told(f"{query} < 2")] == [1.0]
    assert prometheus.ask('max(unskew_observed_imbalance{stream="moved"}) > 3.8')


def test_an_agent_that_does_not_come_is_seen_in_the_rounds(watched: Watched) -> None:
    """Its round is closed by the deadline; the alert on it counts these."""
    world, prometheus = watched
    silent_agents(world)
    outcomes = 'sum by (outcome) (unskew_sync_rounds_total{stream="learned",outcome="deadline"}) > 0'
    assert prometheus.told(outcomes)


# -- without a service ----------------------------------------------------------------------------------------


def test_the_files_are_as_their_description_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """``python -m tools.dashboards`` writes them; ``--check`` sees a change, one too many and one too few."""
    assert main(["--check"]) == 0
    folder = tmp_path_factory.mktemp("dashboards")
    assert main([], folder) == 0
    assert main(["--check"], folder) == 0
    changed = folder / "unskew-redis.json"
    changed.write_text(changed.read_text().replace('"unskew / Redis"', '"mine"'))
    assert main(["--check"], folder) == 1
    changed.unlink()
    assert main(["--check"], folder) == 1
    main([], folder)
    (folder / "more.json").write_text("{}")
    assert main(["--check"], folder) == 1


def test_there_are_three_of_them() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_one_that_grafana_takes(name: str) -> None:
    """Its uid is the name of its file, no panel has another's id or place, and all ask the chosen data source."""
    found = board(name)
    assert found["uid"] == name
    assert found["schemaVersion"] >= 36
    assert "id" not in found  # Grafana's own number in one data base
    every = found["panels"]
    assert len({one["id"] for one in every}) == len(every)
    for one, other in itertools.combinations(every, 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])
    assert all(one["gridPos"]["x"] + one["gridPos"]["w"] <= 24 for one in every)
    for one in panels(name):
        assert len({target["refId"] for target in one["targets"]}) == len(one["targets"])
        assert {target["datasource"]["uid"] for target in one["targets"]} == {"${datasource}"}


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows_and_asks_only_for_what_was_chosen(name: str) -> None:
    """A runbook that a panel names is there; every variable is one of the dashboard or Grafana's own."""
    variables = {one["name"] for one in board(name)["templating"]["list"]} | {"__rate_interval"}
    for one in panels(name):
        assert one["description"].endswith("."), one["title"]
        for runbook in re.findall(r"Unskew[A-Za-z]+", one["description"]):
            assert (ROOT / "docs" / "runbooks" / f"{runbook}.md").exists(), runbook
        for target in one["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables
            selectors = re.findall(r"\{([^{}]*)\}", target["expr"])
            assert selectors
            assert all('namespace=~"$namespace",job=~"$job"' in selector for selector in selectors), target["expr"]


def _overlap(one: Json, other: Json) -> bool:
    apart = (
        one["x"] + one["w"] <= other["x"]
        or other["x"] + other["w"] <= one["x"]
        or one["y"] + one["h"] <= other["y"]
        or other["y"] + other["h"] <= one["y"]
    )
    return not apart
