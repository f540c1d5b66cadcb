"""Flags from settings: flag beats environment beats default, and a bad value is one line and exit code 2."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from typer.testing import CliRunner

from tandem.options import from_settings

KEY = "very-secret"


class Sample(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TANDEM_", extra="ignore", protected_namespaces=())

    max_model_len: Annotated[int, Field(ge=1)] | None = Field(None, description="Context length.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8001, description="Port to listen on.")
    model: str = Field("smollm2", description="What to serve.")
    key: SecretStr | None = Field(None, min_length=20, description="A secret.")
    format: Literal["console", "json"] = Field("console", description="How lines look.")
    eager: bool = Field(False, description="Whether to be eager.")
    urls: Annotated[list[str], NoDecode] = Field(["a"], description="Several.")
    folder: Path | None = Field(None, description="A folder.")
    unseen: int = Field(1, description="No flag.")


def run(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, Sample | None]:
    got: list[Sample] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @from_settings(Sample, hidden=frozenset({"unseen"}))
    def command(settings: Sample) -> None:
        """Takes a sample."""
        got.append(settings)

    result = CliRunner().invoke(app, arguments, env=environment)
    return result.exit_code, result.output, got[0] if got else None


def test_flag_beats_environment_beats_default() -> None:
    environment = {"TANDEM_PORT": "1", "TANDEM_MODEL": "from-environment"}
    _, _, settings = run("--port", "2", environment=environment)
    assert settings is not None
    assert (settings.port, settings.model, settings.max_model_len) == (2, "from-environment", None)


def test_only_what_was_given_counts_as_set() -> None:
    _, _, settings = run("--port", "8001", environment={"TANDEM_EAGER": "1"})
    assert settings is not None
    assert settings.model_fields_set == {"port", "eager"}


@pytest.mark.parametrize(("flag", "expected"), [("--eager", True), ("--no-eager", False)])
def test_switches(flag: str, expected: bool) -> None:
    _, _, settings = run(flag, environment={"TANDEM_EAGER": "true"})
    assert settings is not None
    assert settings.eager is expected


def test_list_flags_repeat_and_split() -> None:
    _, _, settings = run("--urls", "x,y", "--urls", "z")
    assert settings is not None
    assert settings.urls == ["x", "y", "z"]


def test_help_tells_name_variable_default_and_description() -> None:
    code, output, _ = run("--help")
    text = " ".join(output.split())
    assert code == 0
    assert "--port INTEGER Port to listen on. [env var: TANDEM_PORT; default: 8001]" in text
    assert "--format [console|json]" in text
    assert "--max-model-len INTEGER" in text
    assert "--eager / --no-eager" in text
    assert "unseen" not in text


@pytest.mark.parametrize(
    ("arguments", "environment", "names"),
    [
        (["--port", "70000"], {}, "--port 70000: input should be less than or equal to 65535"),
        (["--port", "many"], {}, "--port many: input should be a valid integer"),
        ([], {"TANDEM_PORT": "-1"}, "TANDEM_PORT: input should be greater than or equal to 0"),
        (["--max-model-len", "0"], {}, "--max-model-len 0: "),
        (["--format", "xml"], {}, "--format xml: input should be 'console' or 'json'"),
    ],
)
def test_a_bad_value_is_one_line(arguments: list[str], environment: dict[str, str], names: str) -> None:
    code, output, _ = run(*arguments, environment=environment)
    assert code == 2
    assert output.startswith(f"tandem: {names}")
    assert output.count("\n") == 1


def test_a_bad_secret_is_not_shown() -> None:
    code, output, _ = run("--key", KEY)
    assert code == 2
    assert "--key: " in output
    assert KEY not in output


def test_an_unknown_flag_is_an_error() -> None:
    code, output, _ = run("--prot", "1")
    assert code == 2
    assert "--prot" in output
