"""Markers, where they lead, and how they are found in text that arrives in pieces."""

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Marker:
    """A piece of markup. `before` and `after` are the white space that the family's template writes around it: at most that much
    belongs to the marker, all other white space is text.

    Whether it is a token or text is the tokenizer's matter: where `text` is one added token, only that token is the marker;
    elsewhere the characters are.
    """

    text: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Step:
    """From a region, `marker` leads to region `to`. `keep` leaves its text to be read there. `stray`: it has no meaning in the
    region and is dropped, but only as a token; spelled by ordinary tokens it is text. `closes`: it ends a call, so after one it is
    no beginning of what may be content."""

    marker: Marker
    to: str
    keep: bool = False
    stray: bool = False
    closes: bool = False


class Exits:
    """The steps out of one region, for one tokenizer: `tokens` are the markers that are single tokens there."""

    def __init__(self, steps: Iterable[Step], tokens: Set[str]) -> None:
        every = tuple(step for step in steps if step.marker.text in tokens or not step.stray)
        self.by_token = {step.marker.text: step for step in every if step.marker.text in tokens}
        self._by_text = {step.marker.text: step for step in every if step.marker.text not in tokens}
        texts = sorted(self._by_text, key=len, reverse=True)
        self._longest = max(map(len, texts), default=0)
        self.first_characters = "".join(sorted({text[0] for text in texts}))
        """What a reader must stop at outside of strings."""
        self._pattern = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._tail = _tail_pattern(every, self._by_text)
        self._reach = max((len(s.marker.before) + len(s.marker.text) for s in every), default=0)

    def search(self, text: str, at: int = 0) -> tuple[int, int, Step] | None:
        """The first marker in the text from `at` on: where it begins, where it ends, and its step."""
        match = self._pattern.search(text, at) if self._pattern else None
        return (match.start(), match.end(), self._by_text[match[0]]) if match else None

    def match(self, text: str, at: int) -> tuple[int, Step] | None:
        """The marker that stands exactly at `at`: where it ends, and its step."""
        match = self._pattern.match(text, at) if self._pattern else None
        return (match.end(), self._by_text[match[0]]) if match else None

    def may_begin(self, text: str, at: int) -> bool:
        """Whether the text from `at` on is a proper beginning of some marker."""
        if len(text) - at >= self._longest:
            return False
        rest = text[at:]
        return any(len(rest) < len(marker) and marker.startswith(rest) for marker in self._by_text)

    def waiting(self, text: str) -> int:
        """How many characters at the end may still turn out to belong to a marker, or to the white space before one."""
        if self._tail is None:
            return 0
        match = self._tail.search(text, max(0, len(text) - self._reach))
        return len(text) - match.start() if match else 0


def common_end(text: str, before: str) -> int:
    """Length of the longest end that `text` shares with `before`."""
    count = 0
    while count < min(len(text), len(before)) and text[-count - 1] == before[-count - 1]:
        count += 1
    return count


def _tail_pattern(steps: Iterable[Step], by_text: Iterable[str]) -> re.Pattern[str] | None:
    """Matches the ends of text that must wait. The leftmost match is the longest, so alternatives need no order."""
    spelled = frozenset(by_text)
    tails: dict[str, None] = {}
    for step in steps:
        before, text = step.marker.before, step.marker.text
        for start in range(len(before)):
            for end in range(start + 1, len(before) + 1):
                tails[before[start:end]] = None
        if text in spelled:
            for start in range(len(before) + 1):
                for length in range(1, len(text)):
                    tails[before[start:] + text[:length]] = None
    return re.compile(f"(?:{'|'.join(map(re.escape, tails))})\\Z") if tails else None
