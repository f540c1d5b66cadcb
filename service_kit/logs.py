"""Log lines with the request they belong to, for people or as JSON."""

import json
import logging
import sys
import time
from typing import Literal

from service_kit import context

_PLAIN = logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys() | {
    "message",
    "asctime",
    "request_id",
    "trace_id",
    "color_message",  # uvicorn's, with terminal codes
}


class RequestFilter(logging.Filter):
    """Gives every record the request id and the trace id of the request it was written for."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = context.request_id.get()
        trace = context.traceparent.get()
        record.trace_id = trace.split("-")[1] if trace else None
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line; what was passed as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
            "trace_id": getattr(record, "trace_id", None),
            **{k: v for k, v in record.__dict__.items() if k not in _PLAIN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class ConsoleFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(request_id)s] %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{k}={v}" for k, v in record.__dict__.items() if k not in _PLAIN)
        return f"{super().format(record)} {extra}".rstrip()


def configure(log_format: Literal["console", "json"], level: str) -> None:
    """Sends every logger of this process to standard error, in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RequestFilter())
    handler.setFormatter(JsonFormatter() if log_format == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # One access line a request comes from the edge, one for start and stop from the lifecycle; more of the same would drown them.
    for name in ("uvicorn.access", "uvicorn.error", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
