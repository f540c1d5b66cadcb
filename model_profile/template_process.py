"""One process that runs strangers' templates, as the service sees it: a job goes in, its answer comes out in time, or it ends."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from model_profile.template import HostFailed
from model_profile.template_budget import TemplateLimits
from model_profile.template_wire import HEADER

_START_SECONDS = 30.0
_GRACE_SECONDS = 0.25
"""A loop that is stopped from within has the time to say so, and its process goes on."""
_READ_BYTES = 1 << 20
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "TZ", "LANG", "LC_ALL")
"""All that it sees of the service's: the rest holds keys."""


class HostSlow(Exception):
    """No answer within the time."""


class HostDied(Exception):
    """It ended in the middle of a job. `returncode` is that of `subprocess`."""

    def __init__(self, returncode: int) -> None:
        super().__init__(returncode)
        self.returncode = returncode


class TemplateProcess:
    """One job at a time. After an exception it is of no more use, and ended."""

    def __init__(self, limits: TemplateLimits) -> None:
        """Raises `HostFailed`."""
        self._limits = limits
        # Text, as JSON writes it at its longest, and a source for each character.
        self._most = 32 * limits.characters + _READ_BYTES
        try:
            self._process, self._lifeline = _start(limits)
        except OSError as error:
            raise HostFailed(f"the process that runs chat templates of requests cannot be started: {error.strerror}") from error
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        try:
            self._receive(time.monotonic() + _START_SECONDS)
        except (HostSlow, HostDied) as error:
            self.end()
            raise HostFailed(
                "the process that runs chat templates of requests does not start; the service's log says more"
            ) from error

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, job: bytes) -> bytearray:
        """The answer's frame. Raises `HostSlow` and `HostDied`."""
        until = time.monotonic() + self._limits.seconds + _GRACE_SECONDS
        try:
            self._send(job, until)
            return self._receive(until)
        except (HostSlow, HostDied):
            self.end()
            raise

    def kill(self) -> None:
        """From any thread: a job that it is at ends in `HostDied`."""
        self._process.kill()

    def end(self) -> None:
        """Kills it and lets go of it. Only by who uses it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._lifeline.close()
        self._process.wait()

    def _send(self, data: bytes, until: float) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        left = memoryview(data)
        while left:
            _await(pipe, select.POLLOUT, until)
            try:
                left = left[os.write(pipe, left) :]
            except BrokenPipeError as error:
                raise self._died() from error

    def _receive(self, until: float) -> bytearray:
        (size,) = HEADER.unpack(self._read(HEADER.size, until))
        if size > self._most:
            raise self._died()
        return self._read(size, until)

    def _read(self, size: int, until: float) -> bytearray:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        data = bytearray()
        while len(data) < size:
            _await(pipe, select.POLLIN, until)
            part = os.read(pipe, min(_READ_BYTES, size - len(data)))
            if not part:
                raise self._died()
            data += part
        return data

    def _died(self) -> HostDied:
        try:
            # Its pipe is closed as it ends; if not, it broke off what it had to say.
            return HostDied(self._process.wait(timeout=1))
        except subprocess.TimeoutExpired:
            return HostDied(0)


def _start(limits: TemplateLimits) -> "tuple[subprocess.Popen[bytes], BinaryIO]":
    """The process, and what it ends with when it is closed."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    root = str(Path(__file__).parents[1])
    theirs, ours = os.pipe()
    lifeline = os.fdopen(ours, "wb", buffering=0)
    given = [str(limits.seconds), str(limits.characters), str(limits.mib), str(theirs)]
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "model_profile.template_host", *given],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs],
            env={**environment, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), root])},
        )
    except OSError:
        lifeline.close()
        raise
    finally:
        os.close(theirs)
    return process, lifeline


def _await(pipe: int, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise HostSlow
