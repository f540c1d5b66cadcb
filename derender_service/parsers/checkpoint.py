"""A parser's state as it travels: with the parser's name and a version, so that no other misreads it."""

from typing import Any

from pydantic import ValidationError

from derender_service.parsers.grammar import Grammar
from derender_service.parsers.state import State
from protocol.errors import MAX_ERRORS, BadRequest

VERSION = 1
"""To be raised whenever a field of a state, or what one means, changes: streams begun before are then refused, not misread."""

PARAM = "stream_state.checkpoint"


def pack(parser: str, state: State) -> dict[str, Any]:
    return {"parser": parser, "version": VERSION, "at": state.dump()}


def unpack(parser: str, grammar: Grammar, checkpoint: dict[str, Any]) -> State:
    """Raises `BadRequest`: the checkpoint is another parser's or version's, or none that this one made."""
    told = checkpoint.get("parser"), checkpoint.get("version")
    if told != (parser, VERSION):
        message = f"this stream was begun with parser {told[0]!r}, version {told[1]!r}; this replica has {parser!r}, {VERSION}"
        raise BadRequest(message, param=PARAM)
    if set(checkpoint) != {"parser", "version", "at"}:
        raise BadRequest(f"a checkpoint has parser, version and at, not {sorted(checkpoint)}", param=PARAM)
    try:
        state = State.load(checkpoint["at"])
    except ValidationError as error:
        raise refused(error) from error
    if state.region not in grammar.regions:
        raise BadRequest(f"parser {parser!r} has no region {state.region!r}", param=f"{PARAM}.at.region")
    return state


def refused(error: ValueError) -> BadRequest:
    """What is wrong with a state that a client sent."""
    if isinstance(error, ValidationError) and error.error_count() > MAX_ERRORS:
        return BadRequest(f"this is no state: {error.error_count()} things in it are wrong", param=f"{PARAM}.at")
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, ("at", *first["loc"])))
        return BadRequest(first["msg"], param=f"{PARAM}.{where}")
    return BadRequest(str(error), param=PARAM)
