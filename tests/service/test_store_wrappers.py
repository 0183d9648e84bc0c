"""A new operation of a store is one method in its port and one in each store: metering and recovery cover it."""

from __future__ import annotations

import time
from typing import Protocol, cast

import pytest

from tests.service.engines import run
from unskew.service.errors import NotFoundError
from unskew.service.stores.limits import missing
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.metered import StoreCalled, metered
from unskew.service.stores.ports import Store
from unskew.service.stores.recovering import recovering


class RenamingStore(Store, Protocol):
    """The port with one operation more."""

    async def rename_owner(self, stream: str, owner: str) -> str: ...


class ToyStore(MemoryStore):
    """The store with one operation more; it needs the stream."""

    async def rename_owner(self, stream: str, owner: str) -> str:
        record = await self.stream(stream)
        if record is None:
            raise missing(stream)
        return f"{record.incarnation} {owner}"

    def lose(self) -> None:
        """What a wipe does."""
        self._streams.clear()
        self._names.clear()


class Wrapped:
    """A toy store as the engine sees it, with what was metered and restored."""

    def __init__(self) -> None:
        self.toy = ToyStore(time.time)
        self.calls: list[StoreCalled] = []
        self.restored: list[str] = []
        store = recovering(metered(self.toy, self.calls.append), lambda _stream: 0, self.restored.append)
        self.store = cast(RenamingStore, store)


def test_a_new_operation_is_metered_under_its_name() -> None:
    """Also where it fails; the store says itself that it is gone."""

    async def main() -> None:
        wrapped = Wrapped()
        await wrapped.store.put_stream("clicks", b"spec")
        assert (await wrapped.store.rename_owner("clicks", owner="ann")).endswith(" ann")
        with pytest.raises(NotFoundError):
            await wrapped.store.rename_owner("views", "ann")
        named = [(call.op, call.error) for call in wrapped.calls]
        assert named == [("put_stream", None), ("rename_owner", None), ("rename_owner", "NotFoundError")]
        assert all(call.seconds >= 0.0 for call in wrapped.calls)

    run(main())


def test_a_new_operation_is_done_once_more_where_its_stream_was_lost() -> None:
    """The stream begins anew above its old numbers; one that was deleted stays deleted."""

    async def main() -> None:
        wrapped = Wrapped()
        record, _ = await wrapped.store.put_stream("clicks", b"spec")
        wrapped.toy.lose()
        incarnation, _ = (await wrapped.store.rename_owner("clicks", "ann")).split()
        assert int(incarnation) > record.incarnation
        assert wrapped.restored == ["clicks"]
        assert [call.op for call in wrapped.calls].count("rename_owner") == 2
        await wrapped.store.delete_stream("clicks")
        with pytest.raises(NotFoundError):
            await wrapped.store.rename_owner("clicks", "ann")
        assert wrapped.restored == ["clicks"]

    run(main())
