"""Several processes on one port (`--workers N`): the parent holds the socket and the children, each child serves."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from prometheus_client.multiprocess import mark_process_dead

from service_kit import parent

LISTEN_FD = "TANDEM_LISTEN_FD"
READY_FD = "TANDEM_READY_FD"
Child = tuple[subprocess.Popen[bytes], float]
"""A process, and when it was started."""

_RESTART_LIMIT = 5
"""A child that keeps dying at once is a fault to report, not to repeat for ever."""


def inherited_socket() -> socket.socket | None:
    """The socket that a parent handed down, in a child."""
    fd = os.environ.pop(LISTEN_FD, None)
    return socket.socket(fileno=int(fd)) if fd else None


def tell_ready() -> None:
    """Tells the parent, if one asked, that this child serves."""
    fd = os.environ.pop(READY_FD, None)
    if fd:
        os.write(int(fd), b"1")
        os.close(int(fd))


def supervise(sock: socket.socket, workers: int) -> int:
    """Runs this same command `workers` times on `sock` until told to stop; a child that dies is replaced. Returns an exit code.

    The others are started when the first one serves: what is wrong is told once, and one is ready no later for the others' sake.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-metrics-") as metrics_dir:
        own = {LISTEN_FD: str(sock.fileno()), "PROMETHEUS_MULTIPROC_DIR": metrics_dir}
        environment = {**os.environ, **parent.child_environment(), **own}

        def start(*, telling: int | None = None) -> Child:
            command = [sys.executable, "-m", "tandem", *sys.argv[1:]]
            more, passed = ({}, ()) if telling is None else ({READY_FD: str(telling)}, (telling,))
            process = subprocess.Popen(command, env={**environment, **more}, pass_fds=[sock.fileno(), *passed])
            return process, time.monotonic()

        def start_first() -> tuple[Child, int]:
            told, telling = os.pipe()
            child = start(telling=telling)
            os.close(telling)
            return child, told

        first, told = start_first()
        children = [first]
        stopping = False

        def stop(signum: int, frame: object) -> None:
            nonlocal stopping
            stopping = True
            _end(children)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        early_deaths = 0
        while not stopping:
            for index, (child, since) in enumerate(children):
                if child.poll() is None or stopping:
                    continue
                early_deaths = early_deaths + 1 if time.monotonic() - since < 5 else 0
                if early_deaths >= _RESTART_LIMIT or child.returncode in (2, 3):
                    _end(children)
                    _reap(children)
                    return child.returncode or 1
                # Its gauges would count for ever what it was doing when it died.
                mark_process_dead(child.pid, metrics_dir)  # type: ignore[no-untyped-call]
                if len(children) < workers:
                    os.close(told)
                    children[index], told = start_first()
                else:
                    children[index] = start()
            # A pipe that was closed with nothing said is a child's that died: seen above next time.
            if len(children) < workers and select.select([told], [], [], 0)[0] and os.read(told, 1):
                children += [start() for _ in range(workers - 1)]
            time.sleep(0.2)
        # One may have been started while the signal came.
        _end(children)
        _reap(children)
        return 0


def _end(children: list[Child]) -> None:
    for child, _ in children:
        child.send_signal(signal.SIGTERM)


def _reap(children: list[Child]) -> None:
    for child, _ in children:
        child.wait()
