"""An output being written as a model would: markup, what stands in it, and the answer that a parser must find."""

from dataclasses import dataclass, field
from typing import Any

from tests.parsers.kit import Setting, detokenizer, encode, spell


@dataclass(frozen=True)
class Call:
    """`text` are the arguments as the model wrote them, for formats that pass them on; else what they say is `value`."""

    name: str
    value: dict[str, Any]
    text: str | None = None


@dataclass
class Script:
    """An output's ids, and what they say."""

    setting: Setting
    ids: list[int] = field(default_factory=list)
    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def markup(self, text: str) -> None:
        """Text whose markers are markup: tokens where the tokenizer has them."""
        self.ids += encode(self.setting.tokenizer, text)

    def data(self, text: str, *, as_tokens: bool = False) -> None:
        """Text in which nothing is markup: spelled by ordinary tokens, or with `as_tokens` even by marker tokens, which a value
        may hold."""
        name = self.setting.tokenizer
        tokens = encode(name, text) if as_tokens else []
        dropped = detokenizer(name).vocabulary.special_ids - self.setting.grammar.marks.keys()
        self.ids += tokens if as_tokens and dropped.isdisjoint(tokens) else spell(name, text)

    @property
    def spelled(self) -> list[str]:
        """The markers that are text with this tokenizer, where text is for the user: such text cannot hold them."""
        grammar = self.setting.grammar
        steps = (step for region in grammar.regions.values() if region.plain for step in region.steps)
        return [step.marker.text for step in steps if step.marker.text not in grammar.tokens and len(step.marker.text) > 2]

    def can_say(self, text: str) -> bool:
        return not any(marker in text for marker in self.spelled)
