"""The inside of a JSON string: unescaped piece by piece, and escaped."""

import json
import re

_HEX = "[0-9a-fA-F]"
_UNIT = re.compile(
    rf"""(?: [^\\]+
        | \\u (?: [dD][89abAB]{_HEX}{{2}} (?! \Z | \\\Z | \\u{_HEX}{{0,3}}\Z ) | (?![dD][89abAB]) {_HEX}{{4}} )
        | \\u (?! {_HEX}{{0,3}}\Z | {_HEX}{{4}} )
        | \\ [^u]
    )*""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rf'\\(?:u{_HEX}{{4}}|["\\/bfnrt])')


def unescaped(text: str) -> tuple[str, str]:
    """The text that this string content spells, and the end of it that waits for more: a cut escape, or half a surrogate pair."""
    match = _UNIT.match(text)
    ready = match.end() if match else 0
    return unescape(text[:ready]), text[ready:]


def unescape(text: str) -> str:
    """String content as the text it spells. What is no escape stays; half a surrogate pair becomes U+FFFD."""
    if "\\" not in text:
        return text
    return whole_characters(_ESCAPE.sub(lambda match: json.loads(f'"{match[0]}"'), text))


def whole_characters(text: str) -> str:
    """Joins surrogate pairs; a lone half, which no UTF-8 can hold, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def escape(text: str) -> str:
    """Text as JSON string content. Characters are escaped one by one, so pieces can be joined."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
