"""openai-harmony's vocabulary: written from the local tokenizer, once for all processes, and only for models that need it."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from derender_service.parsers.parsing import parsing_for
from model_profile.errors import BrokenModel, ProfileError
from model_profile.harmony_vocabulary import MARKERS, harmony_encoding
from tests.harmony.kit import NAME, ids_of, spelled
from tests.parsers.kit import tokenizer
from tests.tokenizers import folder

VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
FILE = "o200k_base.tiktoken"
EXPECTED = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
LOAD = """
import sys
from tokenizers import Tokenizer
from model_profile.harmony_vocabulary import harmony_encoding
encoding = harmony_encoding(Tokenizer.from_file(sys.argv[1]))
print(encoding.encode("assistant<|channel|>", allowed_special="all"))
"""


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def test_several_processes_write_the_file_that_the_library_would_download(empty_cache: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(folder(NAME) / "tokenizer.json")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert answers == [str(ids_of("assistant<|channel|>"))] * 3
    (written,) = empty_cache.glob(f"*/{FILE}")
    assert hashlib.sha256(written.read_bytes()).hexdigest() == EXPECTED


def test_the_library_reads_ids_as_the_tokenizer_does() -> None:
    encoding = harmony_encoding(tokenizer(NAME))
    text = "assistant to=functions.get_weather<|channel|>commentary 日本 🪨"
    assert encoding.encode(text, allowed_special="all") == ids_of(text)
    assert encoding.encode(text, disallowed_special=()) == spelled(text)


def test_a_folder_that_is_set_is_used_and_stays_set(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmony_encoding(tokenizer(NAME))
    assert VARIABLE not in os.environ
    own = empty_cache / "harmony-vocabulary"
    monkeypatch.setenv(VARIABLE, str(own))
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(empty_cache / "other"))
    harmony_encoding(tokenizer(NAME))
    assert os.environ[VARIABLE] == str(own)
    assert not (empty_cache / "other").exists()


@pytest.mark.parametrize("content", [None, b"", b"aGVsbG8= 0\n"])
def test_a_folder_without_the_vocabulary_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ProfileError, match=f"{FILE} from .*{VARIABLE}"):
        harmony_encoding(tokenizer(NAME))


def with_markers(name: str) -> Tokenizer:
    found = Tokenizer.from_str(tokenizer(name).to_str())
    found.add_special_tokens([AddedToken(marker, special=True) for marker in MARKERS])
    return found


@pytest.mark.parametrize("prepared", [False, True])
def test_another_tokenizer_with_the_markers_is_refused(empty_cache: Path, prepared: bool) -> None:
    if prepared:
        harmony_encoding(tokenizer(NAME))
    with pytest.raises(BrokenModel, match="not gpt-oss' vocabulary"):
        parsing_for(with_markers("smollm2"), "openai_gptoss", "openai")
    assert prepared or not [*empty_cache.glob(f"*/{FILE}")]


def test_a_tokenizer_without_the_markers_is_refused(empty_cache: Path) -> None:
    with pytest.raises(BrokenModel, match="markers"):
        parsing_for(tokenizer("smollm2"), None, "openai")
    assert not [*empty_cache.iterdir()]


@pytest.mark.parametrize(
    "service", ["render_service.app", "derender_service.app", "derender_service.parsers.parsing", "tandem.cli"]
)
def test_other_models_do_not_load_the_library(service: str) -> None:
    code = f"import sys, {service}\nassert 'openai_harmony' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_derender_service_of_another_model_does_not_load_the_library() -> None:
    code = (
        "import sys\nfrom derender_service.app import DerenderSettings, create_app\n"
        "create_app(DerenderSettings(model='smollm2', reasoning_parser='qwen3', tool_call_parser='hermes'))\n"
        "assert 'openai_harmony' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
