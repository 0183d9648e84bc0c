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
from unskew.service.rest import json_arrays
from unskew.service.rest.documents import AnswerPages
from unskew.service.rest.json_arrays import Count, Counts, Hash, Hashes, Matrix
from unskew.service.rest.models import Model, SyncResponse
from unskew.v1 import partitioner_pb2 as pb
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
    """Whatever is in the list, few or so many that Arrow reads them."""
    many = (value * json_arrays._FEW)[: max(json_arrays._FEW, len(value))] if value else []
    for given_ in (value, many):
        assert whole("hashes", given_) == each("hashes", given_)


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
    """Hashes as strings, with all their bits."""
    hashes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    model = Arrays.model_construct(hashes=hashes, counts=np.array([3]), matrix=np.array([[1.5, -2.0]]))
    assert json.loads(model.model_dump_json()) == {
        "hashes": ["0", str(2**63), str(2**64 - 1)],
        "counts": [3],
        "matrix": [[1.5, -2.0]],
    }


def test_the_answer_that_is_kept_is_that_of_the_model() -> None:
    """What is of one agent is its own, also where the rest was made for another before."""
    pages = AnswerPages()
    found = answer(report(9).table)
    for incarnation, merged, age in ((3, True, 0.5), (3, False, 2.0), (3, True, 0.0), (4, True, 0.0)):
        message = pb.SyncResponse(answer=round_messages.answer_to_message(found, incarnation, merged, age))
        page = run(pages.of(Synced(found, incarnation, merged, age)))
        assert json.loads(page) == SyncResponse.of(message).model_dump(mode="json")
    assert json.loads(run(pages.of(Synced(None)))) == {"answer": None}
