"""What a batch did and cost, in a line for the log; for any process that can read the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.spark.stateful.log import Log, state_folder
from unskew.wire.manifests import Figures, Manifest

__all__ = ["Report", "read_report"]


@dataclass(frozen=True)
class Report:
    """A batch, done. ``reason``: why the next batch goes by the plan it does."""

    batch: int
    plan: str
    next_plan: str
    reason: str
    state_keys: int
    figures: Figures

    def __str__(self) -> str:
        f = self.figures
        return (
            f"batch {self.batch}: {f.rows:,} rows of {f.keys:,} keys ({f.created:,} new, {f.forgotten:,} forgotten, "
            f"{f.expired:,} expired, {f.moved:,} moved here), {self.state_keys:,} keys of state, read "
            f"{f.bytes_read:,} and written {f.bytes_written:,} bytes; plan {self.plan}, next {self.next_plan}: "
            f"{self.reason}"
        )

    @classmethod
    def of(cls, manifest: Manifest) -> Report:
        plan, following = str(manifest.plan.version), str(manifest.next_plan.version)
        return cls(manifest.batch, plan, following, manifest.reason, manifest.keys, manifest.figures)


def read_report(checkpoint: str, name: str) -> Report | None:
    """Of the last batch that is committed; for any process, the query's own or another one."""
    log = Log(state_folder(checkpoint, name))
    done = log.committed()
    return Report.of(log.read(done[-1])) if done else None
