"""Who is let in: at most so many calls a second of an identity, and answers that are held back from those who are
refused again and again.

A refusal costs nearly as much as an answer, so a caller who does not wait after one is made to: of an address without a
valid credential, or an identity over its limit, the first refusals of a second come at once, and the next ones later
and later, up to ``_LONGEST``. Of two callers behind one address the one with a right credential notices nothing of it:
what is slowed down is refusals (docs/decisions/0041-tenants-apart.md).
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Callable
from urllib.parse import unquote

from unskew.core.fairness.token_bucket import TokenBuckets
from unskew.service.auth.credentials import Identity
from unskew.service.caller import set_caller
from unskew.service.concurrency import monotonic
from unskew.service.errors import LimitError, UnauthenticatedError

__all__ = ["Admission", "address_of", "network_of"]

_BURST = 2.0  # seconds' worth of calls that may come at once
_REFUSALS, _REFUSAL_BURST = 20.0, 5.0  # a second that are told at once, and seconds' worth of them at once
_LONGEST = 2.0
_LEAST_RETRY = 0.25  # seconds: the next token may come sooner, but not for all who were refused
_MOST_HELD = 500  # of all callers: beyond it refusals are told at once
_NETWORK = 64  # bits of an address of IPv6 that its holder does not choose


class Admission:
    """``rate``: calls a second of an identity that has no limit of its own; 0: as many as come. ``shed`` counts what is
    refused or held back, by reason."""

    def __init__(self, rate: float, shed: Callable[[str], None] = lambda _reason: None) -> None:
        self._rate, self._calls = rate, TokenBuckets(rate or 1.0, _BURST)
        self._refusals = TokenBuckets(_REFUSALS, _REFUSAL_BURST)
        self.shed = shed
        self.held = 0

    def admit(self, who: Identity) -> None:
        """Let a call of this identity in, or raise a ``LimitError``."""
        set_caller(who.name)
        rate = who.allowance.max_calls_per_second or self._rate
        if rate and (wait := self._calls.take(who.name, monotonic(), rate=rate)):
            raise LimitError(
                f"{who.name} calls more than {rate:g} times a second, which is what it may; wait for as long as "
                "retry-after says, or ask for a higher max_calls_per_second",
                reason="rate",
                retry=max(wait, _LEAST_RETRY),
            )

    async def before_refusal(self, why: Exception, who: str, address: Callable[[], str]) -> None:
        """Count what is shed, and hold the answer back from this identity or address if it is refused too often."""
        if isinstance(why, LimitError):
            self.shed(why.reason)
            if why.reason == "rate":
                await self._hold(f"identity {who}")
        elif isinstance(why, UnauthenticatedError):
            await self._hold(f"address {address()}")

    async def _hold(self, name: str) -> None:
        wait = self._refusals.take(name, monotonic(), debt=_LONGEST)
        if not wait or self.held >= _MOST_HELD:
            return
        self.shed("held")
        self.held += 1
        try:
            await asyncio.sleep(min(wait, _LONGEST) * random.uniform(0.5, 1.0))  # not all at once
        finally:
            self.held -= 1


def address_of(peer: str) -> str:
    """The address in what gRPC calls a peer, ``ipv4:10.0.0.7:4711``; of IPv6 its network."""
    kind, _, rest = unquote(peer).partition(":")
    return network_of(rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer)


def network_of(host: str) -> str:
    """An address of IPv4 as it is, of IPv6 its network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((int(address), _NETWORK), strict=False))
