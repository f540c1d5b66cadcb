"""`/tokenize` and `/detokenize`."""

from protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from render_service.chat import tools_as_sent
from render_service.conversation import Conversation
from render_service.prompt import check_ids, from_text
from render_service.renderer import Renderer
from render_service.variables import own_variables
from render_service.writing import Wanted, write
from service_kit.body import WORDS, parse


def tokenize(renderer: Renderer, body: bytes) -> bytes:
    """The ids of a text or of a chat, however long. Raises `BadRequest`, and `NotFound` for another model."""
    request = parse(TokenizeRequest, body, WORDS)
    renderer.model.check(request.model)
    if request.messages is None:
        special = request.add_special_tokens is not False
        ids = from_text(renderer, request.prompt or "", where="prompt", add_special_tokens=special, bounded=False).ids
    else:
        conversation = Conversation(
            messages=request.messages,
            tools=tools_as_sent(body) if request.tools else None,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            template=request.chat_template,
            variables=own_variables(request.chat_template_kwargs),
        )
        ids = write(renderer, conversation, Wanted(add_special_tokens=bool(request.add_special_tokens), bounded=False)).ids
    tokenizer = renderer.profile.tokenizer
    return TokenizeResponse(
        count=len(ids),
        max_model_len=renderer.profile.max_model_len,
        tokens=ids,
        token_strs=[tokenizer.id_to_token(token) or "" for token in ids] if request.return_token_strs else None,
    ).wire()


def detokenize(renderer: Renderer, body: bytes) -> bytes:
    """The text of ids, special tokens included. Raises `BadRequest` that names an id outside the vocabulary."""
    request = parse(DetokenizeRequest, body, WORDS)
    renderer.model.check(request.model)
    check_ids(renderer.profile, request.tokens, "tokens")
    # In a batch, as in `prompt.from_text`: `decode` alone would stop the event loop.
    (text,) = renderer.profile.tokenizer.decode_batch([request.tokens], skip_special_tokens=False)
    return DetokenizeResponse(prompt=text).wire()
