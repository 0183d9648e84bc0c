"""Queries that several dashboards ask, all of the replicas of the chosen namespace and job.

Several replicas tell of one stream, each what it heard last. So a gauge of a stream is taken from the replica that
heard of it last (``newest``); counters and histograms are added up; what is the replica's own is shown for each.
"""

from __future__ import annotations

__all__ = ["ALL", "ONE", "REPLICAS", "age", "newest", "per_second", "quantile", "share", "silence"]

ALL = 'namespace=~"$namespace",job=~"$job"'
ONE = f'{ALL},stream="$stream"'
REPLICAS = "namespace, job"


def per_second(counter: str, by: str = "", where: str = "", of: str = ALL) -> str:
    """Of all replicas together."""
    told = f"rate(unskew_{counter}{{{of}{',' if where else ''}{where}}}[$__rate_interval])"
    return f"sum by ({by}) ({told})" if by else f"sum({told})"


def share(counter: str, where: str, of: str) -> str:
    """0 where there was none at all, and nothing where nothing happened."""
    return f"({per_second(counter, where=where)} or vector(0)) / ({per_second(of)} > 0)"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    found = per_second(f"{histogram}_bucket", f"le, {by}" if by else "le", where)
    return f"histogram_quantile({q}, {found})"


def newest(gauge: str, what: str, by: str = "", where: str = "", of: str = ONE) -> str:
    """From the replica that heard of it last."""
    heard = f'unskew_heard_timestamp_seconds{{{of},what="{what}"}}'
    last = f"max by ({REPLICAS}, stream) ({heard})"
    told = f"unskew_{gauge}{{{of}{',' if where else ''}{where}}}"
    found = f"{told} and on ({REPLICAS}, instance, stream) ({heard} == on ({REPLICAS}, stream) group_left () {last})"
    return f"max by ({by}) ({found})" if by else f"max({found})"


def age(by: str = "", of: str = ONE) -> str:
    """Of the latest plan, by the replica that knows it for longest."""
    latest = f"max by ({REPLICAS}, stream) (unskew_plan_version{{{of}}})"
    known = f"unskew_plan_version{{{of}}} == on ({REPLICAS}, stream) group_left () {latest}"
    found = f"unskew_plan_age_seconds{{{of}}} and on ({REPLICAS}, instance, stream) ({known})"
    return f"max by ({by}) ({found})" if by else f"max({found})"


def silence(what: str, by: str = "", of: str = ONE) -> str:
    """Seconds since any replica heard of it."""
    heard = f'unskew_heard_timestamp_seconds{{{of},what="{what}"}}'
    return f"time() - max by ({by}) ({heard})" if by else f"time() - max({heard})"
