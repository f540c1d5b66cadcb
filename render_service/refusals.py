"""Fields that bear on the output and are not honoured: refused by name, for each request shape.

Other fields that a shape does not have are ignored, as clients of OpenAI-compatible servers expect. A value that asks for nothing
is welcome under any name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.base import Wire
from protocol.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Refusal:
    """`welcome` are the values that ask for nothing."""

    why: str = "this parameter is not supported"
    welcome: tuple[Any, ...] = (None, False, 0, "", [], {})


Refusals = Mapping[str, Refusal]


def refuse(given: Wire, refusals: Refusals, where: str = "") -> None:
    """Raises `BadRequest` for a field of `given` that asks for something; `where` is put before its name."""
    for name, value in (given.model_extra or {}).items():
        refusal = refusals.get(name)
        if refusal is not None and not any(_same(value, welcome) for welcome in refusal.welcome):
            raise BadRequest(f"{where}{name}: {refusal.why}", param=f"{where}{name}")


def _same(one: Any, other: Any) -> bool:
    # Python's True is 1.
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _each(*names: str, **how: Any) -> dict[str, Refusal]:
    return dict.fromkeys(names, Refusal(**how))


def _called(own: str, *names: str) -> dict[str, Refusal]:
    return _each(*names, why=f"here it is called {own}")


_KEPT = "nothing is kept between requests here: send the whole conversation as input"
_CHATS = "only chat requests (/v1/chat/completions) have it"
_NO_TOOLS = "runs tools on the server, which has none"

_ANY_SHAPE: Refusals = {
    # 0 asks for something.
    **_each("prompt_logprobs", "thinking_token_budget", welcome=(None, False)),
    **_each("logprob_token_ids", "use_beam_search", "repetition_detection", "vllm_xargs", "watermarking", "logits_processors"),
    **_each(
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern", "guided_decoding_backend"
    ),
    **_each("structural_tag", "prompt_embeds", "return_prompt_text"),
    **_each("length_penalty", welcome=(None, 1)),
}
_ANY_CHAT: Refusals = {
    **_ANY_SHAPE,
    **_each("functions", "function_call", "audio"),
    **_each("modalities", welcome=(None, False, [], ["text"])),
    **_each("web_search_options", welcome=(None, False)),
    **_each("best_of", welcome=(None, False, 0, 1)),
    **_each("verbosity", welcome=(None, "", "medium")),
}
_NO_CHATS_FIELDS: Refusals = {
    **_each("prefix", "token_ids", "return_token_sources", "documents", "chat_template", "echo", "suffix", why=_CHATS),
    **_each("continue_final_message", "add_special_tokens", why=_CHATS),
    **_each("history", why=_CHATS, welcome=(None, "", "extend")),
    **_each("include_reasoning", "add_generation_prompt", why=_CHATS, welcome=(None, True)),
    **_each("n", why="one answer is made for each request of this shape", welcome=(None, 0, 1)),
}

COMPLETION: Refusals = {
    **_ANY_SHAPE,
    **_called("max_tokens", "max_completion_tokens", "max_output_tokens"),
    **_called("stop", "stop_sequences"),
}
CHAT: Refusals = {**_ANY_CHAT, **_called("max_completion_tokens", "max_output_tokens"), **_called("stop", "stop_sequences")}
MESSAGES: Refusals = {
    **_ANY_CHAT,
    **_NO_CHATS_FIELDS,
    **_called("max_tokens", "max_completion_tokens", "max_output_tokens"),
    **_called("stop_sequences", "stop"),
    **_called("output_config.format", "response_format"),
    **_called("output_config.effort", "reasoning_effort"),
    **_each("logprobs", why="answers of this shape have none"),
    **_each("mcp_servers", "container", why=_NO_TOOLS),
}
RESPONSES: Refusals = {
    **_ANY_CHAT,
    **_NO_CHATS_FIELDS,
    **_called("max_output_tokens", "max_tokens", "max_completion_tokens"),
    **_called("stop", "stop_sequences"),
    **_called("text.format", "response_format"),
    **_called("reasoning.effort", "reasoning_effort"),
    **_called("include: message.output_text.logprobs", "logprobs"),
    **_each("previous_response_id", "previous_input_messages", "conversation", "prompt", "background", "store", why=_KEPT),
}
IN_THINKING: Refusals = _each("budget_tokens", why="no worker here keeps to it: leave it out, or say adaptive", welcome=(None,))
IN_AN_ANSWER: Refusals = _each("token_ids", why=_CHATS)
"""Of the history: in Messages' turns, and in Responses' items."""
