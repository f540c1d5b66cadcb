"""The terminal chat, as a process: from a pipe, and at a terminal with Ctrl-C."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from protocol.chat import ChatChunkChoice, ChatCompletionChunk, Delta
from protocol.errors import BadRequest, ErrorResponse, UpstreamError
from protocol.models import ModelCard, ModelList
from protocol.sse import DONE, KEEP_ALIVE, encode
from protocol.tools import FunctionCallDelta, ToolCallDelta
from tests.tandem.servers import answering, free_port

COMMAND = [sys.executable, "-m", "tandem", "chat"]


class Echo(BaseHTTPRequestHandler):
    """Answers "heard" and the last message, word for word, and keeps what it was asked. Some messages make it misbehave."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]
    left: list[bool]

    def do_GET(self) -> None:
        self._json(200, ModelList(data=[ModelCard(id="echo", created=0)]).wire())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        said = body["messages"][-1]["content"]
        if said == "refuse":
            self._json(400, ErrorResponse(error=BadRequest("messages: not\nthat").info).wire())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(KEEP_ALIVE)
        self._send(Delta(role="assistant", reasoning="hm. " if said == "think" else None))
        if said == "call":
            for number, name in enumerate(("f", "g")):
                function = FunctionCallDelta(name=name, arguments='{"x":')
                self._send(Delta(tool_calls=[ToolCallDelta(index=number, id=name, type="function", function=function)]))
                self._send(Delta(tool_calls=[ToolCallDelta(index=number, function=FunctionCallDelta(arguments=" 1}"))]))
            self.wfile.write(encode(DONE))
            return
        if said == "endless":
            self._endless()
            return
        for word in f"heard {said} é".split(" "):
            self._send(Delta(content=word + " "))
        if said == "break":
            self.wfile.write(encode(ErrorResponse(error=UpstreamError("the worker is gone").info).wire(), "error"))
        elif said != "cut":
            self.wfile.write(encode(DONE))

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _endless(self) -> None:
        try:
            while True:
                self._send(Delta(content="on "))
                time.sleep(0.02)
        except OSError:
            self.left.append(True)

    def _send(self, delta: Delta) -> None:
        chunk = ChatCompletionChunk(id="c", created=0, model="echo", choices=[ChatChunkChoice(index=0, delta=delta)])
        self.wfile.write(encode(chunk.wire()))

    def _json(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def echo() -> Iterator[tuple[str, type[Echo]]]:
    handler = type("Handler", (Echo,), {"asked": [], "left": []})
    with answering(handler) as url:
        yield url, handler


def piped(url: str, lines: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "--url", url, *flags], input=lines, capture_output=True, text=True, timeout=60, check=False)


def test_turns_carry_the_conversation(echo: tuple[str, type[Echo]]) -> None:
    url, handler = echo
    done = piped(url + "/v1/", "one\n\n two \n/exit\nthree\n", "--system", "Be brief.", "--temperature", "0", "--max-tokens", "9")
    assert done.stdout == "heard one é \nheard two é \n"
    assert (done.returncode, done.stderr) == (0, "")
    assert handler.asked[0] | {"messages": None} == {
        "model": "echo",
        "stream": True,
        "temperature": 0.0,
        "max_tokens": 9,
        "messages": None,
    }
    assert [(message["role"], message["content"]) for message in handler.asked[1]["messages"]] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", "heard one é "),
        ("user", "two"),
    ]


def test_unset_options_are_left_to_the_server(echo: tuple[str, type[Echo]]) -> None:
    url, handler = echo
    piped(url, "hi\n", "--model", "other")
    assert handler.asked[0].keys() == {"model", "stream", "messages"}
    assert handler.asked[0]["model"] == "other"


def test_reasoning_is_shown_but_not_sent_back(echo: tuple[str, type[Echo]]) -> None:
    url, handler = echo
    done = piped(url, "think\nnext\n")
    assert done.stdout == "hm. \nheard think é \nheard next é \n"
    assert handler.asked[1]["messages"][1]["content"] == "heard think é "


def test_calls_are_lines_of_their_own(echo: tuple[str, type[Echo]]) -> None:
    done = piped(echo[0], "call\nnext\n")
    assert done.stdout == '-> f {"x": 1}\n-> g {"x": 1}\nheard next é \n'
    assert done.returncode == 0


def test_at_a_terminal_what_is_no_answer_is_dim(echo: tuple[str, type[Echo]]) -> None:
    with Terminal(*COMMAND, "--url", echo[0]) as terminal:
        terminal.until("> ")
        terminal.type("think\n")
        terminal.until("\x1b[2mhm. \x1b[0m\r\nheard think")
        terminal.until("> ")
        terminal.type(CTRL_D)
        assert terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("refuse", "tandem: 400: messages: not that"),
        ("break", "tandem: the worker is gone"),
        ("cut", "tandem: the stream ended before the answer did"),
    ],
)
def test_an_error_is_one_line_and_the_chat_goes_on(echo: tuple[str, type[Echo]], said: str, line: str) -> None:
    url, handler = echo
    done = piped(url, f"{said}\nafter\n")
    assert done.stderr.splitlines() == [line]
    assert done.returncode == 1
    assert done.stdout.endswith("heard after é \n")
    assert len(handler.asked[1]["messages"]) == 1


def test_nobody_there_is_one_line() -> None:
    done = piped(f"http://127.0.0.1:{free_port()}", "hi\n")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "--url" in done.stderr


class Terminal:
    """A command at a terminal of its own, and what it has shown there."""

    def __init__(self, *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # A suite that runs in the background of a shell has Ctrl-C ignored, and so would what it starts.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(command[0], command)
        self._seen = b""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def until(self, text: str, *, pressing: str = "") -> None:
        """Reads on until `text` has been shown; what came before it is past. `pressing` is typed, and typed again each second."""
        deadline = time.monotonic() + 60
        self.type(pressing)
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self._seen!r}"
            if select.select([self._fd], [], [], 1.0)[0]:
                self._seen += os.read(self._fd, 4096)
            else:
                self.type(pressing)
        self._seen = self._seen.partition(text.encode())[2]

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


CTRL_C, CTRL_D = "\x03", "\x04"


def test_at_a_terminal_ctrl_c_stops_the_answer_only(echo: tuple[str, type[Echo]]) -> None:
    url, handler = echo
    with Terminal(*COMMAND, "--url", url) as terminal:
        terminal.until("> ")
        terminal.type("endless\n")
        terminal.until("on on on")
        terminal.type(CTRL_C)
        terminal.until("[stopped]")
        terminal.until("> ")
        terminal.type("still there?\n")
        terminal.until("heard still there?")
        terminal.until("> ")
        # Python's readline may miss a signal that comes while it is drawing the prompt.
        terminal.until("> ", pressing=CTRL_C)
        terminal.type(CTRL_D)
        assert terminal.exit_code() == 0
    assert handler.asked[1]["messages"][1]["content"].startswith("on on on")
    assert handler.left == [True]
