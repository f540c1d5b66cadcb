"""Several processes on one port (`--workers N`): the parent holds the socket and the children, each child serves."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from prometheus_client.multiprocess import mark_process_dead

from service_kit import parent

LISTEN_FD = "TANDEM_LISTEN_FD"
_RESTART_LIMIT = 5
"""A child that keeps dying at once is a fault to report, not to repeat for ever."""


def inherited_socket() -> socket.socket | None:
    """The socket that a parent handed down, in a child."""
    fd = os.environ.pop(LISTEN_FD, None)
    return socket.socket(fileno=int(fd)) if fd else None


def supervise(sock: socket.socket, workers: int) -> int:
    """Runs this same command `workers` times on `sock` until told to stop; a child that dies is replaced. Returns an exit code."""
    with tempfile.TemporaryDirectory(prefix="tandem-metrics-") as metrics_dir:
        own = {LISTEN_FD: str(sock.fileno()), "PROMETHEUS_MULTIPROC_DIR": metrics_dir}
        environment = {**os.environ, **parent.child_environment(), **own}

        def start() -> tuple[subprocess.Popen[bytes], float]:
            command = [sys.executable, "-m", "tandem", *sys.argv[1:]]
            return subprocess.Popen(command, env=environment, pass_fds=[sock.fileno()]), time.monotonic()

        children = [start() for _ in range(workers)]
        stopping = False

        def stop(signum: int, frame: object) -> None:
            nonlocal stopping
            stopping = True
            for child, _ in children:
                child.send_signal(signal.SIGTERM)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        early_deaths = 0
        while not stopping:
            for index, (child, since) in enumerate(children):
                if child.poll() is None or stopping:
                    continue
                early_deaths = early_deaths + 1 if time.monotonic() - since < 5 else 0
                if early_deaths >= _RESTART_LIMIT or child.returncode in (2, 3):
                    stop(signal.SIGTERM, None)
                    _reap(children)
                    return child.returncode or 1
                # Its gauges would count for ever what it was doing when it died.
                mark_process_dead(child.pid, metrics_dir)  # type: ignore[no-untyped-call]
                children[index] = start()
            time.sleep(0.2)
        _reap(children)
        return 0


def _reap(children: list[tuple[subprocess.Popen[bytes], float]]) -> None:
    for child, _ in children:
        child.wait()
