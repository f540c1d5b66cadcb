"""One keep-alive connection, without a client library's own cost in the figures."""

import http.client
import time
from urllib.parse import urlsplit


class Connection:
    def __init__(self, url: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc)

    def reopen(self) -> None:
        """For after a pause, in which the server may have closed it."""
        self._http.close()

    def post(self, path: str, body: bytes) -> tuple[float, bytes]:
        """Milliseconds, and the answer. Raises `RuntimeError` for an answer that is no success."""
        started = time.perf_counter()
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        response = self._http.getresponse()
        answer = response.read()
        milliseconds = (time.perf_counter() - started) * 1000
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer[:300]!r}")
        return milliseconds, answer
