"""From start to shutdown: running requests may end, new ones are refused, and past the limit all that run are told to stop."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from protocol.errors import Overloaded
from service_kit.collector import settle, tend
from service_kit.scale import tell_ready
from service_kit.settings import ServiceSettings

log = logging.getLogger("tandem.service")

GRACE_SECONDS = 5.0
"""After the drain limit: time for the last error events to reach their clients before connections are cut."""


class Lifecycle:
    """Lives in `app.state.lifecycle`. `stopping` is set when the drain begins: conversations then end at their next answer.
    `expired` is set when the drain limit has passed: streams then end with an error, and what has no answer yet is cancelled."""

    def __init__(self) -> None:
        self.conversations = 0
        self.stopping = asyncio.Event()
        self.expired = asyncio.Event()
        self._on_expired: list[Callable[[], None]] = []
        self._unanswered: set[asyncio.Task[Any]] = set()

    @property
    def draining(self) -> bool:
        return self.stopping.is_set()

    @contextmanager
    def conversing(self) -> Iterator[None]:
        """Counts a connection that ends itself when the drain begins."""
        self.conversations += 1
        try:
            yield
        finally:
            self.conversations -= 1

    @contextmanager
    def unanswered(self) -> Iterator[Callable[[], None]]:
        """Around what has no answer yet, in a task of its own: raises `Overloaded` when the drain limit passes. What it gives is
        to be called when the answer begins, which may then be sent to its end, until the connection is cut."""
        task = asyncio.current_task()
        assert task is not None
        self._unanswered.add(task)
        try:
            yield partial(self._unanswered.discard, task)
        except asyncio.CancelledError as error:
            if not self.expired.is_set():
                raise
            task.uncancel()
            raise shutting_down() from error
        finally:
            self._unanswered.discard(task)

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    def expire(self) -> None:
        self.expired.set()
        for callback in self._on_expired:
            callback()
        for task in self._unanswered:
            task.cancel()


def shutting_down() -> Overloaded:
    return Overloaded("this server is shutting down", retry_after=5)


class Server(uvicorn.Server):
    """uvicorn's server, with the drain limit announced to the app instead of only cutting its tasks."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds
        self._lifecycle: Lifecycle = app.state.lifecycle

    @property
    def cut_short(self) -> bool:
        """Whether it ended with work that was not done."""
        return self._lifecycle.expired.is_set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        settle()
        self._tending = asyncio.create_task(tend())
        for sock in sockets or ():
            if self.started:
                host, port, *_ = sock.getsockname()
                log.info("serving on %s:%d", host, port)
        tell_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        lifecycle = self._lifecycle
        lifecycle.stopping.set()
        log.info("stopping; running requests have %.0f s to end", self._drain_seconds)
        timer = asyncio.get_running_loop().call_later(self._drain_seconds, lifecycle.expire)
        try:
            await self._conversations_ended(lifecycle)
            await super().shutdown(sockets)
        finally:
            timer.cancel()
            self._tending.cancel()
            if self.force_exit:
                lifecycle.expire()

    async def _conversations_ended(self, lifecycle: Lifecycle) -> None:
        """uvicorn's own shutdown cuts WebSockets at once, also in the middle of an answer: let them say farewell before."""
        limit = time.monotonic() + self._drain_seconds
        # `force_exit` is a plain flag that uvicorn sets on a second Ctrl-C, so it must be looked at.
        while lifecycle.conversations and not self.force_exit and time.monotonic() < limit:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


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


def configured(app: FastAPI, settings: ServiceSettings) -> uvicorn.Config:
    """How every service is served."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,  # it would compress on the event loop, and messages between services are small
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.drain_seconds + GRACE_SECONDS),
        timeout_keep_alive=75,
    )


def run(app: FastAPI, settings: ServiceSettings, sock: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT (twice: at once)."""
    server = Server(configured(app, settings), app, settings.drain_seconds)

    def stop(signum: int, frame: object) -> None:
        server.should_exit = True

    # For a signal that comes before uvicorn listens to signals. It also raises the one that stopped it once more after a clean
    # shutdown: for a service that is a normal end, exit code 0.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, stop)
    server.run(sockets=[sock])
    if not server.started:
        sys.exit(3)
    if server.cut_short:
        # A thread of a pool that is still at work cannot be stopped, and Python would wait for it.
        logging.shutdown()
        os._exit(0)


def _complain(message: str) -> int:
    print(f"tandem: {message}", file=sys.stderr)
    return 2
