"""A stateful query against a dict: random rows, plans, moves and deletions, and tasks that run twice."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.stateful.alone import Alone, random_plan, rows_of
from unskew.core import hash_keys

BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=40),
        st.sampled_from(["same", "near", "other", "fewer"]),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=12,
)
USERS = [f"user-{i}" for i in range(61)]
HASHES = hash_keys(USERS)


@contextmanager
def scratch() -> Iterator[Path]:
    """In memory where the system has a folder there: each file is made durable, and these are many."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def play(folder: Path, batches: list[tuple[list[tuple[int, int]], str, int]], seed: int) -> None:
    rng, query, model = np.random.default_rng(seed), Alone(folder), {}
    for pairs, kind, attempts in batches:
        partitions = 3 if kind == "fewer" else 5
        like = None if kind == "other" else query.placed
        same = kind == "same" and query.placed is not None
        plan = query.placed if same else random_plan(rng, partitions, HASHES, like)
        assert plan is not None
        rows = [(USERS[user], value) for user, value in pairs]
        figures = query.run(rows_of([u for u, _ in rows], [v for _, v in rows]), plan, attempts=attempts)
        expected = Counter(user for user, _ in rows)
        for user in expected:
            values = [v for u, v in rows if u == user]
            total = model.get(user, 0) + sum(values)
            model[user] = total
            assert {"user": user, "n": total} in query.outputs()
            if 0 in values:
                del model[user]
        assert len(query.outputs()) == len(expected)
        assert query.counts() == model
        assert query.keys.sum() == len(model)
        assert (figures.rows, figures.keys) == (len(rows), len(expected))


@settings(max_examples=20, deadline=None)
@given(BATCHES, st.integers(0, 2**32))
def test_states_are_those_of_a_dict_whatever_moves(
    batches: list[tuple[list[tuple[int, int]], str, int]], seed: int
) -> None:
    """Keys come, move, go and come back, to other places and to those where they were: each batch's output and all
    states are what a dict gives, no key has two, and the count by host is exact."""
    with scratch() as folder:
        play(folder, batches, seed)


@pytest.mark.long
@settings(max_examples=1500, deadline=None)
@given(BATCHES, st.integers(0, 2**32))
def test_states_are_those_of_a_dict_in_many_runs(
    batches: list[tuple[list[tuple[int, int]], str, int]], seed: int
) -> None:
    """The same, many times."""
    with scratch() as folder:
        play(folder, batches, seed)
