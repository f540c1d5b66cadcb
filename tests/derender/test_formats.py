"""Which formats a service reads: by its flags, else by the model; told by `/v1/models`."""

from collections.abc import Iterator

import httpx
import pytest
from tokenizers import Tokenizer

from derender_service.app import DerenderSettings, chosen, create_app
from derender_service.parsers import plugins
from derender_service.parsers.families.hermes import HERMES
from model_profile.formats import Formats
from tandem.text import TextSettings
from tandem.text import create_app as text_app
from tests.live import serving
from tests.tokenizers import MAX_MODEL_LEN, folder, profile

Flag = str | None
Names = tuple[Flag, Flag]

NONE: Names = (None, None)
QWEN: Names = ("qwen3", "hermes")
HARMONY: Names = ("openai_gptoss", "openai")


def no_parser(opening: plugins.JsonObject, tokenizer: Tokenizer) -> plugins.DeltaParser:
    raise AssertionError("no output is read here")


@pytest.fixture
def with_plugins() -> Iterator[None]:
    """`code` is a plug-in of code, `declared` one that declares a format."""
    known = plugins.plugins()
    known |= {"code": plugins.Plugin(begin=lambda **_: {}, resume=no_parser), "declared": HERMES}
    yield
    for name in ("code", "declared"):
        del known[name]


@pytest.mark.usefixtures("with_plugins")
@pytest.mark.parametrize(
    ("model", "flags", "right"),
    [
        ("qwen3", NONE, QWEN),
        ("qwen3", ("", ""), QWEN),
        ("qwen3", ("none", None), (None, "hermes")),
        ("qwen3", (None, "none"), ("qwen3", None)),
        ("qwen3", ("deepseek_r1", None), ("deepseek_r1", "hermes")),
        ("qwen3", (None, "xlam"), ("qwen3", "xlam")),
        ("qwen3", (None, "declared"), ("qwen3", "declared")),
        ("qwen3", (None, "code"), (None, "code")),
        ("qwen3", ("code", None), ("code", None)),
        ("smollm2", NONE, NONE),
        ("smollm2", (None, "hermes"), (None, "hermes")),
        ("gptoss", NONE, HARMONY),
        ("gptoss", ("openai_gptoss", None), HARMONY),
        ("gptoss", (None, "none"), ("openai_gptoss", None)),
        ("gptoss", ("none", "none"), NONE),
        ("gptoss", ("qwen3", None), ("qwen3", None)),
        ("gptoss", (None, "hermes"), (None, "hermes")),
    ],
)
def test_a_flag_beats_the_model(model: str, flags: Names, right: Names) -> None:
    assert chosen(profile(model), *flags) == Formats(*right)


@pytest.mark.parametrize("service", ["derender", "text"])
def test_the_card_tells_the_formats(service: str) -> None:
    given = {"model": str(folder("qwen3")), "max_model_len": MAX_MODEL_LEN, "tool_call_parser": "qwen3_coder"}
    app = (
        create_app(DerenderSettings.model_validate(given))
        if service == "derender"
        else text_app(TextSettings.model_validate(given))
    )
    with serving(app) as url:
        (card,) = httpx.get(f"{url}/v1/models", trust_env=False).json()["data"]
    assert card["formats"] == {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder"}
