"""The client without an event loop."""

import pytest

import tandem
from tests.gateway.kit import chat
from tests.tandem.stack import line, stack

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


TEXT = "One thing. Another thing."
LONG = " ".join(f"This is sentence number {number}." for number in range(120))


def test_for_without_with(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stack(tmp_path_factory.mktemp("one"), line(TEXT)) as running:
        assert "".join(tandem.stream_sync(running.gateway, chat())) == TEXT
    with stack(tmp_path_factory.mktemp("long"), line(LONG, tokens_per_second=200)) as running:
        streamer = tandem.stream_sync(running.gateway, chat())
        for _ in streamer:
            break
        running.becomes("slots_used", 0, seconds=1)
        assert not streamer.failed_early


async def test_a_loop_that_runs_already_is_told_so() -> None:
    with pytest.raises(RuntimeError, match="event loop is running"):
        tandem.stream_sync("http://127.0.0.1:1", chat())


def test_for_and_with(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stack(tmp_path_factory.mktemp("one"), line(TEXT)) as running:
        for target in (running.gateway, running.target("pipeline")):
            with tandem.stream_sync(target, chat(), chunking="sentence") as streamer:
                assert list(streamer) == ["One thing.", "Another thing."]
            assert streamer.full_text == TEXT
            assert streamer.completed_normally
            with tandem.stream_sync(target, chat()) as streamer:
                assert isinstance(list(streamer.events())[-1], tandem.CompletedEvent)
            streamer.close()


@pytest.mark.parametrize("way", ["break", "raise", "never"])
def test_leaving_early_ends_the_generation(tmp_path_factory: pytest.TempPathFactory, way: str) -> None:
    seen: list[tandem.StreamEvent] = []
    with stack(tmp_path_factory.mktemp("long"), line(LONG, tokens_per_second=200)) as running:
        try:
            with tandem.stream_sync(running.gateway, chat(), chunking="sentence", observers=[seen.append]) as streamer:
                for _ in streamer if way != "never" else ():
                    if way == "break":
                        break
                    raise LookupError("enough")
        except LookupError:
            assert way == "raise"
        running.becomes("slots_used", 0)
    assert not streamer.completed_normally
    assert streamer.failed_early == (way == "raise")
    assert [type(event) for event in seen].count(tandem.CompletedEvent) == 1
    with pytest.raises(AttributeError):
        _ = streamer._chunker
