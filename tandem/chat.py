"""`tandem chat`: a terminal chat over the gateway's OpenAI endpoint, streamed."""

import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Annotated, Any, Literal, TypeVar

import httpx
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from protocol.base import Wire
from protocol.chat import ChatCompletionChunk
from protocol.errors import ErrorResponse
from protocol.models import ModelList
from protocol.sse import DONE, SSEDecoder, SSEError

T = TypeVar("T", bound=Wire)
Message = dict[str, str]
Kind = Literal["reasoning", "content", "call", "arguments"]
Pieces = Generator[tuple[Kind, str], None, None]
"""Parts of an answer as they come. A `call` is the name of a function, `arguments` go on with it."""

LEAVE = frozenset({"/exit", "/quit"})
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class ChatSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TANDEM_", extra="ignore", protected_namespaces=())

    url: str = Field("http://127.0.0.1:8000", description="Address of the gateway, or of any OpenAI-compatible server.")
    model: str | None = Field(None, description="Model to talk to; by default the first that the server lists.")
    system: str | None = Field(None, description="System message that opens the conversation.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(None, description="By default the server's.")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(None, description="Longest answer, in tokens; by default the server's.")
    api_key: SecretStr | None = Field(None, description="Bearer token to send.")


class ChatError(Exception):
    """An answer that did not come, or not to its end. The message is one line."""


def chat(settings: ChatSettings) -> int:
    """Talks until the input ends. Returns an exit code: 1 if any answer failed while nobody was watching (input from a pipe)."""
    watched = sys.stdin.isatty()
    headers = {"Authorization": f"Bearer {settings.api_key.get_secret_value()}"} if settings.api_key else {}
    failed = False
    base = settings.url.rstrip("/").removesuffix("/v1")
    with httpx.Client(base_url=base, headers=headers, timeout=httpx.Timeout(10.0, read=None)) as client:
        try:
            model = settings.model or _first_model(client)
        except ChatError as error:
            print(f"tandem: {error}", file=sys.stderr)
            return 1
        if watched:
            print(f"{model} at {base}. Ctrl-C stops an answer, Ctrl-D or /exit leaves.")
        messages: list[Message] = [{"role": "system", "content": settings.system}] if settings.system else []
        options = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        request = {"model": model, "stream": True} | {name: value for name, value in options.items() if value is not None}
        for line in _lines(watched):
            turn = [*messages, {"role": "user", "content": line}]
            try:
                answer = _show(_stream(client, {**request, "messages": turn}), dim=sys.stdout.isatty())
            except ChatError as error:
                print(f"tandem: {error}", file=sys.stderr)
                failed = True
                continue
            if answer:
                messages = [*turn, {"role": "assistant", "content": answer}]
    return 1 if failed and not watched else 0


def _lines(watched: bool) -> Iterator[str]:
    """What the person says, turn after turn; Ctrl-C at the prompt clears the line."""
    if watched:
        import readline  # noqa: F401  (line editing and history in input())
    while True:
        try:
            line = input("> " if watched else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        if line in LEAVE:
            return
        if line:
            yield line


def _show(pieces: Pieces, *, dim: bool) -> str:
    """Prints an answer as it comes, a line for each kind of part and for each call, and returns its content; all but that is `dim`.
    Ctrl-C keeps what has come and closes the stream, which ends the generation."""
    content: list[str] = []
    shown: Kind | None = None
    stopped = False

    def stop(signum: int, frame: object) -> None:
        # Raised at once, which ends a read that waits; and noted, since an exception is lost where it strikes a finalizer.
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    before = signal.signal(signal.SIGINT, stop)
    try:
        with closing(pieces):
            for kind, text in pieces:
                if stopped:
                    raise KeyboardInterrupt
                if kind == "call" or kind not in (shown, "arguments"):
                    write((_PLAIN if dim else "") + "\n" if shown else "")
                    write(_DIM if dim and kind != "content" else "")
                    shown = kind
                if kind == "content":
                    content.append(text)
                write(f"-> {text} " if kind == "call" else text)
    except KeyboardInterrupt:
        write(" [stopped]")
    finally:
        signal.signal(signal.SIGINT, before)
        write((_PLAIN if dim and shown else "") + "\n")
    return "".join(content)


def _stream(client: httpx.Client, body: dict[str, Any]) -> Pieces:
    """One streamed answer. Raises `ChatError`."""
    decoder = SSEDecoder()
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                raise ChatError(_reason(response.status_code, response.read()))
            for data in response.iter_bytes():
                for event in decoder.feed(data):
                    if event.data == DONE:
                        return
                    yield from _pieces(event.data)
    except httpx.HTTPError as error:
        raise ChatError(f"{client.base_url}: {error}") from error
    except SSEError as error:
        raise ChatError(str(error)) from error
    raise ChatError("the stream ended before the answer did")


def _pieces(payload: str) -> Pieces:
    failure = _read(ErrorResponse, payload)
    if failure is not None:
        raise ChatError(failure.error.message)
    chunk = _read(ChatCompletionChunk, payload)
    if chunk is None:
        raise ChatError(f"the server sent what is no chat completion chunk: {payload[:200]}")
    for delta in (choice.delta for choice in chunk.choices):
        if reasoning := delta.reasoning or delta.reasoning_content:
            yield "reasoning", reasoning
        if delta.content:
            yield "content", delta.content
        for function in (call.function for call in delta.tool_calls or () if call.function):
            if function.name:
                yield "call", function.name
            if function.arguments:
                yield "arguments", function.arguments


def _first_model(client: httpx.Client) -> str:
    try:
        response = client.get("/v1/models", timeout=10.0)
    except httpx.HTTPError as error:
        raise ChatError(f"{client.base_url}: {error}; is it running? `tandem up` starts it, --url names another") from error
    if response.status_code != 200:
        raise ChatError(_reason(response.status_code, response.content))
    models = _read(ModelList, response.content)
    if models is None or not models.data:
        raise ChatError(f"{client.base_url} lists no model; name one with --model")
    return models.data[0].id


def _reason(status: int, body: bytes) -> str:
    failure = _read(ErrorResponse, body)
    return f"{status}: " + " ".join((failure.error.message if failure else body[:200].decode("utf-8", "replace")).split())


def _read(model: type[T], payload: str | bytes) -> T | None:
    try:
        return model.model_validate_json(payload)
    except ValidationError:
        return None
