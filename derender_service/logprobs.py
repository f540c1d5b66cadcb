"""Log probabilities: the worker's token ids become readable tokens and real bytes."""

from collections.abc import Callable, Sequence

from protocol.logprobs import ChatLogprob, ChatLogprobEntry, ChatLogprobs, CompletionLogprobs, TokenLogprob, TokenLogprobEntry

BytesOf = Callable[[int], bytes]


def readable(data: bytes) -> str:
    """Text of a token's bytes. Bytes that are no whole character are spelled `\\xe4`, as OpenAI's API shows them."""
    return data.decode("utf-8", "backslashreplace")


def for_chat(entries: Sequence[TokenLogprobEntry], bytes_of: BytesOf, *, as_ids: bool) -> ChatLogprobs:
    """OpenAI's chat shape, one entry a token. `as_ids` writes tokens as `token_id:504` (vLLM's `return_tokens_as_token_ids`)."""

    def shown(candidate: TokenLogprob) -> ChatLogprob:
        data = bytes_of(candidate.token_id)
        token = f"token_id:{candidate.token_id}" if as_ids else readable(data)
        return ChatLogprob(token=token, logprob=candidate.logprob, bytes=list(data))

    def entry(entry: TokenLogprobEntry) -> ChatLogprobEntry:
        top = [shown(candidate) for candidate in entry.top_logprobs]
        own = shown(entry)
        return ChatLogprobEntry(token=own.token, logprob=own.logprob, bytes=own.bytes, top_logprobs=top)

    return ChatLogprobs(content=[entry(e) for e in entries])


def for_completion(
    entries: Sequence[TokenLogprobEntry], offsets: Sequence[int], bytes_of: BytesOf, *, as_ids: bool
) -> CompletionLogprobs:
    """The completions shape: parallel lists. `offsets[i]` is where token i begins, in characters of the choice's whole text."""

    def text(token_id: int) -> str:
        return f"token_id:{token_id}" if as_ids else readable(bytes_of(token_id))

    return CompletionLogprobs(
        text_offset=list(offsets),
        token_logprobs=[entry.logprob for entry in entries],
        tokens=[text(entry.token_id) for entry in entries],
        top_logprobs=[{text(top.token_id): top.logprob for top in entry.top_logprobs} or None for entry in entries],
    )
