"""Servers for benchmarks: started as processes, stopped whatever happens."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

START_SECONDS = 120


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@contextmanager
def server(*command: str, health: str = "/health") -> Iterator[str]:
    """The base URL of `python -m <command> --port <free port>` once it answers `health`."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", *command, "--port", str(port)], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(url + health).is_success:
                    break
            except httpx.TransportError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{' '.join(command)} did not start")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()
