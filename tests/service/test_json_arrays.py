"""Lists in JSON: reading them as a whole takes the same, and makes the same of it, as looking at each number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.service.engines import run
from tests.service.faces import answer, report
from unskew.service.api.verbs import Synced
from unskew.service.events.history import RoundNote
from unskew.service.rest.encoder import Encoded, decimals, encode
from unskew.service.rest.learning import EncodedTables, sync_document
from unskew.service.rest.models import Model, SyncResponse
from unskew.service.rest.models.arrays import Count, Counts, Hash, Hashes, Matrix
from unskew.service.rest.models.base import packed
from unskew.wire import round_messages


class Arrays(Model):
    hashes: Hashes = np.zeros(0, np.uint64)
    counts: Counts = np.zeros(0, np.int64)
    matrix: Matrix = np.zeros((0, 0))


EACH: dict[str, TypeAdapter[Any]] = {"hashes": TypeAdapter(list[Hash]), "counts": TypeAdapter(list[Count])}
DECIMALS = st.integers(-(2**63), 2**64 - 1)
WRITTEN = ["", "-", "+1", " 1", "1 ", "1,2", "1_0", "0x1F", "0xg", "-0x1", "--1", "1-", "1e3", "\u0663", "\ud800", "00"]
BEYOND = ["0" * 21, 2**64, -(2**63) - 1, str(2**64), str(-(2**63) - 1), None, True, 1.0, 1.5, [1], {}]
ODD = st.sampled_from([*WRITTEN, *BEYOND])


def each(field: str, value: object) -> list[int] | None:
    """What looking at each finds; None where something is wrong."""
    try:
        found: list[int] = EACH[field].validate_python(value)
    except ValidationError:
        return None
    return found


def whole(field: str, value: object) -> list[int] | None:
    try:
        found: list[int] = getattr(Arrays.model_validate({field: value}), field).tolist()
    except ValidationError:
        return None
    return found


@given(
    st.lists(st.one_of(DECIMALS.map(str), DECIMALS, ODD), max_size=6)
    | st.lists(DECIMALS.map(str), max_size=8)
    | st.lists(st.integers(-(2**63), 2**63 - 1).map(str), max_size=8)
    | st.lists(DECIMALS, max_size=8)
)
def test_hashes_are_taken_as_a_whole_as_they_are_one_by_one(value: list[Any]) -> None:
    """Whatever is in the list."""
    assert whole("hashes", value) == each("hashes", value)


@given(
    st.lists(st.one_of(st.integers(-2, 2**63), st.sampled_from([1.0, 1.5, "7", "x", None, True, 2**70])), max_size=6)
)
def test_counts_are_taken_as_a_whole_as_they_are_one_by_one(value: list[Any]) -> None:
    assert whole("counts", value) == each("counts", value)


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("hashes", ["1"] * 300 + ["x"], ("hashes", 300)),
        ("hashes", ["1", str(2**64)], ("hashes", 1)),
        ("counts", [1, -1], ("counts", 1)),
        ("matrix", [[1.0], [float("nan")]], ("matrix", 1, 0)),
        ("matrix", [[1.0], [1.0, 2.0]], ("matrix",)),
        ("counts", list(range(50_001)), ("counts",)),
    ],
)
def test_what_is_wrong_is_told_with_its_place(field: str, value: list[Any], where: tuple[Any, ...]) -> None:
    """Also where the list was tried as a whole first."""
    with pytest.raises(ValidationError) as told:
        Arrays.model_validate({field: value})
    assert [error["loc"] for error in told.value.errors()] == [where]


def test_arrays_are_written_as_they_are_read() -> None:
    """Hashes as strings, with all their bits; also of an array that is a view of every other row."""
    hashes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    matrix = np.array([[1.5, -2.0], [9.0, 9.0], [0.1, 1e300]])[::2]
    document = json.loads(encode({"hashes": decimals(hashes), "counts": np.array([3]), "matrix": matrix}))
    assert document == {"hashes": ["0", str(2**63), str(2**64 - 1)], "counts": [3], "matrix": matrix.tolist()}
    read = Arrays.model_validate(document)
    assert (read.hashes.tolist(), read.matrix.tolist()) == (hashes.tolist(), matrix.tolist())


def test_what_was_encoded_before_is_a_part_of_the_document_and_what_has_no_json_form_is_an_error() -> None:
    """History notes are written as their fields."""
    note = RoundNote(at=1.5, epoch=3, reports=2, outcome="merged", seconds=0.25, dsync_seconds=20.0)
    document = json.loads(encode({"kept": Encoded(encode([1, None])), "note": note}))
    assert document == {"kept": [1, None], "note": note.model_dump()}
    with pytest.raises(TypeError, match="not JSON serializable: set"):
        encode({"keys": {1}})


def test_the_table_that_is_kept_is_that_of_the_round() -> None:
    """Only (incarnation, merged, age) differ between the agents of a round, also where the table was encoded before."""
    tables, merged = EncodedTables(), answer(report(9).table)
    for incarnation, own, age in ((3, True, 0.5), (3, False, 2.0), (4, True, 0.0)):
        document = json.loads(encode(run(sync_document(Synced(merged, incarnation, own, age), tables))))
        read = SyncResponse.model_validate(document).answer
        assert read is not None
        assert (read.incarnation, read.merged, read.age_seconds) == (incarnation, own, age)
        message = round_messages.answer_to_message(merged, incarnation, own, age)
        assert read.table.message() == message.table
        assert packed(read.split) == message.split
    assert run(sync_document(Synced(None), tables)) == {"answer": None}
