"""Ways to fail: of the bench as a whole, and of one request."""

from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal["http", "timeout", "protocol"]
ERROR_KINDS: tuple[ErrorKind, ...] = ("http", "timeout", "protocol")


class BenchError(Exception):
    """The bench cannot begin or go on. The message is one line for the person who started it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed. `http`: it was refused, or could not be sent, or the server told of an error, by status or in the
    stream. `timeout`: it took longer than allowed. `protocol`: what came is no lawful answer, or not a whole one."""

    kind: ErrorKind
    message: str
    status: int | None = None


class RequestFailed(Exception):
    """One request has failed; the load goes on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refused(message: str, status: int | None = None) -> RequestFailed:
    return RequestFailed(Failure("http", message, status))


def broken(message: str) -> RequestFailed:
    return RequestFailed(Failure("protocol", message))
