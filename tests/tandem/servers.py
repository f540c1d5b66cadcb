"""Small services to try processes and the chat on: real ones, on real ports, without a model."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tandem.fleet import Service

SERVICE = """
import http.server, signal, sys, time
port, behaviour = int(sys.argv[1]), sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if behaviour == "never-ready" else 200)
        self.end_headers()
    def log_message(self, *_): pass
def stop(*_):
    print("told to stop at", time.monotonic(), flush=True)
    sys.exit(0)
if behaviour == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
if behaviour == "dies":
    print("about to die")
    sys.exit(7)
print("up", behaviour)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def fake(name: str, behaviour: str = "fine") -> Service:
    port = free_port()
    return Service(name, [sys.executable, "-c", SERVICE, str(port), behaviour], f"http://127.0.0.1:{port}")


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on a thread; gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
