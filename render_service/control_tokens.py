"""Control tokens cannot be forged: text that the client supplies and that spells one is encoded as the text that it is.

A control token is an added token of the tokenizer (`<|im_end|>`, `<think>`; whether it is flagged special or not), but for those of
white space only, which are ordinary text in some vocabularies. A prompt in which all control tokens are wholly the template's is
encoded by the tokenizer as it is. In any other the template's control tokens are written as stand-ins that a second tokenizer
knows, to which all other control tokens are mere text; stand-ins are random, so that no client can write one.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from model_profile.provenance import Traced, is_supplied, runs, untraced
from render_service.encoding import Encoded, Span, encode
from render_service.word_pattern import longest_of

_SPACE = " \t\r\n\u2581"  # as a vocabulary may write spaces
_PRIVATE_USE = range(0x100000, 0x10FFFE)
_NONCE_LENGTH = 8
_WINDOW = 65_536
"""Characters."""
_BLIND = "\uffff"
"""No character, so no part of a token."""


class Unwritable(ValueError):
    """This tokenizer makes a control token of its text in any case."""


@dataclass(frozen=True, slots=True)
class Found:
    """A control token's place in a text, in characters, the white space that it swallows left out."""

    start: int
    end: int
    id: int


class ControlTokens:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = {
            index: token for index, token in tokenizer.get_added_tokens_decoder().items() if token.content.strip(_SPACE)
        }
        self._ids = {token.content: index for index, token in self._tokens.items()}
        self._normalizer = tokenizer.normalizer
        self._matcher = self._make_matcher()
        self._begun_by = lru_cache(64)(self._find_beginning)
        nonce = "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(_NONCE_LENGTH))
        self._stand_ins = {index: f"{nonce}{chr(_PRIVATE_USE[place])}" for place, index in enumerate(self._tokens)}

    def prepare(self) -> None:
        """Makes the second tokenizer now, which takes seconds for some models, rather than when it is needed first."""
        _ = self._id_of_stand_in

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self._tokens)

    def one_to_stand_behind(self) -> tuple[str, int] | None:
        """A control token, as text and id, that leaves the text on both sides of it as it is; None where there is none.

        With no text before it or behind it does it spell another token: none ends with what it begins with, or has it within. (What
        begins within it is not seen: the tokenizer goes from left to right, and takes the longest.)
        """
        contents = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        ends = {content[at:] for content in contents for at in range(1, len(content))}
        for index, token in self._tokens.items():
            own = token.content
            apart = not any(own[:length] in ends for length in range(1, len(own) + 1))
            simple = not (token.lstrip or token.rstrip or token.normalized or token.single_word)
            if simple and apart and not any(own in other for other in contents if other != own):
                return own, index
        return None

    def may_be_spelled_by(self, values: Iterable[Any], literals: frozenset[str] | None) -> bool:
        """Whether any text in `values` could have a part in a control token, whatever a template with these `literals` makes of it.

        Errs to the safe side, and quickly: of a token that is in part supplied, either the first character is, or the template
        wrote the beginning. Such templates are rare; for one that is not known it is as if it did.
        """
        return literals is None or self._begun_by(literals) or any(map(self._has_a_beginning, _texts(values)))

    def spans(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Ids of the control tokens in `text` with what they take of it, white space that they swallow included: start and end."""
        text = untraced(text)
        return self._spans_by_pattern(self._pattern, text) if self._pattern else self._spans_by_library(text)

    def _spans_by_pattern(self, pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int, int]]:
        at = 0
        # No other thread runs while Python looks for a pattern.
        for window in range(0, len(text), _WINDOW):
            for match in pattern.finditer(text, max(at, window), window + _WINDOW + self._longest):
                if match.start() >= window + _WINDOW:
                    break
                yield self._ids[match[0]], match.start(), match.end()
                at = match.end()

    def _spans_by_library(self, text: str) -> Iterator[tuple[int, int, int]]:
        (encoding,) = self._matcher.encode_batch([text], add_special_tokens=False)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token:
                yield self._id_of_match[token], start, end

    def find(self, text: str) -> list[Found]:
        """The control tokens that the tokenizer sees in `text`, in order."""
        return [self._found(text, *span) for span in self.spans(text)]

    def forged(self, text: Traced) -> bool:
        """Whether a control token that the tokenizer sees in `text` is in any part the client's."""
        return any(any(map(is_supplied, set(text.sources[found.start : found.end]))) for found in self.find(text))

    def own(self, text: Traced) -> list[Found]:
        """The template's control tokens. They are looked for with the client's text out of sight: it could begin one that ends
        within the template's next, which would then be overlooked."""
        seen = (_BLIND * len(run) if is_supplied(run[0]) else untraced(text[at : at + len(run)]) for at, run in runs(text))
        return self.find("".join(seen))

    def encode(self, text: Traced, **how: Any) -> Encoded:
        """As `encoding.encode` does; the control tokens among the ids are the template's. Raises `Unwritable`, `TooManyTokens`."""
        return self.encode_with(untraced(text), self.own(text), **how)

    def encode_with(self, text: str, own: Sequence[Found], **how: Any) -> Encoded:
        """The same, where `own` are the control tokens in `text` that are to be such."""
        pieces, moved = [], [(0, 0)]
        end = 0
        for found in own:
            pieces += [text[end : found.start], self._stand_ins[found.id]]
            written = moved[-1][1] + found.start - end
            moved += [(found.start, written), (found.end, written + _NONCE_LENGTH + 1)]
            end = found.end
        pieces.append(text[end:])
        encoded = encode(self._plain, "".join(pieces), **how)
        self._check(encoded)
        ids = [self._id_of_stand_in.get(index, index) for index in encoded.ids]
        return Encoded(ids, encoded.added, encoded.offsets and list(_moved_back(encoded.offsets, moved)))

    def _check(self, encoded: Encoded) -> None:
        """Raises `Unwritable` if a control token is there that is no stand-in."""
        spelled = self._tokens.keys() & {*encoded.ids}
        for index, added in zip(encoded.ids, encoded.added, strict=True) if spelled else ():
            if index in spelled and not added:
                raise Unwritable(f"the text {self._tokens[index].content!r} cannot be told from the control token that it spells")

    def _has_a_beginning(self, text: str) -> bool:
        if self._first_characters.search(text):
            return True
        return self._normalizes and self._first_characters.search(self._normalizer.normalize_str(text)) is not None

    def _find_beginning(self, literals: frozenset[str]) -> bool:
        """Whether a literal ends, or what it has before a placeholder (`%s`, `{}`), with the beginning of a control token, white
        space aside."""
        beginnings = {content[:length] for content in self._ids for length in range(1, len(content))}
        ends = {end for literal in literals for part in re.split("[%{]", literal) for end in (part, part.rstrip())}
        return any(end[-length:] in beginnings for end in ends for length in range(1, min(len(end), self._longest) + 1))

    @cached_property
    def _first_characters(self) -> re.Pattern[str]:
        first = {each for content in self._ids for each in (content[0], content[0].lower(), content[0].upper())}
        return re.compile(f"[{re.escape(''.join(first))}]" if first else r"(?!)")

    @cached_property
    def _normalizes(self) -> bool:
        return self._normalizer is not None and any(token.normalized for token in self._tokens.values())

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """Finds what the library's matcher finds, several times as fast, where a token is its text and nothing else."""
        as_it_is = self._normalizer is None or self._normalizer.__getstate__() == b'{"type":"Sequence","normalizers":[]}'
        if not self._ids or any(
            token.lstrip or token.rstrip or token.single_word or (token.normalized and not as_it_is)
            for token in self._tokens.values()
        ):
            return None
        return re.compile(longest_of(self._ids))

    @cached_property
    def _id_of_match(self) -> dict[int, int]:
        found = {self._matcher.token_to_id(content): index for content, index in self._ids.items()}
        return {token: index for token, index in found.items() if token is not None}

    def _found(self, text: str, token: int, start: int, end: int) -> Found:
        content = self._tokens[token].content
        at = str.find(text, content, start, end)
        return Found(at, at + len(content), token) if at >= 0 else Found(start, end, token)

    def _make_matcher(self) -> Tokenizer:
        matcher = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        if self._normalizer is not None:
            matcher.normalizer = self._normalizer
        matcher.add_tokens(list(self._tokens.values()))
        return matcher

    @cached_property
    def _plain(self) -> Tokenizer:
        plain = Tokenizer.from_str(self._tokenizer.to_str())
        plain.add_special_tokens([_like(token, token.content, special=True) for token in self._tokens.values()])
        plain.encode_special_tokens = True
        plain.add_tokens([_like(self._tokens[index], stand_in, special=False) for index, stand_in in self._stand_ins.items()])
        return plain

    @cached_property
    def _id_of_stand_in(self) -> dict[int, int]:
        found = {self._plain.token_to_id(stand_in): index for index, stand_in in self._stand_ins.items()}
        return {own: index for own, index in found.items() if own is not None}


def _like(token: AddedToken, content: str, *, special: bool) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word and special,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized if special else False,
        special=special,
    )


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain values, keys included."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            pending += [*each.keys(), *each.values()]
        elif isinstance(each, Iterable):
            pending += each


def _moved_back(offsets: list[Span], moved: list[tuple[int, int]]) -> Iterator[Span]:
    """Spans in the text with stand-ins as spans in the text itself. `moved`: places in the one and the other, in order."""
    at = 0
    for start, end in offsets:
        while at + 1 < len(moved) and moved[at + 1][1] <= start:
            at += 1
        true, written = moved[at]
        first = true + start - written
        further = at
        while further + 1 < len(moved) and moved[further + 1][1] <= end:
            further += 1
        true, written = moved[further]
        yield first, true + end - written
