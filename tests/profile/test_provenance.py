"""Traced text: whatever a template does to it, each character still knows whether the client supplied it, and in which message.

The client's texts here are of capital letters and the template's of small ones, so the right source can be read off each character.
"""

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profile import ChatTemplate, TemplateInput
from model_profile.provenance import (
    OUTSIDE,
    Traced,
    is_supplied,
    joined,
    message_of,
    percent,
    runs,
    source,
    traced,
    traced_in,
    untraced,
)
from tests.tokenizers import profile

MINE, YOURS = source(0, supplied=True), source(OUTSIDE, supplied=False)
mixed = st.text(alphabet="ABx yz\n", max_size=12)


def of(text: str) -> Traced:
    """Capitals are the client's."""
    return Traced(text, "".join(MINE if character.isupper() else YOURS for character in text))


def right(text: str) -> bool:
    """Whether capitals, and nothing else that shows, are the client's."""
    assert isinstance(text, Traced)
    assert len(text.sources) == len(text)
    return all(is_supplied(own) == each.isupper() for each, own in zip(untraced(text), text.sources, strict=True) if each.isalpha())


@given(mixed, st.sampled_from(["x", "A", " ", "\n", "AB", "zz"]), st.integers(-1, 3))
def test_methods_of_text_keep_sources(text: str, part: str, count: int) -> None:
    own = of(text)
    pairs: list[tuple[Any, Any]] = [
        (own.strip(), text.strip()),
        (own.strip(part), text.strip(part)),
        (own.lstrip(), text.lstrip()),
        (own.rstrip(part), text.rstrip(part)),
        (own.removeprefix(part), text.removeprefix(part)),
        (own.removesuffix(part), text.removesuffix(part)),
        (own.split(part, count), text.split(part, count)),
        (own.split(None, count), text.split(None, count)),
        (own.rsplit(part, count), text.rsplit(part, count)),
        (own.rsplit(None, count), text.rsplit(None, count)),
        (own.splitlines(), text.splitlines()),
        (own.splitlines(True), text.splitlines(True)),
        (own.partition(part), text.partition(part)),
        (own.rpartition(part), text.rpartition(part)),
        (own.replace(part, of("Cw")), text.replace(part, "Cw")),
        (own.replace(part, of("Cw"), count), text.replace(part, "Cw", count)),
        (own.join([of("Cw"), "v"]), text.join(["Cw", "v"])),
        (of("Cw").join(own), "Cw".join(text)),
        (own * 2, text * 2),
        (own + part.lower(), text + part.lower()),
        (part.lower() + own, part.lower() + text),
        (own[1:-1], text[1:-1]),
        (own[::-1], text[::-1]),
        (list(own), list(text)),
        (f"{own}", text),
    ]
    for found, expected in pairs:
        assert found == expected
        assert all(right(each) for each in ([found] if isinstance(found, str) else found))


@given(mixed)
def test_what_is_not_followed_by_character_is_the_clients_as_a_whole(text: str) -> None:
    own = of(text)
    supplied = any(character.isupper() for character in text)
    for found, expected in [
        (own.center(20, "-"), text.center(20, "-")),
        (own.expandtabs(), text.expandtabs()),
        (own.zfill(20), text.zfill(20)),
        (own.translate({65: "QQ"}), text.translate({65: "QQ"})),
        (format(own, ">20"), format(text, ">20")),
    ]:
        assert found == expected
        assert set(map(is_supplied, found.sources)) <= {supplied}


def test_changed_case_keeps_sources_where_the_length_stays() -> None:
    own = of("aB") + "c"
    assert [is_supplied(each) for each in own.upper().sources] == [False, True, False]
    assert all(is_supplied(each) for each in (of("B") + "ß").upper().sources)


