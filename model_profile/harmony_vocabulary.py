"""openai-harmony's encoding, with the vocabulary that it would download written from a local gpt-oss tokenizer."""

import base64
import hashlib
import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from model_profile.byte_alphabet import BYTE_OF
from model_profile.cache import prepared
from model_profile.errors import BrokenModel, ProfileError

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

MARKERS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")

_FILE = "o200k_base.tiktoken"
_RANKS = 199_998
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
_SAMPLE = "".join(MARKERS) + "assistant to=functions.get_weather commentary json 日本"
_OTHER_VOCABULARY = "this tokenizer has harmony's markers, but not gpt-oss' vocabulary, which openai-harmony needs"
_lock = Lock()


def speaks_harmony(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer has harmony's markers as tokens."""
    return all(tokenizer.token_to_id(marker) is not None for marker in MARKERS)


def harmony_encoding(tokenizer: Tokenizer) -> "HarmonyEncoding":
    """Raises `BrokenModel` if this is not gpt-oss' tokenizer. The library is imported here, since few models need it."""
    from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding

    if not speaks_harmony(tokenizer):
        raise BrokenModel("this tokenizer has not got harmony's markers, which the parsers openai_gptoss and openai read")
    given = os.environ.get(_VARIABLE)
    folder = given or str(prepared("harmony-vocabulary", lambda folder: _write(tokenizer, folder)))
    with _lock:
        os.environ[_VARIABLE] = folder
        try:
            encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
        except HarmonyError as error:
            whose = f"the folder that {_VARIABLE} names" if given else "a cache, which may be deleted"
            raise ProfileError(f"openai-harmony cannot load its vocabulary {_FILE} from {folder} ({whose}): {error}") from error
        finally:
            # Not for the library's other users in this process, nor for its children.
            if given is None:
                del os.environ[_VARIABLE]
    # Where the file was there already, nothing has looked at this tokenizer yet.
    if encoding.encode(_SAMPLE, allowed_special="all") != tokenizer.encode(_SAMPLE, add_special_tokens=False).ids:
        raise BrokenModel(_OTHER_VOCABULARY)
    return encoding


def _write(tokenizer: Tokenizer, folder: Path) -> None:
    by_id = {rank: token for token, rank in tokenizer.get_vocab(with_added_tokens=False).items() if rank < _RANKS}
    data = b"".join(base64.b64encode(_bytes(by_id[rank])) + b" %d\n" % rank for rank in sorted(by_id))
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise BrokenModel(_OTHER_VOCABULARY)
    (folder / _FILE).write_bytes(data)


def _bytes(token: str) -> bytes:
    return bytes(BYTE_OF.get(character, 0) for character in token)
