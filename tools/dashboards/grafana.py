"""Grafana's JSON from a few words: kinds of panels, rows that flow, dashboards.

A panel says in its description what is good and what to do when it is not: the reader may see it for the first time at
night. Every query asks the data source that the reader has chosen, and only replicas of the chosen namespace and job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Board", "Panel", "Query", "Row", "bars", "dashboard", "heatmap", "lines", "stat", "table"]

Json = dict[str, Any]
_SCHEMA = 38  # of Grafana 10.0; newer ones migrate it by themselves
_WIDE = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RED, _YELLOW, _GREEN, _BLUE = "red", "yellow", "green", "blue"


@dataclass(frozen=True)
class Query:
    """``name`` is the legend: words, or ``{{label}}``."""

    expr: str
    name: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: ``kind`` is Grafana's name of it, the rest goes into its JSON."""

    kind: str
    title: str
    text: str
    queries: tuple[Query, ...]
    wide: int
    high: int
    unit: str = "short"
    format: str = "time_series"  # of the answers: also "table", "heatmap"
    instant: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """``of_stream``: one stream is chosen above the panels."""

    uid: str
    title: str
    text: str
    rows: Sequence[Row]
    of_stream: bool = False


# -- kinds of panels ------------------------------------------------------------------------------------------


def stat(
    title: str,
    text: str,
    expr: str,
    unit: str = "short",
    *,
    warn: float | None = None,
    bad: float | None = None,
    good: float | None = None,
    words: Mapping[int, tuple[str, str]] | None = None,
    name: str = "",
    wide: int = 4,
) -> Panel:
    """A number now. Yellow from ``warn`` on, red from ``bad`` on; or red below ``good``; or ``words`` for numbers."""
    steps: list[Json] = [{"color": _BLUE, "value": None}]
    if good is not None:
        steps = [{"color": _RED, "value": None}, {"color": _GREEN, "value": good}]
    elif warn is not None or bad is not None:
        told = ((_YELLOW, warn), (_RED, bad))
        steps = [{"color": _GREEN, "value": None}, *({"color": hue, "value": at} for hue, at in told if at is not None)]
    said = {str(at): {"text": word, "color": hue, "index": at} for at, (word, hue) in (words or {}).items()}
    defaults: Json = {
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [{"type": "value", "options": said}] if said else [],
        "noValue": "none",
    }
    options = {
        "colorMode": "value",
        "graphMode": "none" if words else "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name" if name else "value",
    }
    return Panel("stat", title, text, (Query(expr, name),), wide, 4, unit, defaults=defaults, options=options)