def test_percent_and_format_tell_the_layout_from_what_is_put_in() -> None:
    for made in (
        percent("x%sy%%", of("A")),
        of("x") % (),
        joined("", ["x{}y{n!s:}"]).format(of("A"), n=of("B")),
        joined("", ["x%(n)sy"]) % {"n": of("A")},
    ):
        assert not isinstance(made, Traced) or right(made)
    assert right(joined("", ["x{0[k]}y"]).format({"k": of("A")}))


TEMPLATES = {
    "output": "a{{ m.content }}b",
    "tilde": "{{ 'a' ~ m.content ~ 'b' }}",
    "plus": "{{ 'a' + m.content + 'b' }}",
    "trim": "a{{ m.content | trim }}b",
    "join of parts": "{{ ['a', m.content, 'b'] | join('c') }}",
    "join by method": "{{ 'c'.join(['a', m.content]) }}",
    "join of attributes": "{{ messages | join('c', attribute='content') }}",
    "replace": "{{ 'axb'.replace('x', m.content) }}",
    "replace within": "{{ m.content.replace(' ', 'q') }}",
    "percent": "{{ 'a%sb' % m.content }}",
    "percent of two": "{{ 'a%sb%s' % (m.content, 'c') }}",
    "format": "{{ 'a{}b'.format(m.content) }}",
    "format by name": "{{ 'a{x}b'.format(x=m.content) }}",
    "block": "{% set x %}a{{ m.content }}{% endset %}{{ x }}b",
    "macro": "{% macro say(text) %}a{{ text }}b{% endmacro %}{{ say(m.content) }}",
    "macro with nothing of it": "{% macro say(text) %}ab{% endmacro %}{{ say(m.content) }}",
    "caller": "{% macro say() %}a{{ caller() }}b{% endmacro %}{% call say() %}c{{ m.content }}{% endcall %}",
    "characters": "{% for c in m.content %}a{{ c }}{% endfor %}",
    "split": "{% for c in m.content.split(' ') %}{{ c }}b{% endfor %}",
    "slice": "a{{ m.content[1:] }}{{ m.content[0] }}b",
    "namespace": "{% set ns = namespace(t='a') %}{% for x in messages %}{% set ns.t = ns.t + x.content %}{% endfor %}{{ ns.t }}",
    "default": "{{ m.nothing | default(m.content) }}a",
    "first": "{{ [m.content] | first }}a{{ messages | map(attribute='content') | list | last }}",
    "inline if": "{{ m.content if m.content else 'a' }}b",
    "filter block": "{% filter trim %} a{{ m.content }}b {% endfilter %}",
    "string": "{{ m.content | string }}a",
    "get": "{{ m.get('content', 'a') }}b",
    "items": "{% for k, v in m.items() %}{{ v if k == 'content' }}a{% endfor %}",
    "indent": "{{ m.content | indent }}a",
    "variable": "{{ word }}a",
    "tool": "{{ tools[0].function.name }}a",
    "document": "{{ documents[0].title }}a",
}


