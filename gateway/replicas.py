"""Which process of a kind takes the next call."""

import asyncio
import socket
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

RESOLVE_SECONDS = 5.0
REST_SECONDS = 2.0
"""A replica that could not be reached is asked again after this long, or sooner when there is no other."""


class Replica:
    """One process, by its base URL. `running` counts the calls that it is answering for us."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.running = 0
        self.resting_until = 0.0

    def rest(self) -> None:
        self.resting_until = time.monotonic() + REST_SECONDS

    @property
    def resting(self) -> bool:
        return time.monotonic() < self.resting_until


class Replicas:
    """The processes behind the given URLs. A host name with several addresses stands for a process at each of them.

    (That is how container networks tell the replicas of a service. Names are looked up again every few seconds; https names are
    left as they are, since a certificate is for a name.)
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._known: dict[str, Replica] = {url: Replica(url) for url in self._urls}
        self._resolved = -RESOLVE_SECONDS
        self._turn = 0

    @property
    def all(self) -> list[Replica]:
        return list(self._known.values())

    async def ordered(self) -> list[Replica]:
        """All of them, best first: rested before resting, then fewest running calls, then by turns."""
        if time.monotonic() - self._resolved > RESOLVE_SECONDS:
            await self._resolve()
        self._turn += 1
        replicas = self.all
        shift = self._turn % len(replicas)
        return sorted(replicas[shift:] + replicas[:shift], key=lambda replica: (replica.resting, replica.running))

    async def _resolve(self) -> None:
        self._resolved = time.monotonic()
        found = [address for url in self._urls for address in await _addresses(url)]
        self._known = {url: self._known.get(url) or Replica(url) for url in found}


async def _addresses(url: str) -> list[str]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return [url]
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, parts.port or 80, family=socket.AF_INET, type=socket.SOCK_STREAM
        )
    except OSError:
        return [url]  # the call itself will say that the name is unknown
    addresses = sorted({info[4][0] for info in infos})
    if len(addresses) < 2:
        return [url]
    return [f"http://{address}:{parts.port or 80}{parts.path}" for address in addresses]