def lines(
    title: str,
    text: str,
    *queries: Query,
    unit: str = "short",
    wide: int = 8,
    stacked: bool = False,
    steps: bool = False,
    least: float | None = 0.0,
) -> Panel:
    """Lines over time; ``steps`` for what changes at once and stays."""
    custom: Json = {
        "drawStyle": "line",
        "lineInterpolation": "stepAfter" if steps else "linear",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
    }
    defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom, "noValue": "none"}
    if least is not None:
        defaults["min"] = least
    options = {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel("timeseries", title, text, queries, wide, 8, unit, defaults=defaults, options=options)


def bars(title: str, text: str, label: str, *queries: Query, unit: str = "short") -> Panel:
    """Now, a group of bars for each value of ``label``, which is a number; one bar for each query."""
    as_type = {"id": "convertFieldType", "options": {"fields": {}}}
    sorted_by_number = (
        _converted(as_type, label, "number"),
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": label}]}},
        _converted(as_type, label, "string"),
    )
    options = {
        "barRadius": 0,
        "barWidth": 0.9,
        "groupWidth": 0.8,
        "legend": {"calcs": ["max", "mean"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "orientation": "vertical",
        "showValue": "never",
        "stacking": "none",
        "tooltip": {"mode": "multi", "sort": "none"},
        "xField": label,
        "xTickLabelRotation": 0,
        "xTickLabelSpacing": 100,
    }
    custom = {"fillOpacity": 80, "lineWidth": 0, "axisSoftMin": 0}
    return Panel(
        "barchart",
        title,
        text,
        queries,
        _WIDE,
        10,
        unit,
        format="table",
        instant=True,
        defaults={"color": {"mode": "palette-classic"}, "custom": custom, "min": 0, "noValue": "none"},
        options=options,
        transformations=(_merged(), *sorted_by_number, _named(queries)),
    )


def table(title: str, text: str, *queries: Query, units: Mapping[str, str], link: Json, high: int = 9) -> Panel:
    """Now, a line for each set of labels, a column for each query; ``link`` is Grafana's, from the column "stream"."""
    overrides = [_override(name, [{"id": "unit", "value": unit}]) for name, unit in units.items()]
    overrides.append(_override("stream", [{"id": "links", "value": [link]}]))
    sort = [{"displayName": queries[0].name, "desc": True}]
    return Panel(
        "table",
        title,
        text,
        queries,
        _WIDE,
        high,
        format="table",
        instant=True,
        defaults={"custom": {"filterable": True}, "decimals": 2},
        overrides=tuple(overrides),
        options={"showHeader": True, "cellHeight": "sm", "sortBy": sort, "footer": {"show": False, "reducer": ["sum"]}},
        transformations=(_merged(), _named(queries)),
    )


def heatmap(title: str, text: str, expr: str, *, unit: str = "s", wide: int = 12) -> Panel:
    """Buckets of a histogram over time; the query sums their rates by ``le``."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": unit},
    }
    return Panel("heatmap", title, text, (Query(expr, "{{le}}"),), wide, 8, unit, format="heatmap", options=options)


def _merged() -> Json:
    return {"id": "merge", "options": {}}


def _named(queries: Sequence[Query]) -> Json:
    """The columns by the names of their queries, without the time."""
    names = {_value(at, queries): query.name for at, query in enumerate(queries)}
    return {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": names}}


def _value(at: int, queries: Sequence[Query]) -> str:
    return f"Value #{_letter(at)}" if len(queries) > 1 else "Value"


def _converted(as_type: Json, label: str, kind: str) -> Json:
    conversion = {"targetField": label, "destinationType": kind}
    return {**as_type, "options": {**as_type["options"], "conversions": [conversion]}}


def _override(name: str, properties: list[Json]) -> Json:
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


# -- dashboards -----------------------------------------------------------------------------------------------


def dashboard(board: Board) -> Json:
    """What Grafana imports, or its sidecar loads."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.text,
        "tags": ["unskew"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": _SCHEMA,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [
            {"type": "dashboards", "title": "unskew", "tags": ["unskew"], "includeVars": True, "keepTime": True},
        ],
        "templating": {"list": _variables(of_stream=board.of_stream)},
        "panels": _laid_out(board.rows),
    }


def _variables(*, of_stream: bool) -> list[Json]:
    known = "unskew_store_up"
    found = [
        {"type": "datasource", "name": "datasource", "label": "data source", "query": "prometheus", "current": {}},
        _variable("namespace", f"label_values({known}, namespace)", every=True),
        _variable("job", f'label_values({known}{{namespace=~"$namespace"}}, job)', every=True),
    ]
    if of_stream:
        of = '{namespace=~"$namespace",job=~"$job"}'
        found.append(_variable("stream", f"label_values(unskew_heard_timestamp_seconds{of}, stream)", every=False))
    return found


def _variable(name: str, query: str, *, every: bool) -> Json:
    """``every``: several may be chosen, and all are at first; those without such a label too."""
    chosen: Json = {"current": {"text": ["All"], "value": ["$__all"]}, "allValue": ".*"} if every else {"current": {}}
    return {
        "type": "query",
        "name": name,
        "label": name,
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "includeAll": every,
        "multi": every,
        "refresh": 2,
        "sort": 1,
        **chosen,
    }


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    """From left to right, then below; each row begins with its title."""
    found: list[Json] = []
    top = 0
    for row in rows:
        place = {"x": 0, "y": top, "w": _WIDE, "h": 1}
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": place,
            }
        )
        left, top, lowest = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.wide > _WIDE:
                left, top, lowest = 0, top + lowest, 0
            found.append(_panel(panel, len(found) + 1, {"x": left, "y": top, "w": panel.wide, "h": panel.high}))
            left, lowest = left + panel.wide, max(lowest, panel.high)
        top += lowest
    return found


def _panel(panel: Panel, number: int, place: Json) -> Json:
    defaults = {"unit": panel.unit, **panel.defaults}
    found: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "gridPos": place,
        "datasource": _SOURCE,
        "targets": [_target(query, at, panel) for at, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(panel.overrides)},
        "options": dict(panel.options),
    }
    return {**found, "transformations": list(panel.transformations)} if panel.transformations else found


def _target(query: Query, at: int, panel: Panel) -> Json:
    return {
        "refId": _letter(at),
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.name or "__auto",
        "format": panel.format,
        "instant": panel.instant,
        "range": not panel.instant,
    }


def _letter(at: int) -> str:
    return chr(ord("A") + at)
