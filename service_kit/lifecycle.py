"""From start to shutdown: running requests may end, new ones are refused, and past the limit streams are told to stop."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from service_kit import logs
from service_kit.settings import ServiceSettings

log = logging.getLogger("tandem.service")

GRACE_SECONDS = 5.0
"""After the drain limit: time for the last error events to reach their clients before connections are cut."""


class Lifecycle:
    """Lives in `app.state.lifecycle`. `expired` is set when the drain limit has passed: streams then end with an error."""

    def __init__(self) -> None:
        self.draining = False
        self.expired = asyncio.Event()
        self._on_expired: list[Callable[[], None]] = []

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    def expire(self) -> None:
        self.expired.set()
        for callback in self._on_expired:
            callback()


class Server(uvicorn.Server):
    """uvicorn's server, with the drain limit announced to the app instead of only cutting its tasks."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_seconds: float) -> None:
        super().__init__(config)
        self._app, self._drain_seconds = app, drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            if self.started:
                host, port, *_ = sock.getsockname()
                log.info("serving on %s:%d", host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        lifecycle: Lifecycle = self._app.state.lifecycle
        lifecycle.draining = True
        log.info("stopping; running requests have %.0f s to end", self._drain_seconds)
        timer = asyncio.get_running_loop().call_later(self._drain_seconds, lifecycle.expire)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def listen(settings: ServiceSettings) -> socket.socket:
    """A listening socket, or a clear line and exit code 2 when the port is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        sys.exit(_complain(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port"))
    sock.set_inheritable(True)
    return sock


def run(app: FastAPI, settings: ServiceSettings, sock: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT (twice: at once)."""
    logs.configure(settings.log_format, settings.log_level)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.drain_seconds + GRACE_SECONDS),
        timeout_keep_alive=75,
    )
    server = Server(config, app, settings.drain_seconds)
    # uvicorn raises the signal that stopped it once more after a clean shutdown; for a service that is a normal end, exit code 0.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: None)
    server.run(sockets=[sock])
    if not server.started:
        sys.exit(3)


def _complain(message: str) -> int:
    print(f"tandem: {message}", file=sys.stderr)
    return 2
