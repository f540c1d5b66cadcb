"""Processes that run strangers' templates: a few, started when they are needed, used again, replaced where one had to be ended."""

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from model_profile.template import HostFailed, HostsBusy, TemplateExceeded
from model_profile.template_budget import TemplateLimits, too_slow
from model_profile.template_process import HostDied, HostSlow, TemplateProcess
from model_profile.template_wire import OUT_OF_MEMORY, JsonObject, unframed

T = TypeVar("T")

_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What an answer can raise that is not one."""
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class GuestExceeded(TemplateExceeded):
    """A template that a request brought took more than it may."""

    fault = "chat_template"


class TemplatePool:
    """For any number of threads; no more than `size` processes."""

    def __init__(self, limits: TemplateLimits, size: int) -> None:
        self.limits = limits
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[TemplateProcess] = []
        self._busy: set[TemplateProcess] = set()
        self._closed = False

    def ask(self, job: bytes, read: Callable[[JsonObject], T]) -> T:
        """What `read` makes of the job's answer. Raises `GuestExceeded` and `HostFailed`, and the `TemplateFailed` of `read`."""
        if not self._free.acquire(timeout=self.limits.seconds):
            raise HostsBusy("all processes that run chat templates of requests are busy; try again")
        try:
            return self._ask(job, read)
        finally:
            self._free.release()

    def close(self) -> None:
        """Ends all processes, also in the middle of jobs."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()
        for process in idle:
            process.end()

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in (*self._idle, *self._busy)]

    def _ask(self, job: bytes, read: Callable[[JsonObject], T]) -> T:
        process, again = self._take(), False
        try:
            answer = unframed(process.ask(job))
            last, out_of_memory = answer["last"], answer.get("memory")
            again = last is False
            if out_of_memory:
                raise self._out_of_memory()
            return read(answer)
        except HostSlow as error:
            raise GuestExceeded(too_slow(self.limits)) from error
        except HostDied as error:
            raise self._why(error.returncode) from error
        except _NONSENSE as error:
            again = False
            raise HostFailed("the process that ran the request's chat template gave no answer that can be read") from error
        finally:
            self._give_back(process, again=again)

    def _give_back(self, process: TemplateProcess, *, again: bool) -> None:
        with self._lock:
            self._busy.discard(process)
            again = again and not self._closed
            if again:
                self._idle.append(process)
        if not again:
            process.end()

    def _take(self) -> TemplateProcess:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.alive:
            process.end()
            process = None
        if process is None:
            process = TemplateProcess(self.limits)
        with self._lock:
            self._busy.add(process)
            closed = self._closed
        if closed:
            process.kill()
        return process

    def _why(self, returncode: int) -> Exception:
        if returncode == -signal.SIGXCPU:
            return GuestExceeded(too_slow(self.limits))
        if returncode == OUT_OF_MEMORY:
            return self._out_of_memory()
        if -returncode in _CRASHES:
            return GuestExceeded(f"the chat template crashed the process that ran it ({signal.Signals(-returncode).name})")
        return HostFailed("the process that ran the request's chat template ended before it had an answer; try again")

    def _out_of_memory(self) -> GuestExceeded:
        return GuestExceeded(f"the chat template needed more than {self.limits.mib} MiB of memory")
