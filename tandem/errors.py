"""What a stream raises, beside `StreamProtocolError` for servers that break the protocol."""

from protocol.errors import ErrorInfo


class StreamError(Exception):
    """A stream that did not come, or not to its end. `info` is what the server said, where it said anything."""

    def __init__(self, message: str, info: ErrorInfo | None = None) -> None:
        super().__init__(message)
        self.info = info


class RequestRefused(StreamError):
    """The server answered `status`, and no stream."""

    def __init__(self, status: int, info: ErrorInfo) -> None:
        super().__init__(f"{status}: {info.message}", info)
        self.status = status


class GenerationFailed(StreamError):
    """The server ended the stream with an error."""

    info: ErrorInfo

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, info)


class ConnectionFailed(StreamError):
    """The server could not be reached, or the connection broke."""


class AlreadyConsumed(RuntimeError):
    """A stream comes once: as text or as events, and one time."""
