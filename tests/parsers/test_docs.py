"""The worked example of docs/parsers.md works."""

import re
from pathlib import Path
from typing import Any

import pytest

from derender_service.parsers.families import REASONING, TOOLS
from derender_service.parsers.formats import ToolFormat
from tests.derender.parsed import chat_request, derenderer, encode, tool, whole

PAGE = (Path(__file__).parents[2] / "docs" / "parsers.md").read_text(encoding="utf-8")


def test_the_worked_example_reads_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {}
    exec(source, found)
    longcat = found["LONGCAT"]
    assert isinstance(longcat, ToolFormat)
    monkeypatch.setattr("derender_service.parsers.parsing.plugins", lambda: {"longcat": longcat})
    own = derenderer.__wrapped__("smollm2", None, "longcat")
    text = 'On it.\n<longcat_tool_call>\n{"name": "f", "arguments": {"x": "</longcat_tool_call>"}}\n</longcat_tool_call>'
    message = whole(own, encode("smollm2", text), chat_request(tools=[tool("f")]))["message"]
    assert message["content"] == "On it."
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "f", "arguments": '{"x": "</longcat_tool_call>"}'}]


def test_every_parser_is_listed() -> None:
    names = {name for row in re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    assert names >= {*REASONING, *TOOLS, "openai_gptoss", "openai"}
