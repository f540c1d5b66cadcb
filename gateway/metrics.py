"""What the gateway counts beside its requests."""

from service_kit.metrics import Metrics


class GatewayMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.upstream_failures = metrics.counter("upstream_failures", "Calls to a service that broke.", ("kind",))
        self.resumed = metrics.counter("resumed_streams", "Generations that went on at another worker.")
        self.streams = metrics.gauge("streams", "Streams that are open to clients.")
        self.first_token = metrics.histogram("gateway_ttft_seconds", "Time from a request to the first chunk sent for it.")
