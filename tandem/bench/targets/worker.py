"""A generate worker by itself: token ids in, token ids out."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from tandem.bench.requests import Request
from tandem.bench.seen import Arrival, Seen
from tandem.bench.targets import Server, Target
from tandem.bench.targets.caller import Caller
from tandem.bench.targets.generating import GENERATE, Generating


@dataclass
class WorkerTarget(Target):
    """`model` None: a worker serves one, and needs no name."""

    worker: Caller
    model: str | None = None

    async def probe(self) -> Server:
        await self.worker.must_serve(GENERATE)
        cards = await self.worker.models()
        self.model = self.model or (cards[0].id if cards else None)
        return Server({"worker": self.worker.address}, self.model)

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        named = {"model": self.model} if self.model else {}
        generating = Generating(self.worker, {**named, **request.body}, hashed=request.greedy)
        async with aclosing(generating.events()) as events:
            async for at, event in events:
                if count := len(event.choices[0].token_ids):
                    yield Arrival(at, count)
        yield generating.answer()
