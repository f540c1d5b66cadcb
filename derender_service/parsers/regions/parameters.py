"""Parameters that are written one by one, each between markers."""

from dataclasses import dataclass
from typing import Any

from derender_service.parsers.codecs.parameter_types import STRING
from derender_service.parsers.codecs.parameters import Parameters
from derender_service.parsers.markers import common_end
from derender_service.parsers.regions.base import Region
from derender_service.parsers.run import Run


@dataclass(frozen=True, kw_only=True)
class Dropped(Region):
    """Within a call, text that says nothing."""

    inside: bool = True

    def take(self, run: Run, text: str, at: int) -> int:
        _, step, end = self._search(run, text, at)
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Between(Dropped):
    """Between the parameters of a call. Text there belongs to none of them."""

    reader_type: Any = Parameters

    def new_reader(self, run: Run) -> Parameters:
        return Parameters(tool=run.called)

    def close(self, run: Run) -> None:
        for event in run.reader.close():
            run.emit(event)


@dataclass(frozen=True, kw_only=True)
class Key(Between):
    """The name of a parameter, up to a marker, perhaps in `quotes`."""

    quotes: str = ""

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        run.state.word += body
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        run.state.word += text

    def leave(self, run: Run) -> bool:
        key, run.state.word = run.state.word.strip().strip(self.quotes), ""
        run.reader.key, run.reader.kinds = key, run.types.get(run.reader.tool, {}).get(key, STRING)
        return True

    def finish(self, run: Run) -> None:
        run.state.held = ""


@dataclass(frozen=True, kw_only=True)
class Value(Between):
    """The value of a parameter, up to its end marker and nothing else."""

    def entered(self, run: Run) -> None:
        for event in run.reader.begin():
            run.emit(event)

    def take(self, run: Run, text: str, at: int) -> int:
        body, step, end = self._search(run, text, at)
        cut = len(body) - common_end(body, step.marker.before) if step else len(body)
        self.literal(run, body[:cut])
        if step is not None:
            run.go(step)
        return end

    def literal(self, run: Run, text: str) -> None:
        for event in run.reader.value(text):
            run.emit(event)

    def leave(self, run: Run) -> bool:
        for event in run.reader.end():
            run.emit(event)
        return True
