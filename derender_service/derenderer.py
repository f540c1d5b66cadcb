"""What a derender service knows of its model, and the checks that every request passes before a token is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from derender_service.detokenizer import Detokenizer
from derender_service.parsers.formats import Ids
from derender_service.parsers.parsing import Declared, Plugged
from model_profile.profile import ModelProfile
from protocol.base import Wire
from protocol.derender import DerenderContext
from protocol.errors import BadRequest, ProfileMismatch
from protocol.logprobs import TokenLogprobs
from service_kit.models import ServedModel


@dataclass(frozen=True)
class Derenderer:
    """Tables, formats and bounds of one model; holds nothing of any stream.

    `parsing` is None where chat output is plain text. `auto_tool_choice`: tools that a request merely offers may be called.
    `older_reasoning_field`: reasoning is sent as `reasoning_content` too.
    """

    served: ServedModel
    tokenizer: Tokenizer
    detokenizer: Detokenizer
    parsing: Declared | Plugged | None
    auto_tool_choice: bool
    older_reasoning_field: bool
    eos_token_ids: tuple[int, ...]
    fingerprint: str
    max_model_len: int
    max_logprobs: int

    @classmethod
    def of(
        cls,
        profile: ModelProfile,
        served: ServedModel,
        *,
        max_logprobs: int,
        parsing: Declared | Plugged | None = None,
        auto_tool_choice: bool = True,
        older_reasoning_field: bool = False,
    ) -> "Derenderer":
        return cls(
            served=served,
            tokenizer=profile.tokenizer,
            detokenizer=Detokenizer(profile.tokenizer, profile.vocab_size),
            parsing=parsing,
            auto_tool_choice=auto_tool_choice,
            older_reasoning_field=older_reasoning_field,
            eos_token_ids=profile.eos_token_ids,
            fingerprint=profile.fingerprint,
            max_model_len=profile.max_model_len,
            max_logprobs=max_logprobs,
        )

    def check_profile(self, given: str | None) -> None:
        """Refuses a stream of another tokenizer or template: its ids would read as other text. Raises `ProfileMismatch`."""
        if given is not None and given != self.fingerprint:
            message = f"this stream was begun with model profile {given}, this replica serves {self.fingerprint}"
            raise ProfileMismatch(f"{message}: it would misread the ids", param="profile")

    def check_ids(self, ids: Sequence[int] | None, param: str) -> None:
        """Refuses ids that the model cannot emit. Raises `BadRequest` that names the place."""
        size = self.detokenizer.vocabulary.size
        if ids and max(ids) >= size:
            place = next(i for i, token_id in enumerate(ids) if token_id >= size)
            raise BadRequest(f"token id {ids[place]} is past the vocabulary of {size} ids", param=f"{param}.{place}")

    def as_told(self, chat_request: Wire | None) -> dict[str, Any]:
        """The chat request, or what is told of it, as a plug-in sees it; grammars need nothing of it."""
        return chat_request.model_dump(mode="json") if chat_request is not None and isinstance(self.parsing, Plugged) else {}

    def call_ids(self, context: DerenderContext) -> Ids:
        """How ids of tool calls look."""
        return self.parsing.grammars[context.tool_choice].ids if isinstance(self.parsing, Declared) else "derived"

    def check_parsable(self, *, chat_request: object, prompt_token_ids: object, prompt_needed: bool) -> None:
        """Refuses a chat without what its parser needs to begin: markup would leak into content, and only the prompt's end tells
        whether reasoning is open. Raises `BadRequest` that names what is missing."""
        if self.parsing is None:
            return
        reason = f"this server parses chat output ({self.parsing.name})"
        if chat_request is None:
            raise BadRequest(f"{reason}: it needs the chat request", param="chat_request")
        if prompt_needed and prompt_token_ids is None:
            raise BadRequest(f"{reason}: the first chunk needs the prompt's ids", param="prompt_token_ids")

    def check_length(self, count: int, param: str) -> None:
        """Refuses more tokens than the model's context holds. Raises `BadRequest`."""
        if count > self.max_model_len:
            raise BadRequest(f"{count} tokens (prompt and output) exceed max_model_len ({self.max_model_len})", param=param)

    def check_logprobs(self, logprobs: TokenLogprobs | None, param: str) -> None:
        """Refuses logprobs of ids that do not exist, or more alternatives than the server allows (and the sampled token)."""
        for place, entry in enumerate(logprobs.content or ()) if logprobs else ():
            self.check_ids([entry.token_id, *(top.token_id for top in entry.top_logprobs)], f"{param}.content.{place}")
            if len(entry.top_logprobs) > self.max_logprobs + 1:
                message = f"{len(entry.top_logprobs)} top_logprobs exceed max_logprobs ({self.max_logprobs})"
                raise BadRequest(message, param=f"{param}.content.{place}.top_logprobs")
