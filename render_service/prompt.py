"""From text, or ids that the client brings, to the ids of a prompt that fits the model's context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model_profile import ModelProfile
from protocol.errors import BadRequest
from protocol.generate import TokenIdentity
from protocol.requests import GenerationRequest
from render_service.encoding import Encoded, Span, TooManyTokens, encode
from render_service.renderer import Renderer


@dataclass(frozen=True, slots=True)
class Prompt:
    """`offsets`: each token's span in the text, in characters; None where nobody asked, and for a prompt that came as ids.
    `messages` and `sampled`: which message each token is of, and whether the model sampled it; `identity`: how far it goes on
    from ids that the client brought."""

    ids: list[int]
    offsets: list[Span] | None = None
    messages: list[int] | None = None
    sampled: list[bool] | None = None
    identity: TokenIdentity | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keeps at most `size` ids: the last ones (`left` is what is cut off), or the first."""

    size: int
    side: Literal["left", "right"] = "left"

    def slice(self, length: int, leading: int = 0, trailing: int = 0) -> list[int]:
        """Which of `length` ids stay. Of the ids that the tokenizer put around the text, `leading` and `trailing`, all do."""
        if length <= self.size:
            return list(range(length))
        room = self.size - leading - trailing
        if room <= 0:
            return list(range(length - self.size, length) if self.side == "left" else range(self.size))
        end = length - trailing
        middle = range(end - room, end) if self.side == "left" else range(leading, leading + room)
        return [*range(leading), *middle, *range(end, length)]


def truncation(profile: ModelProfile, request: GenerationRequest, max_tokens: int | None) -> Truncation | None:
    """What `truncate_prompt_tokens` asks for; -1 is as much as leaves room for the output. Raises `BadRequest`."""
    size, side = request.truncate_prompt_tokens, request.truncation_side or "left"
    if size is None:
        return None
    if size == -1:
        return Truncation(max(1, profile.max_model_len - (max_tokens or 1)), side)
    if not 1 <= size <= profile.max_model_len:
        raise BadRequest(
            f"truncate_prompt_tokens: {size} is neither -1 nor from 1 to {profile.max_model_len}, the model's context length",
            param="truncate_prompt_tokens",
        )
    return Truncation(size, side)


def from_text(
    renderer: Renderer,
    text: str,
    *,
    where: str,
    add_special_tokens: bool,
    cut: Truncation | None = None,
    with_offsets: bool = False,
    bounded: bool = True,
) -> Prompt:
    """Tokenizes. Raises `BadRequest` at `where` when no tokenizing could make the text fit (`bounded`), before trying."""
    bounded = bounded and cut is None
    check_text(renderer.profile, text, where=where, bounded=bounded)
    limit = renderer.profile.max_model_len if bounded else None
    try:
        return of(encoded(renderer, text, add_special_tokens=add_special_tokens, with_offsets=with_offsets, limit=limit), cut)
    except TooManyTokens as error:
        raise too_long(renderer.profile, f"{error.count} tokens at least", where) from error


def encoded(
    renderer: Renderer, text: str, *, add_special_tokens: bool, with_offsets: bool = False, limit: int | None = None
) -> Encoded:
    """Raises `TooManyTokens` past `limit`."""
    if with_offsets:
        return encode(renderer.profile.tokenizer, text, add_special_tokens=add_special_tokens, with_offsets=True, limit=limit)
    return renderer.tokenizer_cache.encode(text, add_special_tokens=add_special_tokens, limit=limit)


def of(encoded: Encoded, cut: Truncation | None) -> Prompt:
    ids, offsets = encoded.ids, encoded.offsets
    if cut is None:
        return Prompt(ids, offsets)
    text_at = [index for index, added in enumerate(encoded.added) if not added] or [0]
    kept = cut.slice(len(ids), text_at[0], len(ids) - 1 - text_at[-1])
    return Prompt([ids[index] for index in kept], offsets and [offsets[index] for index in kept])


def check_text(profile: ModelProfile, text: str, *, where: str, bounded: bool) -> None:
    """Raises `BadRequest` at `where` for what is no text, or (`bounded`) could not fit the context."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadRequest(f"{where}: the text has half of a surrogate pair, which is no character", param=where) from error
    if bounded:
        check_size(profile, size, where=where)


def check_size(profile: ModelProfile, size: int, *, where: str) -> None:
    """Refuses a text that no tokenizing could make fit. Raises `BadRequest` at `where`."""
    if size > profile.max_model_len * profile.longest_token:
        raise BadRequest(
            f"{where}: the prompt is a text of {size} bytes, which in no way fits the model's context length of "
            f"{profile.max_model_len} tokens",
            param=where,
        )


def from_ids(profile: ModelProfile, ids: Sequence[int], *, where: str, cut: Truncation | None = None) -> Prompt:
    """Ids as they came. Raises `BadRequest` that names the first one outside the vocabulary."""
    check_ids(profile, ids, where)
    return cut_ids(Prompt(list(ids)), cut)


def cut_ids(prompt: Prompt, cut: Truncation | None) -> Prompt:
    if cut is None:
        return prompt
    kept = cut.slice(len(prompt.ids))
    return Prompt(
        [prompt.ids[index] for index in kept],
        prompt.offsets and [prompt.offsets[index] for index in kept],
        prompt.messages and [prompt.messages[index] for index in kept],
        prompt.sampled and [prompt.sampled[index] for index in kept],
    )


def check_ids(profile: ModelProfile, ids: Sequence[int], where: str) -> None:
    for index, token in enumerate(ids):
        if not 0 <= token < profile.vocab_size:
            at = f"{where}.{index}"
            raise BadRequest(f"{at}: {token} is no token id of this model, whose ids are below {profile.vocab_size}", param=at)


def too_long(profile: ModelProfile, length: str, where: str) -> BadRequest:
    return BadRequest(
        f"{where}: the prompt has {length}, and the model's context length is {profile.max_model_len} tokens, one of which "
        "at least must be left for the output",
        param=where,
    )


def room(
    profile: ModelProfile, prompt: Prompt, *, where: str, asked: int | None, asked_at: str = "max_tokens", default: int | None
) -> int:
    """How many tokens may be generated: what was `asked` for, else `default` or all that is left, whichever is less.

    Raises `BadRequest` with the numbers when the prompt, or the prompt and what was asked for, exceed the context.
    """
    length, context = len(prompt.ids), profile.max_model_len
    if not length:
        raise BadRequest(f"{where}: the prompt has no tokens", param=where)
    if length >= context:
        raise too_long(profile, f"{length} tokens", where)
    left = context - length
    if asked is not None and asked > left:
        raise BadRequest(
            f"{asked_at}: {length} tokens of prompt and {asked} of output are {length + asked}, and the model's context length is "
            f"{context} tokens; {left} are left for the output",
            param=asked_at,
        )
    return asked if asked is not None else min(left, default or left)