@pytest.mark.parametrize("program", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("content", ["A", "A B", " AB\n", ""])
def test_templates_keep_sources(program: str, content: str) -> None:
    given = TemplateInput(
        [{"role": "user", "content": content}],
        tools=[{"type": "function", "function": {"name": "TOOL"}}],
        documents=[{"title": "DOC"}],
        variables={"word": "WORD"},
    )
    template = ChatTemplate("{% set m = messages | first %}" + program)
    if not content and program == TEMPLATES["slice"]:
        return
    text = template.trace(given)
    assert text == template.write(given)
    assert right(text)


@pytest.mark.parametrize(
    "program",
    [
        *("{{ messages }}", "{{ [m.content] }}", "{{ m.content.split(' ') }}", "{{ m.content.split(' ') ~ '' }}", "{{ dict(m) }}"),
        *("{{ [[m.content]] | join }}", "{{ messages | map(attribute='content') | list }}", "{{ m.values() | list }}"),
        *("{{ namespace(a=m.content) }}", "{{ m.content.encode() }}", "{{ m.content.encode().decode() }}", "{{ word }}"),
        *("{{ 'z'.translate({122: m.content}) }}", "{{ '{}'.format([m.content]) }}", "{{ [m.content] | string }}"),
        "{{ '%s' % [m.content] }}",
        "{% macro say() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ say(m.content, x=m.content) }}",
    ],
)
def test_what_is_printed_as_a_value_is_the_clients(program: str) -> None:
    """Lists, mappings and the like show texts that nobody wrote as such."""
    given = TemplateInput([{"role": "user", "content": "A B"}], variables={"word": ["A"]})
    template = ChatTemplate("{% set m = messages | first %}a" + program + "b")
    text = template.trace(given)
    assert text == template.write(given)
    assert {is_supplied(own) for own in text.sources[1:-1]} == {True}
    assert not is_supplied(text.sources[0])
    assert not is_supplied(text.sources[-1])


@pytest.mark.parametrize("program", ["{{ m | tojson }}", "{{ [m.content, 'a'] | tojson }}", "{{ m.content | e }}"])
def test_what_a_filter_makes_of_the_clients_text_is_the_clients(program: str) -> None:
    template = ChatTemplate("{% set m = messages | first %}" + program + "a")
    text = template.trace(TemplateInput([{"role": "user", "content": "A\nB"}]))
    assert {is_supplied(own) for own in text.sources[:-1]} == {True}
    assert not is_supplied(text.sources[-1])


REAL = {
    "qwen3": "system user assistant tool tool assistant user",
    "llama3_1": "system user assistant user",
    "deepseek_v3": "system user assistant user",
    "gemma3": "system user assistant user",
    "smollm2": "user assistant user",
}


@pytest.mark.parametrize("family", REAL)
def test_of_a_models_own_template_every_character_knows_its_message(family: str) -> None:
    """Message i says a word of Cyrillic letters of its own; no template has any."""
    letters = "абвгдежз"
    messages = [
        {"role": role, "content": f"{letters[index] * 3} ", "tool_call_id": "c"} for index, role in enumerate(REAL[family].split())
    ]
    own = profile(family)
    assert own.chat_template is not None
    given = TemplateInput(messages, add_generation_prompt=True, special_tokens=own.special_tokens)
    text = own.chat_template.trace(given)
    assert text == own.chat_template.write(given)
    for character, mark in zip(untraced(text), text.sources, strict=True):
        if character in letters:
            assert (message_of(mark), is_supplied(mark)) == (letters.index(character), True)
        elif character.strip():
            assert not is_supplied(mark)
    for index in range(len(messages)):
        assert letters[index] * 3 in untraced(text)


def test_traced_values_reach_into_lists_and_mappings() -> None:
    value = traced({"A": ["B", {"C": 1}], "D": None}, MINE)
    assert value == {"A": ["B", {"C": 1}], "D": None}
    assert all(isinstance(key, Traced) for key in value)
    assert isinstance(value["A"][0], Traced)


@given(st.lists(st.tuples(st.sampled_from("ab\x00"), st.integers(1, 9000)), max_size=6))
def test_runs_are_of_one_source_and_as_long_as_can_be(parts: list[tuple[str, int]]) -> None:
    sources = "".join(own * count for own, count in parts)
    found = list(runs(Traced("x" * len(sources), sources)))
    assert "".join(run for _, run in found) == sources
    assert [at for at, _ in found] == [0, *accumulate(len(run) for _, run in found)][: len(found)]
    assert all(len({*run}) == 1 for _, run in found)
    assert all(one[1][0] != other[1][0] for one, other in pairwise(found))


def test_values_are_traced_however_deep() -> None:
    """Deeper than Python's calls may go."""
    value: Any = "x"
    for _ in range(5000):
        value = {"k": [value]}
    found = list(traced_in(traced(value, source(0, supplied=True))))
    assert sorted(map(str, found)) == ["k"] * 5000 + ["x"]
    assert all(is_supplied(each.sources) for each in found)
