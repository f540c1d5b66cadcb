"""Requests that bring a chat template of their own. They wait for processes that may take their time, so they do it on threads of
their own, in a line that has an end: requests with the model's template never wait behind them."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from model_profile.guest_template import GuestTemplates
from model_profile.template import HostFailed, TemplateFailed
from model_profile.template_budget import TemplateLimits
from protocol.errors import BadRequest, Overloaded
from render_service.renderer import Template
from service_kit.offload import THREADS

T = TypeVar("T")

_LINE = 16
"""Requests that may wait for each process."""
_RETRY_SECONDS = 5


class BroughtTemplate(Exception):
    """The request brings a template, so it is to be rendered in `Guests.run`."""


def refused(source: str) -> NoReturn:
    raise BadRequest(
        "chat_template: this server takes no templates from requests; --trust-request-chat-template allows them",
        param="chat_template",
    )


def elsewhere(source: str) -> NoReturn:
    raise BroughtTemplate


class Guests:
    def __init__(self, limits: TemplateLimits, services: int = 1) -> None:
        """`services`: as many processes as this one share the machine."""
        # As many as there are processors, and two at least: one that is held up is not to hold up all.
        self.size = max(2, THREADS // services)
        self._templates = GuestTemplates(limits, self.size)
        self._threads = ThreadPoolExecutor(max_workers=self.size, thread_name_prefix="tandem-guests")
        self._seconds = limits.seconds
        self._free = asyncio.Semaphore(self.size)
        self._most = self.size * (1 + _LINE)
        self._inside = 0

    def template(self, source: str) -> Template:
        """Raises `InvalidTemplate`."""
        return self._templates.template(source)

    async def run(self, work: Callable[[], T]) -> T:
        """As `offload`. Raises `Overloaded` when the line is full, or stands still for as long as a template may take."""
        if self._inside >= self._most:
            raise Overloaded("too many requests with a chat template of their own are waiting", retry_after=_RETRY_SECONDS)
        self._inside += 1
        try:
            await self._turn()
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, work)
            finally:
                self._free.release()
        finally:
            self._inside -= 1

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise Overloaded(
                f"no process was free for {self._seconds:g} s to run the request's chat template", retry_after=_RETRY_SECONDS
            ) from error

    @property
    def pids(self) -> list[int]:
        """Of the processes that run templates now."""
        return self._templates.pool.pids

    def close(self) -> None:
        self._templates.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


@contextmanager
def blaming() -> Iterator[None]:
    """A template's failures as the request's errors: `BadRequest` that names what is to blame, and `Overloaded`."""
    try:
        yield
    except TemplateFailed as error:
        raise BadRequest(f"{error.fault}: {error}", param=error.fault) from error
    except HostFailed as error:
        raise Overloaded(f"chat_template: {error}", retry_after=_RETRY_SECONDS) from error
