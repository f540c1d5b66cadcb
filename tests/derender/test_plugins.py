"""Parsers of other packages: found by entry points, replayed over the chunks in which the output came."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer

from derender_service.parsers.events import Arguments, CallStart, Content, Event, Reasoning
from derender_service.parsers.parsing import UnknownParser, parsing_for
from derender_service.parsers.plugins import GROUP, BrokenPlugin, Plugin, plugins
from tests.derender.parsed import assembled, chat_request, chunk_of, derenderer, encode, step, stream, tool, whole
from tests.tokenizers import profile

TOOLS = [tool("f", x={"type": "integer"})]


class Shouting:
    """A format no grammar says: what stands in capitals is reasoning, a line `!name` is a call. A chunk is read as one."""

    def __init__(self, opening: dict[str, Any], tokenizer: Tokenizer) -> None:
        self.left, self.names = opening["left"], opening["names"]

    def parse_delta(self, text: str, token_ids: Sequence[int]) -> Sequence[Event]:
        self.left -= len(token_ids)
        if text.startswith("!") and text[1:] in self.names:
            return [CallStart(text[1:]), Arguments("{}")]
        return [Reasoning(text) if text.isupper() else Content(text)] if text else []

    def finish(self) -> Sequence[Event]:
        return [Content(f"({self.left} left)")]


def begin(*, prompt_token_ids: Sequence[int] | None, chat_request: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    return {"left": 100 - len(prompt_token_ids or ()), "names": [tool["function"]["name"] for tool in chat_request["tools"]]}


SHOUTING = Plugin(begin, Shouting)
NO_PARSER = "no parser"


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that brings parsers, as if it were installed: an entry point names each."""
    described = tmp_path / "shouting-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        f"[{GROUP}]\nshouting = {__name__}:SHOUTING\nhermes_too = derender_service.parsers.families.hermes:HERMES\n"
    )
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, ModuleType(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "SHOUTING", SHOUTING, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "NO_PARSER", NO_PARSER, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.cache_clear()
    yield described
    plugins.cache_clear()


@pytest.mark.usefixtures("plugged")
def test_a_plug_in_is_replayed_over_its_chunks() -> None:
    own = derenderer.__wrapped__("qwen3", None, "shouting")
    parts = [encode("qwen3", text) for text in ("WHY", " so 日", "!f", "本")]
    prompt = encode("qwen3", "Hi there")
    split = [parts[0], parts[1][:-1], parts[1][-1:], *parts[2:]]
    chunks, state = stream(own, [*(chunk_of(part) for part in split), chunk_of((), "stop")], chat_request(tools=TOOLS), prompt)
    message = assembled(chunks)["message"]
    used = 100 - len(prompt) - sum(map(len, parts))
    assert message["reasoning"] == "WHY"
    assert message["content"] == f" so 日本({used} left)"
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "f", "arguments": "{}"}]
    assert state["output_chunk_lens"] == [len(part) for part in split if part]
    batch = whole(own, parts[0], chat_request(tools=TOOLS), prompt)
    assert batch["message"]["reasoning"] == "WHY"


@pytest.mark.usefixtures("plugged")
def test_a_plugged_format_joins_the_declared_ones() -> None:
    own = derenderer.__wrapped__("qwen3", "qwen3", "hermes_too")
    called = encode("qwen3", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
    assert whole(own, called, chat_request(tools=TOOLS))["message"]["tool_calls"]


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize("names", [("qwen3", "shouting"), ("none_such", None), (None, "none_such"), ("openai_gptoss", "hermes")])
def test_formats_that_do_not_go_together_are_refused(names: tuple[str | None, str | None]) -> None:
    with pytest.raises(UnknownParser):
        parsing_for(profile("qwen3").tokenizer, *names)


@pytest.mark.usefixtures("plugged")
def test_every_chunk_is_read_alike_when_it_is_sent_again() -> None:
    own = derenderer.__wrapped__("qwen3", None, "shouting")
    first = step(own, {"stream": True, "model": "m", "generate_chunk": chunk_of(encode("qwen3", "WHY")), **opening()})
    again = {"stream": True, "model": "m", "generate_chunk": chunk_of(encode("qwen3", "!f")), "stream_state": first["stream_state"]}
    assert step(own, again)["chunk"]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "f"


def opening() -> dict[str, Any]:
    return {"chat_request": chat_request(tools=TOOLS), "prompt_token_ids": []}


def test_an_entry_point_that_is_no_parser_is_named(plugged: Path) -> None:
    (plugged / "entry_points.txt").write_text(f"[{GROUP}]\nodd = {__name__}:NO_PARSER\n")
    with pytest.raises(BrokenPlugin, match="odd"):
        plugins()


def test_a_plug_in_may_not_need_much_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(**_: Any) -> dict[str, Any]:
        return {"all": "x" * 5000}

    monkeypatch.setattr("derender_service.parsers.parsing.plugins", lambda: {"greedy": Plugin(greedy, Shouting)})
    own = derenderer.__wrapped__("qwen3", None, "greedy")
    with pytest.raises(BrokenPlugin, match="2048 bytes"):
        step(own, {"stream": True, "model": "m", "generate_chunk": chunk_of([1]), **opening()})
