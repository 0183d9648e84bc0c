"""The dashboard of the store, which is Redis where there are replicas."""

from __future__ import annotations

from collections.abc import Iterator

from tools.dashboards.grafana import Board, Panel, Query, Row, heatmap, lines, stat
from tools.dashboards.queries import ALL, per_second, quantile, share

__all__ = ["REDIS", "store_panels"]


def store_panels() -> Iterator[Panel]:
    """On the dashboard of the service too."""
    yield lines(
        "Store: slowest 1 %",
        "From 0.1 s on plans are served as they were known here. Runbook: UnskewStoreSlow.",
        Query(quantile(0.99, "store_seconds", "op"), "{{op}}"),
        unit="s",
        wide=12,
    )
    yield lines(
        "Store: errors",
        "Operations without an answer. Runbook: UnskewStoreErrors.",
        Query(per_second("store_errors_total", "op"), "{{op}}"),
        unit="ops",
        wide=12,
    )
    yield lines(
        "Store: memory",
        "From 80 % on nothing of 1 MiB is taken, from 90 % on no histograms and plans. No bound is shown as 0.",
        Query(f"max(unskew_store_used_bytes{{{ALL}}})", "in use"),
        Query(f"max(unskew_store_max_bytes{{{ALL}}})", "at most"),
        unit="bytes",
        wide=12,
    )
    yield lines(
        "Store: no room",
        "What was not kept, by the bound that refused it. docs/operations.md: what is kept.",
        Query(per_second("over_quota_total", "quota"), "{{quota}}"),
        unit="ops",
        wide=12,
    )


REDIS = Board(
    "unskew-redis",
    "unskew / Redis",
    "The store as the replicas see it, whatever it is: single, Sentinel, cluster or memory. What Redis says of itself "
    "(memory, evictions, replication) is for redis_exporter's dashboard.",
    (
        Row(
            "At a glance",
            [
                stat(
                    "Replicas that reach it",
                    "All of them is right. One does not: its network. None does: the store. Runbook: UnskewStoreDown.",
                    f"sum(unskew_store_up{{{ALL}}}) / count(unskew_store_up{{{ALL}}})",
                    "percentunit",
                    good=1,
                ),
                stat("Operations", "A second, of all replicas.", per_second("store_seconds_count"), "ops"),
                stat(
                    "Without an answer",
                    "Share of the operations. Good: 0. Runbook: UnskewStoreErrors.",
                    share("store_errors_total", "", "store_seconds_count"),
                    "percentunit",
                    warn=0.001,
                    bad=0.01,
                ),
                stat(
                    "Half take less than",
                    "Good: some milliseconds.",
                    quantile(0.5, "store_seconds"),
                    "s",
                    warn=0.01,
                    bad=0.1,
                ),
                stat(
                    "99 % take less than",
                    "From 0.1 s on plans are served as they were known. Runbook: UnskewStoreSlow.",
                    quantile(0.99, "store_seconds"),
                    "s",
                    warn=0.05,
                    bad=0.1,
                ),
                stat(
                    "Operations a call",
                    "Two to ten. More: many agents or watches look at once.",
                    f"{per_second('store_seconds_count')} / {per_second('rpc_seconds_count')}",
                ),
            ],
        ),
        Row(
            "Operations",
            [
                *store_panels(),
                lines(
                    "By operation",
                    "A second.",
                    Query(per_second("store_seconds_count", "op"), "{{op}}"),
                    unit="ops",
                    wide=12,
                ),
                lines(
                    "By replica",
                    "A second. Very uneven: clients hold on to one replica.",
                    Query(per_second("store_seconds_count", "instance"), "{{instance}}"),
                    unit="ops",
                    wide=12,
                ),
                heatmap(
                    "Time of an operation",
                    "A second band far above the first: waits for a connection, a slow script, or persistence.",
                    per_second("store_seconds_bucket", "le"),
                ),
                lines(
                    "Mean time by operation",
                    "sealed, parts and commit carry the large values.",
                    Query(
                        f"{per_second('store_seconds_sum', 'op')} / {per_second('store_seconds_count', 'op')}",
                        "{{op}}",
                    ),
                    unit="s",
                    wide=12,
                ),
            ],
        ),
        Row(
            "What follows from it",
            [
                lines(
                    "Up, by replica",
                    "1: the replica reaches the store; 0: it is not ready, and says so to its probe.",
                    Query(f"unskew_store_up{{{ALL}}}", "{{instance}}"),
                    steps=True,
                ),
                lines(
                    "Plans served that may be old",
                    "Because the store did not answer within 0.1 s. Jobs go on.",
                    Query(per_second("stale_plans_total"), "plans"),
                    unit="ops",
                ),
                lines(
                    "Not done",
                    "news: wake-ups were missed, and everything is looked at anew. round: it is tried again.",
                    Query(per_second("skipped_total", "what"), "{{what}}"),
                    unit="ops",
                ),
            ],
        ),
    ),
)
