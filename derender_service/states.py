"""From the state that a client carries to what reads its choice on, and back."""

import json
from collections.abc import Sequence

from derender_service.choice import Begun, advance
from derender_service.derenderer import Derenderer
from derender_service.parsers import checkpoint as checkpoints
from derender_service.parsers.parsing import Declared, Plugged
from derender_service.parsers.plugins import MAX_OPENING, BrokenPlugin, JsonObject
from derender_service.parsers.type_table import BrokenTable, unpack
from derender_service.sources import GrammarSource, Place, PlainSource, PluginSource, history_of
from derender_service.window import Window
from protocol.derender import DerenderContext, DerenderStreamState, GenerateChunkChoice
from protocol.errors import BadRequest

PARAM = checkpoints.PARAM


def opened(
    derenderer: Derenderer,
    context: DerenderContext,
    prompt_token_ids: Sequence[int] | None,
    *,
    created: int,
    prefix: str = "",
    chat_request: JsonObject | None = None,
) -> DerenderStreamState:
    """The state before the first output token. `prefix` is text that the answer begins with (`echo`). `chat_request` is there when
    the output is to be parsed."""
    parsing = derenderer.parsing if chat_request is not None else None
    window = derenderer.detokenizer.seed(prompt_token_ids, keep_special=context.keep_special_tokens)
    checkpoint: JsonObject | None = None
    if isinstance(parsing, Declared):
        state = parsing.open(derenderer.detokenizer, context.tool_choice, prompt_token_ids)
        checkpoint = checkpoints.pack(parsing.name, state)
    elif isinstance(parsing, Plugged):
        opening = parsing.plugin.begin(
            prompt_token_ids=prompt_token_ids, chat_request=chat_request or {}, tokenizer=derenderer.tokenizer
        )
        if len(json.dumps(opening)) > MAX_OPENING:
            raise BrokenPlugin(f"parser {parsing.name}: what it begins with takes more than {MAX_OPENING} bytes of JSON")
        start = {"context": list(window.context), "pending": list(window.pending)}
        checkpoint = {"parser": parsing.name, "version": checkpoints.VERSION, "opening": opening, "start": start}
    return DerenderStreamState(
        prev_tokens=[*window.context, *window.pending],
        read_offset=len(window.context),
        logprob_text_offset=len(prefix),
        created=created,
        profile=derenderer.fingerprint,
        context=context,
        checkpoint=checkpoint,
    )


def begun(derenderer: Derenderer, context: DerenderContext, state: DerenderStreamState) -> Begun:
    """What reads this choice on from `state`. Raises `BadRequest` for a checkpoint that is not this server's parser's."""
    window = _window(state)
    keep, join = context.keep_special_tokens, context.join_special_tokens
    parsing = derenderer.parsing
    if state.checkpoint is None:
        return Begun(PlainSource(derenderer.detokenizer, keep, join), Place(window))
    if isinstance(parsing, Declared):
        grammar = parsing.grammars[context.tool_choice]
        parse = checkpoints.unpack(parsing.name, grammar, state.checkpoint)
        try:
            types = unpack(context.parameter_types)
        except BrokenTable as error:
            raise BadRequest(str(error), param="stream_state.context.parameter_types") from error
        source = GrammarSource(derenderer.detokenizer, grammar, types, context.tool_name, keep, join)
        return Begun(source, Place(window, parse), grammar.closing)
    if isinstance(parsing, Plugged):
        opening, start = _plugged(parsing, state.checkpoint)
        history = history_of(state.output_token_ids, state.output_chunk_lens)
        plugged = PluginSource(derenderer.detokenizer, derenderer.tokenizer, parsing.plugin, opening, start, history)
        return Begun(plugged, Place(window))
    raise BadRequest("this stream was begun by a server with a parser; this one has none", param=PARAM)


def kept(
    derenderer: Derenderer, context: DerenderContext, state: DerenderStreamState, place: Place, token_ids: list[int]
) -> DerenderStreamState:
    """`state` with what its source needs next time; `token_ids` are the chunk's."""
    changed: JsonObject = {}
    if place.parse is not None and derenderer.parsing is not None:
        changed["checkpoint"] = checkpoints.pack(derenderer.parsing.name, place.parse)
    if token_ids and (context.replay or (isinstance(derenderer.parsing, Plugged) and state.checkpoint is not None)):
        changed["output_token_ids"] = [*state.output_token_ids, *token_ids]
        changed["output_chunk_lens"] = [*state.output_chunk_lens, len(token_ids)]
    return state.model_copy(update=changed) if changed else state


def replayed(
    derenderer: Derenderer, context: DerenderContext, fresh: DerenderStreamState, given: DerenderStreamState
) -> DerenderStreamState:
    """The state that `given` would be if this server had read its history: `fresh` led over it. Where chunks make a difference,
    a chunk at a time.

    For states of a server that keeps no checkpoint. What has been sent already is taken from `given`.
    """
    derenderer.check_ids(given.output_token_ids, "stream_state.output_token_ids")
    derenderer.check_length(context.prompt_tokens + len(given.output_token_ids), "stream_state.output_token_ids")
    state = fresh
    history = history_of(given.output_token_ids, given.output_chunk_lens)
    divisible = begun(derenderer, context, fresh).source.divisible
    for ids in [given.output_token_ids] if divisible and history else history:
        if state.stopped:
            break
        choice = GenerateChunkChoice(index=0, token_ids=list(ids))
        step, state, place = advance(
            begun(derenderer, context, state), derenderer.eos_token_ids, state, context, choice, last=False
        )
        state = kept(derenderer, context, state, place, step.token_ids)
    told: JsonObject = {
        "role_sent": given.role_sent,
        "last_tool_call_ids": given.last_tool_call_ids,
        "created": given.created or fresh.created,
    }
    if state.output_token_ids:
        told["output_chunk_lens"] = _covering(given.output_chunk_lens, len(state.output_token_ids))
    return state.model_copy(update=told)


def _covering(lengths: Sequence[int], count: int) -> list[int]:
    """The first of these lengths, as many as make `count`; the last one cut to it."""
    found = []
    for length in lengths:
        if count <= 0:
            break
        found.append(min(length, count))
        count -= length
    return found


def _window(state: DerenderStreamState) -> Window:
    context = state.prev_tokens[state.prefix_offset : state.read_offset]
    return Window(tuple(context), tuple(state.prev_tokens[state.read_offset :]))


def _plugged(parsing: Plugged, checkpoint: JsonObject) -> tuple[str, Window]:
    if (checkpoint.get("parser"), checkpoint.get("version")) != (parsing.name, checkpoints.VERSION):
        raise BadRequest(f"this stream was begun with parser {checkpoint.get('parser')!r}, here is {parsing.name!r}", param=PARAM)
    opening, start = checkpoint.get("opening"), checkpoint.get("start")
    window = start if isinstance(start, dict) else {}
    tokens = [window.get("context"), window.get("pending")]
    if not isinstance(opening, dict) or not all(
        isinstance(part, list) and all(isinstance(t, str) for t in part) for part in tokens
    ):
        raise BadRequest("a plug-in's checkpoint has opening and start", param=PARAM)
    return json.dumps(opening), Window(*(tuple(part) for part in tokens if part is not None))
