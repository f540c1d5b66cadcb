"""What the worker tells Prometheus, beside what every service tells."""

from collections.abc import Callable

from generate_worker.engine.base import DoneStep, Engine, Observer, Stats, Step
from service_kit.metrics import Metrics

_MS = 0.001


class WorkerMetrics:
    """Counts what engines deliver. Gauges read the engine at scrape time, so they cannot drift."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        told = "Prompt tokens of requests that began, by whether they were found in the KV cache."
        self._prompt_tokens = metrics.counter("prompt_tokens", told, ("cached",))
        self._generated_tokens = metrics.counter("generated_tokens", "Token ids sampled, stopping ones included.")
        self._finished = metrics.counter("choices_finished", "Choices that ended, by reason (error: requests).", ("reason",))
        self._aborted = metrics.counter("choices_aborted", "Choices ended by an abort or by a client that left.")
        self._queue = metrics.histogram("queue_seconds", "From enqueue to first prefill.")
        self._ttft = metrics.histogram("time_to_first_token_seconds", "From enqueue to first token.")
        self._gap = metrics.histogram("inter_token_seconds", "Between two tokens of one choice.")

    @property
    def observer(self) -> Observer:
        return Observer(self._steps, self._failed)

    def watch(self, engine: Engine) -> None:
        def gauge(name: str, text: str, read: Callable[[Stats], int]) -> None:
            self._metrics.gauge(name, text).set_function(lambda: read(engine.stats()))

        gauge("requests_running", "Requests being prefilled or decoded.", lambda stats: stats.running)
        gauge("requests_waiting", "Requests in the queue.", lambda stats: stats.waiting)
        gauge("slots_used", "Choices that run now.", lambda stats: stats.slots_used)
        gauge("slots_total", "Choices that can run at once.", lambda stats: stats.slots_total)
        gauge("kv_tokens_used", "Positions of the KV cache that running choices hold.", lambda stats: stats.kv_tokens_used)
        gauge("kv_tokens_cached", "Free positions whose content can still be found again.", lambda stats: stats.kv_tokens_cached)
        gauge("kv_tokens_total", "Positions of the KV cache.", lambda stats: stats.kv_tokens_total)
        told = "1 where a choice's logits were seen not to depend, to the last bit, on who shares its steps."
        gauge("batch_invariant", told, lambda stats: int(stats.batch_invariant))
        gauge("preemptions", "Times that a choice gave its blocks to another.", lambda stats: stats.preemptions)

    def _steps(self, steps: list[Step]) -> None:
        for step in steps:
            if step.token_ids:
                self._generated_tokens.inc(len(step.token_ids))
            if step.gap is not None:
                self._gap.observe(step.gap)
            if isinstance(step, DoneStep):
                self._done(step)

    def _done(self, step: DoneStep) -> None:
        self._finished.labels(step.finish_reason.value).inc()
        if step.finish_reason == "abort":
            self._aborted.inc()
        if step.summary is not None:
            timings = step.summary.timings
            self._prompt_tokens.labels("no").inc(step.summary.computed_prompt_tokens)
            self._prompt_tokens.labels("yes").inc(step.summary.cached_tokens)
            self._queue.observe(timings.queue_ms * _MS)
            if timings.ttft_ms is not None:
                self._ttft.observe(timings.ttft_ms * _MS)

    def _failed(self) -> None:
        self._finished.labels("error").inc()
