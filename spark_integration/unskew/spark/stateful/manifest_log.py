"""What is committed of a query's keyed state: ``PATH/unskew/<name>/state``, in the query's checkpoint.

``identity.pb`` says whose it is; ``manifests/<batch>.pb`` is a batch that is done, and there is one for the last batch
and for the one before; ``data`` and ``output`` hold the files of tasks. A file counts once a manifest lists it, and
what none lists is garbage. It is left alone while it may be of the present batch, whose tasks may still run somewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from unskew.core.errors import StateError
from unskew.spark.folders import Folder
from unskew.spark.stateful.batch import DATA, OUTPUT, is_before
from unskew.wire.manifests import (
    Figures,
    Identity,
    Manifest,
    identity_from_bytes,
    identity_to_bytes,
    manifest_from_bytes,
    manifest_to_bytes,
)

__all__ = ["KEPT", "Log", "Report", "query_id", "read_report", "state_folder"]

_IDENTITY, _MANIFESTS, _SUFFIX = "identity.pb", "manifests", ".pb"
KEPT = 2  # manifests: of the last batch, and of the one before, which tasks of the last may still read


def state_folder(checkpoint: str, name: str) -> Folder:
    return Folder(checkpoint).sub(f"unskew/{name}/state")


def query_id(checkpoint: str) -> str:
    """Spark's id of the query that has this checkpoint; empty where none has begun here."""
    data = Folder(checkpoint).read("metadata")
    return "" if data is None else str(json.loads(data)["id"])


@dataclass(frozen=True)
class Log:
    """The commits in ``folder``."""

    folder: Folder

    # -- whose ------------------------------------------------------------------------------------------------

    def claim(self, identity: Identity) -> None:
        """Nothing, or why this state is not this query's."""
        if self.folder.create(_IDENTITY, identity_to_bytes(identity)):
            return
        data = self.folder.read(_IDENTITY)
        if data is None:
            raise StateError(f"{self.folder.path(_IDENTITY)} was there and is gone: is something cleaning this folder?")
        kept = identity_from_bytes(data)
        wrong = [one.name for one in fields(Identity) if getattr(kept, one.name) != getattr(identity, one.name)]
        if wrong:
            each = (f"{name} {getattr(kept, name)!r}, not {getattr(identity, name)!r}" for name in wrong)
            raise StateError(
                f"the state in {self.folder.path()} is of another query: {'; '.join(each)}. Give this query a name or "
                "a checkpoint of its own; to begin anew with this one, stop it and delete that folder"
            )

    # -- commits ----------------------------------------------------------------------------------------------

    def committed(self) -> list[int]:
        """The batches that have a manifest, ascending."""
        names = (name.removesuffix(_SUFFIX) for name in self.folder.names(_MANIFESTS))
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, batch: int) -> Manifest:
        data = self.folder.read(_name(batch))
        if data is None:
            raise StateError(f"the manifest of batch {batch} is gone: does another driver run this query?")
        return manifest_from_bytes(data)

    def before(self, batch: int, last_read: Manifest | None = None) -> Manifest | None:
        """The manifest of this batch if it is done, else of the one before, if any. ``last_read`` is not read again."""
        done = self.committed()
        if not done:
            return None
        last = done[-1]
        if last > batch:
            raise StateError(
                f"batch {batch} is to run and the state is of batch {last}: was the checkpoint set back? Restore it "
                f"whole, with {self.folder.path()}, or delete that folder and begin anew"
            )
        if last < batch - 1:
            raise StateError(
                f"batch {batch} is to run and the state is of batch {last}: the batches between ran without it. "
                f"Restore the checkpoint whole, or delete {self.folder.path()} and begin anew"
            )
        return last_read if last_read is not None and last_read.batch == last else self.read(last)

    def commit(self, manifest: Manifest) -> Manifest:
        """What is committed for this batch from now on: the first that came."""
        if self.folder.create(_name(manifest.batch), manifest_to_bytes(manifest)):
            later = [batch for batch in self.committed() if batch > manifest.batch]
            if later:
                raise StateError(
                    f"batch {manifest.batch} was committed after batch {later[-1]}: another driver runs this query. "
                    "This one stops; the state is not harmed"
                )
            return manifest
        return self.read(manifest.batch)

    # -- garbage ----------------------------------------------------------------------------------------------

    def drop(self, gone: Manifest, kept: Sequence[Manifest]) -> None:
        """Delete a batch's manifest, and what it alone lists."""
        self.folder.delete(_name(gone.batch))
        self.folder.delete(*sorted(_listed([gone]) - _listed(kept)))

    def sweep(self, manifest: Manifest) -> list[Manifest]:
        """Delete what no manifest lists, now that this one is the last; return the manifests that are left."""
        older = [batch for batch in self.committed() if batch < manifest.batch]
        self.folder.delete(*map(_name, older[: len(older) + 1 - KEPT]))
        kept = [*map(self.read, older[len(older) + 1 - KEPT :]), manifest]
        self.folder.tidy(_MANIFESTS)
        files = {(sub, name) for sub in (DATA, OUTPUT) for name in self.folder.names(sub)}
        old = {f"{sub}/{name}" for sub, name in files if is_before(name, manifest.batch)}
        self.folder.delete(*sorted(old - _listed(kept)))
        return kept


def _listed(manifests: Iterable[Manifest]) -> set[str]:
    """The files that these list, by their paths in the folder."""
    data = {f"{DATA}/{name}" for one in manifests for name in one.files}
    return data | {f"{OUTPUT}/{name}" for one in manifests for name in one.outputs}


def _name(batch: int) -> str:
    return f"{_MANIFESTS}/{batch:012d}{_SUFFIX}"


# -- a batch in a line -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What a batch did and cost, in a line. ``reason``: why the next batch goes by the plan it does."""

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
