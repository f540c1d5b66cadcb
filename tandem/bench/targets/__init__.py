"""What can be asked: each target turns a request into what is seen of its answer, as it comes."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from tandem.bench.requests import Request
from tandem.bench.seen import Seen


@dataclass(frozen=True, slots=True)
class Server:
    """What was found at an address. `ignores_eos`: whether it is known to have `ignore_eos`, which not every server takes."""

    addresses: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    ignores_eos: bool = True


class Target(Protocol):
    async def probe(self) -> Server:
        """Looks whether the server is one, without making it generate. Raises `BenchError` with one line if not. To be called
        before `ask`."""

    def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        """Ends with an `Answer`. Raises `RequestFailed`. Leaving it early closes the connection, which stops the server."""
