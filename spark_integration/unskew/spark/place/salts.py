"""Salts as Spark SQL: the int that, hashed last, sends a row to a wanted partition of Spark's own hash partitioning.

``hashpartitioning(columns ..., salt)`` puts a row in ``pmod(hash(columns ..., salt), n)``, and each column's hash is
the seed of the next one. For one int every step of Murmur3 can be undone (``core.keys.murmur3.invert_u32``). The steps
after the seed comes in are the same for all rows of a partition, so they are a table by partition; what is left for
each row is one ``xor``, two products and a rotation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.keys.murmur3 import INVERSE_C1, INVERSE_C2, ROTATED, unmixed_u32
from unskew.spark.place.native import table

__all__ = ["salt_column"]

_WORD = 0xFFFFFFFF
_SIGN = 1 << 31


def salt_column(partitions: int, target: Column, others: Sequence[Column]) -> Column:
    """The int after ``others`` for which Spark's hash partitioning into so many partitions chooses ``target``. The tree
    holds ``target`` and ``others`` twice, for the rotation."""
    words = unmixed_u32(np.arange(partitions, dtype=np.uint32)).astype(np.int64)
    seed = F.hash(*others).cast("bigint").bitwiseAND(_WORD)
    mixed = _times(F.get(table(words, "bigint"), target).bitwiseXOR(seed), int(INVERSE_C2))
    rotated = F.shiftright(mixed, ROTATED).bitwiseOR(F.shiftleft(mixed, 32 - ROTATED).bitwiseAND(_WORD))
    return (_times(rotated, int(INVERSE_C1)).bitwiseXOR(_SIGN) - _SIGN).cast("int")


def _times(word: Column, by: int) -> Column:
    """The product modulo 2^32. By the factor of that residue nearest 0, at most 2^31 in size, so that no product of it
    with a word leaves a bigint: ANSI mode would raise."""
    return (word * ((by ^ _SIGN) - _SIGN)).bitwiseAND(_WORD)
