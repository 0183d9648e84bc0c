"""Whether a store still has the rounds that it had: each merged round has a digest of its reports and of the digest of
the round before it.

A store that failed over may have lost its last rounds, and have merged others under their numbers since. Who remembers
a round, a replica or an agent that got its answer, finds that out by its digest. The stream then begins anew, so that
what was lost is lost for all to see.

The digests of the last rounds are kept as text beside the answer: the incarnation, then ``epoch:digest`` of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["NOTHING_SEEN", "SeenRound", "begun", "digest_of", "digests_after"]

_KEPT = 16


class SeenRound(NamedTuple):
    """A round whose answer somebody has got. ``digest``: 0 where it is not known."""

    incarnation: int
    epoch: int
    digest: int = 0

    def is_lost(self, version: tuple[int, int], digests: bytes) -> bool:
        """Whether a store whose last merged round is ``version`` does not have this one."""
        if self[:2] > version:
            return True
        if self.incarnation != version[0] or not self.digest:
            return False
        return digest_of(digests, self.epoch) not in (0, self.digest)


NOTHING_SEEN = SeenRound(0, 0)
"""Of an agent that has no answer yet."""


def begun(incarnation: int) -> bytes:
    """The digests before the first round of an incarnation."""
    return b"%d" % incarnation


def digests_after(before: bytes, epoch: int, names: Iterable[tuple[str, int, int]]) -> bytes:
    """The digests once a round of these reports is merged.

    >>> first = digests_after(begun(7), 1, [("ann", 1, 1)])
    >>> digest_of(first, 1) == digest_of(digests_after(first, 2, []), 1) != 0, digest_of(first, 2)
    (True, 0)
    """
    incarnation, *rounds = before.split(b" ")
    made = hashlib.blake2b(before + repr(sorted(names)).encode(), digest_size=8).hexdigest()
    return b" ".join((incarnation, *rounds[1 - _KEPT :], b"%d:%s" % (epoch, made.encode())))


def digest_of(digests: bytes, epoch: int) -> int:
    """Of this round; 0 where it is not known: it is too long ago, or another release merged it."""
    for word in digests.split(b" ")[1:]:
        number, _, made = word.partition(b":")
        if int(number) == epoch:
            return int(made, 16)
    return 0
