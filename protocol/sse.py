"""Server-sent events: encoding, and an incremental decoder (WHATWG HTML, section 9.2) that no split of the bytes can upset."""

from dataclasses import dataclass

DONE = "[DONE]"
"""The payload that ends every stream of the OpenAI family. It is no JSON."""

KEEP_ALIVE = b": keep-alive\n\n"
MAX_EVENT_BYTES = 64 * 1024 * 1024


class SSEError(ValueError):
    """The bytes are no event stream that can be held in memory."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One dispatched event. `event` is None where the stream named no type."""

    data: str
    event: str | None = None
    id: str | None = None


def encode(data: bytes | str, event: str | None = None) -> bytes:
    """One event, ready to send. Line ends inside `data` become further data lines, as the format asks."""
    raw = data.encode() if isinstance(data, str) else data
    lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    head = b"event: " + event.encode() + b"\n" if event else b""
    return head + b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"


class SSEDecoder:
    """Bytes in, whole events out: `feed` as they arrive, in any slices.

    Lines end in LF, CR or CRLF; a CR at the end of one slice and an LF at the start of the next are one line end. Bytes are decoded
    line by line, so a character may be split between slices. An event that the stream cuts off is dropped, as the standard says;
    `pending` tells whether there is one. Raises `SSEError` when one event outgrows `max_event_bytes`.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line = bytearray()
        self._after_cr = False
        self._first_line = True
        self._data: list[str] = []
        self._size = 0
        self._event: str | None = None
        self._id: str | None = None

    @property
    def pending(self) -> bool:
        return bool(self._line or self._data)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if chunk[-1:] == b"\r":
            self._after_cr = True
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._line += line
            whole = bytes(self._line)
            self._line.clear()
            event = self._take(whole)
            if event is not None:
                events.append(event)
        self._line += lines[-1]
        if len(self._line) + self._size > self._max:
            raise SSEError(f"an event of the stream is larger than {self._max} bytes")
        return events

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
            self._size += len(line)
        elif field == "event":
            self._event = value or None
        elif field == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._size = [], None, 0
        return ServerSentEvent("\n".join(data), event, self._id) if data else None
