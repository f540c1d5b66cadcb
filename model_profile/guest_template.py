"""Chat templates that requests bring. They run in processes of their own (`template_host`), where they hurt none but themselves.

To those who render they are what `ChatTemplate` is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from model_profile.provenance import Traced
from model_profile.template import InvalidTemplate, TemplateFailed, TemplateInput, TemplateRefused
from model_profile.template_budget import TemplateLimits, too_long
from model_profile.template_habits import TemplateHabits
from model_profile.template_pool import GuestExceeded, TemplatePool
from model_profile.template_wire import JsonObject, frame, input_as_json, traced_from_json

T = TypeVar("T")

MAX_SOURCE = 2**18
"""Characters of a template: several times the longest that models come with."""

_KINDS: dict[str, type[TemplateFailed]] = {
    "TemplateFailed": TemplateFailed,
    "TemplateRefused": TemplateRefused,
    "TemplateExceeded": GuestExceeded,
    "InvalidTemplate": InvalidTemplate,
}


class GuestTemplates:
    """Makes templates of sources, and has them run in no more than `size` processes at once."""

    def __init__(self, limits: TemplateLimits, size: int) -> None:
        self.pool = TemplatePool(limits, size)
        self._habits = lru_cache(maxsize=64)(self._learned)

    def template(self, source: str) -> "GuestTemplate":
        """Raises `InvalidTemplate`."""
        if len(source) > MAX_SOURCE:
            raise InvalidTemplate(f"the chat template has {len(source)} characters, and no more than {MAX_SOURCE} are taken")
        return GuestTemplate(source, self.pool, self._habits)

    def close(self) -> None:
        self.pool.close()

    def _learned(self, source: str) -> TemplateHabits:
        return _asked(self.pool, {"do": "habits", "source": source}, _habits)


@dataclass(frozen=True)
class GuestTemplate:
    """Every method raises `TemplateFailed` and `HostFailed`."""

    source: str
    pool: TemplatePool
    learned: Callable[[str], TemplateHabits]

    @property
    def literals(self) -> None:
        """Not known here: the program is read where it runs."""

    def habits(self, *, with_tools: bool = False) -> TemplateHabits:
        return self.learned(self.source)

    def write(self, given: TemplateInput) -> str:
        return _asked(self.pool, self._job("write", given), self._text)

    def trace(self, given: TemplateInput) -> Traced:
        return _asked(self.pool, self._job("trace", given), lambda answer: traced_from_json(self._text(answer), answer["runs"]))

    def _job(self, what: str, given: TemplateInput) -> JsonObject:
        return {"do": what, "source": self.source, "given": input_as_json(given)}

    def _text(self, answer: JsonObject) -> str:
        text = answer["text"]
        if not isinstance(text, str):
            raise TypeError
        if len(text) > self.pool.limits.characters:
            raise GuestExceeded(too_long(self.pool.limits))
        return text


def _habits(answer: JsonObject) -> TemplateHabits:
    return TemplateHabits(**{name: value is True for name, value in answer["habits"].items()})


def _asked(pool: TemplatePool, job: JsonObject, read: Callable[[JsonObject], T]) -> T:
    def or_failed(answer: JsonObject) -> T:
        if "failed" in answer:
            raise _KINDS[answer["failed"]](str(answer["message"]))
        return read(answer)

    try:
        data = frame(job)
    except (ValueError, RecursionError) as error:
        raise TemplateFailed(f"the chat template cannot be given these messages: {error}") from error
    return pool.ask(data, or_failed)
