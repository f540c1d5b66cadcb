"""Verdicts on text while it is being made."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


Check = Callable[[str, str], Verdict | str | Awaitable[Verdict | str]]
"""Given a segment, and all text that was delivered before it: `pass`, `fail`, or `unknown`, which stops nothing."""

FinalCheck = Callable[[str], Verdict | str | Awaitable[Verdict | str]]
"""Given the whole text."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """A check that said `fail`, and of what."""

    name: str
    segment: str


async def verdicts(checks: Sequence[Callable[..., object]], *given: str) -> tuple[CheckResult, ...]:
    """All checks' results, in their order. Those that are coroutines run side by side; one that is not runs on the event loop, so
    it should be quick. Raises what a check raises, and `ValueError` for a verdict that is none."""
    awaited: list[Awaitable[object]] = []
    said: list[object] = []
    for check in checks:
        answer = check(*given)
        said.append(answer)
        if inspect.isawaitable(answer):
            awaited.append(answer)
    answers = iter(await asyncio.gather(*awaited)) if len(awaited) > 1 else iter([await one for one in awaited])
    return tuple(
        CheckResult(_name(check), _verdict(check, next(answers) if inspect.isawaitable(one) else one))
        for check, one in zip(checks, said, strict=True)
    )


def failures(results: Sequence[CheckResult], segment: str) -> list[CheckFailure]:
    return [CheckFailure(one.name, segment) for one in results if one.verdict is Verdict.FAIL]


def _verdict(check: Callable[..., object], answer: Any) -> Verdict:
    try:
        return Verdict(answer)
    except ValueError as error:
        raise ValueError(f"check {_name(check)} answered {answer!r}; a verdict is 'pass', 'fail' or 'unknown'") from error


def _name(check: Callable[..., object]) -> str:
    name = getattr(check, "__name__", None)
    return name if isinstance(name, str) else type(check).__name__
