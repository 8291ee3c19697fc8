"""Addresses: where a request comes from, also behind a proxy, and what counts as one address."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from starlette.types import Scope

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
UNKNOWN = "unknown"


class Addresses:
    """Reads X-Forwarded-For where the proxy that wrote it is trusted: from the right, up to the first who is not."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = [network(text) for text in trusted]

    def of(self, scope: Scope) -> str:
        """The address that a request comes from, as `group` writes it."""
        client = scope.get("client")
        here = self.group(client[0] if client else "")
        if not self._trusted or not self.trusts(here):
            return here
        lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for entry in reversed(",".join(lines).split(",")[-20:]):
            before = self.group(entry.strip())
            if before == UNKNOWN:
                break
            here = before
            if not self.trusts(here):
                break
        return here

    def trusts(self, address: str) -> bool:
        """Whether this is a proxy of ours."""
        found = _parse(address)
        return found is not None and any(found.version == n.version and found in n for n in self._trusted)

    @staticmethod
    def group(text: str) -> str:
        """One name for what one client holds: an IPv4 address, or the first 64 bits of an IPv6 address."""
        found = _parse(text)
        if found is None:
            return UNKNOWN
        if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
            return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
        return str(found)


def network(text: str) -> _Network:
    """An address or a network such as 10.0.0.0/8; ValueError if it is neither."""
    return ipaddress.ip_network(text.strip(), strict=False)


@lru_cache(4096)
def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, also with a port ("10.0.0.7:4711", "[::1]:80") or IPv4 written as IPv6."""
    if len(text) > 64:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
