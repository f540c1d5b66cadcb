"""`POST /tokenize` and `POST /detokenize`."""

from pydantic import Field, model_validator

from protocol.base import JsonObject, Maybe, TokenId, Wire
from protocol.chat import ChatMessage
from protocol.errors import field_error
from protocol.tools import Tool


class TokenizeRequest(Wire):
    """Either `prompt` or `messages`. `add_special_tokens` defaults to true for a prompt, to false for messages, whose template
    writes BOS itself."""

    model: str | None = None
    prompt: str | None = None
    # Not `Annotated[...] | None`: Python 3.11 hashes what stands there, and a discriminator has no hash.
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_strs: bool | None = False
    chat_template: str | None = None
    chat_template_kwargs: JsonObject | None = None
    tools: list[Tool] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise field_error("prompt", "give either prompt or messages")
        return self


class TokenizeResponse(Wire):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: Maybe[list[str]] = None


class DetokenizeRequest(Wire):
    model: str | None = None
    tokens: list[TokenId]


class DetokenizeResponse(Wire):
    prompt: str
