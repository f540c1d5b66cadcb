"""A model's template runs in the service: its loops, and what it makes of a request, end in time."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from model_profile import BrokenModel, ChatTemplate, TemplateFailed, TemplateInput, load
from model_profile.template import InvalidTemplate, TemplateExceeded
from model_profile.template_budget import TemplateLimits
from tests.bombs import IN_ONE_STEP, IN_STEPS, NO_PROGRAM, RECURSION
from tests.tokenizers import folder

LIMITS = TemplateLimits(seconds=0.3, characters=500_000)
HI = TemplateInput([{"role": "user", "content": "hi"}])
BOMBS = IN_STEPS | IN_ONE_STEP


@pytest.mark.parametrize("way", ["write", "trace"])
@pytest.mark.parametrize(("source", "says"), BOMBS.values(), ids=BOMBS)
def test_bombs(source: str, says: str, way: str) -> None:
    template = ChatTemplate(source, limits=LIMITS)
    getattr(ChatTemplate("warm {{ messages }}"), way)(HI)
    started = time.perf_counter()
    with pytest.raises(TemplateExceeded, match=says):
        getattr(template, way)(HI)
    assert time.perf_counter() - started < LIMITS.seconds + 1
    assert getattr(ChatTemplate("{{ messages[0].content * 3 }}", limits=LIMITS), way)(HI) == "hihihi"


def test_recursion_is_a_failure() -> None:
    with pytest.raises(TemplateFailed, match="recursion"):
        ChatTemplate(RECURSION).write(HI)


SMALL = {name: NO_PROGRAM[name] for name in ("brackets within brackets", "loops within loops", "ifs within ifs")}


@pytest.mark.parametrize(("source", "says"), SMALL.values(), ids=SMALL)
def test_what_python_cannot_compile_is_no_template(source: str, says: str) -> None:
    with pytest.raises(InvalidTemplate, match=says):
        ChatTemplate(source).write(HI)
    with pytest.raises(BrokenModel, match=f"some/file: the chat template is {says}"):
        ChatTemplate.of(source, "some/file")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a' * 100000 }}", "a" * 100_000),
        ("{{ '%5d|%-3s|%*d' % (1, 'a', 4, 2) }}", "    1|a  |   2"),
        ("{{ '%d%%' % 50 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ 3 * 4 }}", "50%3102412"),
        ("{{ '{:>5}|{x!r:6}|{:{}}'.format(1, 2, 3, x='a') }}", "    1|'a'   |  2"),
        ("{{ '{a[b]}'.format_map({'a': {'b': 1}}) }}", "1"),
        ("{{ 'a\nb' | indent(2) }}{{ 'a' | center(3) }}{{ 2.567 | round(2) }}", "a\n  b a 2.57"),
        ("{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | slice(2) | list }}", "[[1, 2], [3, 0]][[1, 2], [3]]"),
        ("{{ ['a', 1] | join('-') }}{{ 'x'.join(['a', 'b']) }}{{ 'aba' | replace('a', 'c', 1) }}", "a-1axbcba"),
        ("{{ 'aba'.replace('a', 'c', 1) }}{{ 'a\tb'.expandtabs(2) }}{{ 'ab'.translate({97: 'xx'}) }}", "cbaa bxxb"),
        ("{{ ('{}' | safe).format('<') }}", "&lt;"),
        ("{{ ((1 + 2) * 3 + 4) ~ '' }}{{ [1] + [2] }}{{ (1, 2) + (3,) }}", "13[1, 2](1, 2, 3)"),
        ("{% for a in [1, 2] if a > 1 recursive %}{{ a }}{% else %}none{% endfor %}{% for a in [] %}{% else %}-{% endfor %}", "2-"),
        ("{{ 'a' + 'b' if true else 'c' + 'd' }}{{ 'x' + ('y' if true) }}", "abxy"),
        ("{{ (1).to_bytes(2, 'big') }}{{ 15.0 | round(-1) }}", "b'\\x00\\x01'20.0"),
    ],
)
def test_what_is_within_the_limits_is_as_ever(source: str, expected: str) -> None:
    assert ChatTemplate(source).write(HI) == expected
    assert ChatTemplate(source).trace(HI) == expected


def test_a_chat_of_brackets_is_not_indented_into_gigabytes() -> None:
    """Some templates of Llama 3 write tools so; a tool of some megabytes may have any depth."""
    deep: Any = [0] * 50
    for _ in range(150):
        deep = [deep, [0] * 50]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"enum": [deep] * 50}}}]
    template = ChatTemplate(
        "{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}", limits=TemplateLimits(characters=2_000_000)
    )
    assert len(json.dumps(tools)) < 1_600_000
    with pytest.raises(TemplateExceeded, match="wrote more than 2000000 characters"):
        template.write(TemplateInput(HI.messages, tools=tools))


@pytest.mark.parametrize("place", ["beside", "given"])
def test_a_template_file_that_never_ends_stops_the_start(tmp_path: Path, place: str) -> None:
    for file in folder("tiny").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / ("chat_template.jinja" if place == "beside" else "mine.jinja")
    path.write_text(IN_STEPS["nested loops"][0])
    started = time.perf_counter()
    with pytest.raises(
        BrokenModel, match=rf"{path.name}: tried on a chat of a few words, the chat template took longer than 0\.3 s"
    ):
        load(str(tmp_path), chat_template=None if place == "beside" else str(path), template_limits=LIMITS)
    assert time.perf_counter() - started < LIMITS.seconds + 2
