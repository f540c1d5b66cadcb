"""Prometheus metrics of an HTTP service. With several processes on one port, `/metrics` sums over all of them."""

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics every service has, and makers for its own. All names begin with `tandem_`."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.registry = CollectorRegistry()
        self.requests = self.counter(
            "requests", "Answered HTTP requests, handshakes of WebSockets among them.", ("route", "status")
        )
        self.seconds = self.histogram("request_seconds", "Time from a request's first byte to its answer's last.", ("route",))
        self.in_flight = self.gauge("requests_in_flight", "HTTP requests being answered now.")
        self.websockets = self.gauge("websockets_open", "Open WebSocket connections.")

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"tandem_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"tandem_{name}", text, labels, registry=self.registry, multiprocess_mode="livesum")

    def histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"tandem_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

    def expose(self) -> tuple[bytes, str]:
        """The text that Prometheus reads, and its content type."""
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST
