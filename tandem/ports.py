"""Which ports can be had, found before anything is started on them."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass


class PortError(Exception):
    """A port cannot be listened on. The message says which, why, and which flag chooses another."""


@dataclass(frozen=True)
class Wanted:
    """A port that `service` is to listen on (0: any free one), chosen with `flag`."""

    service: str
    host: str
    port: int
    flag: str


def claim(wanted: Iterable[Wanted]) -> list[int]:
    """The ports to use, in order, each free a moment ago. Raises `PortError` that names every one that is not."""
    held: list[socket.socket] = []
    problems: list[str] = []
    owners: dict[int, Wanted] = {}
    try:
        for want in wanted:
            if want.port in owners:
                other = owners[want.port]
                problems.append(f"{other.service} ({other.flag}) and {want.service} ({want.flag}) both want port {want.port}")
                continue
            try:
                sock = _bind(want.host, want.port)
            except OSError as error:
                problems.append(
                    f"{want.service} cannot listen on {want.host}:{want.port}: {error.strerror} (choose with {want.flag})"
                )
                continue
            held.append(sock)
            owners[sock.getsockname()[1]] = want
    finally:
        for sock in held:
            sock.close()
    if problems:
        raise PortError("; ".join(problems))
    return list(owners)


def url(host: str, port: int) -> str:
    """Where a client on this machine reaches what listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
