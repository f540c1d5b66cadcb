"""What a derender service knows of its model, and the checks that every request passes before a token is read."""

from collections.abc import Sequence
from dataclasses import dataclass

from derender_service.detokenizer import Detokenizer
from model_profile.profile import ModelProfile
from protocol.errors import BadRequest, ProfileMismatch
from protocol.logprobs import TokenLogprobs
from service_kit.models import ServedModel


@dataclass(frozen=True)
class Derenderer:
    """Tables and bounds of one model; holds nothing of any stream."""

    served: ServedModel
    detokenizer: Detokenizer
    eos_token_ids: tuple[int, ...]
    fingerprint: str
    max_model_len: int
    max_logprobs: int

    @classmethod
    def of(cls, profile: ModelProfile, served: ServedModel, *, max_logprobs: int) -> "Derenderer":
        return cls(
            served=served,
            detokenizer=Detokenizer(profile.tokenizer, profile.vocab_size),
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
