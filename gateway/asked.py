"""The few things the gateway reads of a request; the rest is render's to judge."""

from dataclasses import dataclass

from protocol.base import Wire
from protocol.generate import StreamOptions


class Peek(Wire):
    """Fields of a chat or completion request that decide how the services are called."""

    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: list[str] | str | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


@dataclass(frozen=True)
class Endpoint:
    """One of OpenAI's two endpoints: where its calls go, and what its request is called in a derender body."""

    path: str
    original_field: str
    object: str

    @property
    def render_path(self) -> str:
        return f"{self.path}/render"

    @property
    def derender_path(self) -> str:
        return f"{self.path}/derender"


CHAT = Endpoint("/v1/chat/completions", "chat_request", "chat.completion")
COMPLETION = Endpoint("/v1/completions", "completion_request", "text_completion")
