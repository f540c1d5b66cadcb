"""`tandem.stream` over live services: what comes, how it ends, and that nothing is left behind, whichever way it ends."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem
from protocol.errors import ErrorInfo
from tandem.answer import Piece
from tandem.chunking import Chunker, strategy
from tandem.transcript import Transcript
from tests.gateway.kit import chat
from tests.tandem.stack import TARGETS, Stack, line, stack

pytestmark = pytest.mark.anyio

TEXT = "The capital of France is Paris. It lies on the Seine! Does it rain there? Often.\n\nIn spring it is warm."
LONG = " ".join(f"This is sentence number {number}." for number in range(120))
CHUNKINGS = (None, "sentence", "word", "paragraph")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("quick"), line(TEXT)) as running:
        yield running


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Some hundreds of tokens, two hundred a second: who leaves early leaves something running."""
    with stack(tmp_path_factory.mktemp("slow"), line(LONG, tokens_per_second=200)) as running:
        yield running


def asked(**changes: Any) -> dict[str, Any]:
    return chat(max_tokens=2000, temperature=0, **changes)


async def read(streamer: tandem.Streamer) -> list[str]:
    """All segments, the streamer closed behind them."""
    async with streamer:
        return [segment async for segment in streamer]


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tandem.StreamEvent] = []

    def __call__(self, event: tandem.StreamEvent) -> None:
        self.events.append(event)

    def assert_completed_once_last(self) -> tandem.CompletedEvent:
        (completed,) = [event for event in self.events if isinstance(event, tandem.CompletedEvent)]
        assert self.events[-1] is completed
        return completed


# ---- what comes


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("chunking", CHUNKINGS)
async def test_segments_are_the_chunking_of_the_whole_text(quick: Stack, kind: str, chunking: Any) -> None:
    async with tandem.stream(quick.target(kind), asked(), chunking=chunking) as streamer:
        assert streamer.full_text == ""
        segments = [segment async for segment in streamer]
    if chunking is None:
        assert "".join(segments) == TEXT
    else:
        chunker = Chunker(strategy(chunking))
        assert segments == [*chunker.feed(TEXT), *chunker.flush()]
    assert streamer.full_text == TEXT
    assert streamer.completed_normally
    assert not streamer.failed_early
    assert streamer.failure_reason is None
    assert streamer.finish_reason == "stop"
    assert streamer.stream_id
    assert streamer.usage is not None
    assert streamer.usage.completion_tokens == len(line(TEXT)["token_ids"])
    assert streamer.usage.total_tokens == streamer.usage.prompt_tokens + streamer.usage.completion_tokens
    assert streamer.timings is not None


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_completion_is_streamed_as_a_chat_is(quick: Stack, kind: str) -> None:
    request = {"model": "smollm2", "prompt": "Hello", "max_tokens": 500}
    async with tandem.stream(quick.target(kind), request) as streamer:
        assert "".join([segment async for segment in streamer]) == TEXT
    assert streamer.usage is not None


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_stop_string_ends_the_answer_and_the_worker(slow: Stack, kind: str) -> None:
    async with tandem.stream(slow.target(kind), asked(stop="number 3")) as streamer:
        text = "".join([segment async for segment in streamer])
    assert text == LONG[: LONG.index("number 3")]
    assert (streamer.completed_normally, streamer.finish_reason, streamer.full_text) == (True, "stop", text)
    assert streamer.usage is not None
    assert (streamer.usage.completion_tokens or 0) < 40
    slow.becomes("slots_used", 0)


async def test_an_address_is_a_gateway(quick: Stack) -> None:
    for address in (quick.gateway, f"{quick.gateway}/", f"{quick.gateway}/v1"):
        async with tandem.stream(address, asked()) as streamer:
            assert "".join([segment async for segment in streamer]) == TEXT


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize("kind", TARGETS)
async def test_reasoning_and_tool_calls_are_events(tmp_path: Path, kind: str) -> None:
    said = f"<think>\nShall I look?\n</think>\n\nLet me see.\n{CALL}\n{CALL.replace('Paris', 'Rome')}"
    with stack(tmp_path, line(said, "qwen3"), model="qwen3") as services:
        seen = Seen()
        request = {**asked(tools=[TOOL]), "model": "qwen3"}
        async with tandem.stream(services.target(kind), request, chunking="sentence", observers=[seen]) as streamer:
            events = [event async for event in streamer.events()]
    assert events == seen.events
    calls = [tandem.ToolCall(i, c.id, "weather", f'{{"city": "{city}", "days": 3}}') for i, (c, city) in
             enumerate(zip(streamer.tool_calls, ("Paris", "Rome"), strict=True))]  # fmt: skip
    assert streamer.tool_calls == calls
    assert streamer.reasoning == "".join(e.text for e in events if isinstance(e, tandem.ReasoningEvent)) == "Shall I look?"
    assert [e.text for e in events if isinstance(e, tandem.TextEvent)] == ["Let me see."]
    assert [e.call for e in events if isinstance(e, tandem.ToolCallEnd)] == calls
    for call in calls:
        own = [e for e in events if isinstance(e, tandem.ToolCallStart | tandem.ToolCallArguments) and e.index == call.index]
        assert own[0] == tandem.ToolCallStart(call.index, call.id, "weather")
        assert "".join(e.text for e in own[1:] if isinstance(e, tandem.ToolCallArguments)) == call.arguments
        assert events.index(own[-1]) < events.index(tandem.ToolCallEnd(call))
    assert isinstance(events[-2], tandem.DoneEvent)
    assert events[-2].finish_reason == streamer.finish_reason == "tool_calls"
    assert isinstance(events[-1], tandem.CompletedEvent)


async def test_a_stream_comes_once_as_one_of_both(quick: Stack) -> None:
    for first in (lambda s: s, lambda s: s.events()):
        async with tandem.stream(quick.gateway, asked()) as streamer:
            async for _ in first(streamer):
                pass
            with pytest.raises(tandem.AlreadyConsumed):
                streamer.__aiter__()
            with pytest.raises(tandem.AlreadyConsumed):
                streamer.events()
    closed = tandem.stream(quick.gateway, asked())
    await closed.aclose()
    with pytest.raises(tandem.AlreadyConsumed):
        closed.events()


async def test_it_runs_on_the_callers_task_alone(slow: Stack) -> None:
    before = asyncio.all_tasks()
    async with tandem.stream(slow.target("pipeline"), asked()) as streamer:
        count = 0
        async for _ in streamer:
            assert asyncio.all_tasks() == before
            count += 1
            if count == 20:
                break


@pytest.mark.parametrize(
    "request_",
    [{"model": "smollm2"}, {"messages": [], "prompt": "x"}, chat(n=2), {"prompt": ["a", "b"]}],
)
@pytest.mark.parametrize("kind", TARGETS)
async def test_what_is_not_one_answer_is_refused(quick: Stack, kind: str, request_: dict[str, Any]) -> None:
    streamer = tandem.stream(quick.target(kind), request_)
    with pytest.raises(ValueError, match=r"either messages|one answer"):
        await read(streamer)
    assert streamer.failed_early


def test_a_chunking_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="sentence"):
        tandem.stream("http://127.0.0.1:1", asked(), chunking="verse")  # type: ignore[arg-type]


# ---- how it ends


class Leaving(Exception):
    pass


async def naturally(streamer: tandem.Streamer) -> None:
    async with streamer:
        async for _ in streamer:
            pass


async def by_break(streamer: tandem.Streamer) -> None:
    async with streamer:
        async for _ in streamer:
            break


async def by_break_from_events(streamer: tandem.Streamer) -> None:
    async with streamer:
        async for event in streamer.events():
            if isinstance(event, tandem.TextEvent):
                break


async def by_exception(streamer: tandem.Streamer) -> None:
    async def read() -> None:
        async with streamer:
            async for _ in streamer:
                raise Leaving("enough")

    with pytest.raises(Leaving):
        await read()


async def by_timeout(streamer: tandem.Streamer) -> None:
    async def read() -> None:
        async for _ in streamer:
            pass

    async with streamer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), 0.3)


async def by_timeout_of_one_step(streamer: tandem.Streamer) -> None:
    async def one_by_one() -> None:
        segments = streamer.__aiter__()
        while True:
            await asyncio.wait_for(anext(segments), 0.003)

    async with streamer:
        with pytest.raises(TimeoutError):
            await one_by_one()


async def by_cancellation(streamer: tandem.Streamer) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async with streamer:
            async for _ in streamer:
                begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_closing(streamer: tandem.Streamer) -> None:
    await anext(streamer.__aiter__())
    for _ in range(3):
        await streamer.aclose()


async def never_iterated(streamer: tandem.Streamer) -> None:
    async with streamer:
        pass


async def never_iterated_nor_entered(streamer: tandem.Streamer) -> None:
    await streamer.aclose()


async def dropped_on_the_way(streamer: tandem.Streamer) -> None:
    """No `async with`: the interpreter finds that nobody will go on."""
    async for _ in streamer:
        break
    gc.collect()


WAYS: dict[str, Callable[[tandem.Streamer], Any]] = {
    way.__name__: way
    for way in (
        naturally,
        by_break,
        by_break_from_events,
        by_exception,
        by_timeout,
        by_timeout_of_one_step,
        by_cancellation,
        by_closing,
        never_iterated,
        never_iterated_nor_entered,
        dropped_on_the_way,
    )
}
FAILED = {"by_exception", "by_timeout", "by_timeout_of_one_step", "by_cancellation"}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_left_behind_whichever_way_it_ends(slow: Stack, kind: str, way: str) -> None:
    seen = Seen()
    async with httpx.AsyncClient(timeout=30) as client:
        streamer = tandem.stream(slow.target(kind, client=client), asked(), chunking="sentence", observers=[seen])
        await WAYS[way](streamer)
        # The answer would go on for some seconds more by itself.
        for gauge in ("slots_used", "requests_running", "requests_waiting"):
            await asyncio.to_thread(slow.becomes, gauge, 0, 1.5)
        pool: Any = client._transport._pool  # type: ignore[attr-defined]
        assert [one for one in pool.connections if not one.is_idle() and not one.is_closed()] == []
        completed = seen.assert_completed_once_last()
        # The client goes on to be of use.
        assert (await client.get(f"{slow.worker}/health")).status_code == 200
    natural = way == "naturally"
    assert (streamer.completed_normally, completed.completed_normally) == (natural, natural)
    assert streamer.failed_early == (way in FAILED)
    assert (streamer.failure_reason is not None) == (way in FAILED)
    assert LONG.startswith(streamer.full_text)
    delivered = [event.text for event in seen.events if isinstance(event, tandem.TextEvent)]
    assert streamer.full_text == completed.full_text == (LONG if natural else " ".join(delivered))


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("chunking", ["sentence", None])
async def test_the_text_is_that_of_the_segments_delivered_wherever_one_leaves(quick: Stack, kind: str, chunking: Any) -> None:
    for count in range(1, 6):
        segments: list[str] = []
        async with tandem.stream(quick.target(kind), asked(), chunking=chunking) as streamer:
            async for segment in streamer:
                segments.append(segment)
                assert streamer.full_text.endswith(segment)
                if len(segments) == count:
                    break
        assert TEXT.startswith(streamer.full_text)
        assert streamer.full_text == TEXT[: len(streamer.full_text)]
        assert "".join(segments).split() == streamer.full_text.split() or chunking


# ---- checks


async def test_a_check_that_fails_stops_before_its_segment_and_ends_the_generation(slow: Stack) -> None:
    told: list[tuple[str, str]] = []

    def watch(segment: str, so_far: str) -> str:
        told.append((segment, so_far))
        return "unknown"

    async def no_seven(segment: str, so_far: str) -> tandem.Verdict:
        return tandem.Verdict.FAIL if "7" in segment else tandem.Verdict.PASS

    def no_number_seven(segment: str, so_far: str) -> str:
        return "fail" if "number 7" in segment else "pass"

    seen = Seen()
    checks = [watch, no_seven, no_number_seven]
    async with tandem.stream(slow.gateway, asked(), chunking="sentence", checks=checks, observers=[seen]) as streamer:
        segments = [segment async for segment in streamer]
        # Before the block is left, all is over.
        await asyncio.to_thread(slow.becomes, "slots_used", 0)
    failed = "This is sentence number 7."
    assert segments == [f"This is sentence number {number}." for number in range(7)]
    assert streamer.full_text == " ".join(segments)
    assert streamer.check_failures == [tandem.CheckFailure(name, failed) for name in ("no_seven", "no_number_seven")]
    assert streamer.failed_early
    assert not streamer.completed_normally
    assert streamer.failure_reason == "check failed: no_seven, no_number_seven"
    assert [segment for segment, _ in told] == [*segments, failed]
    assert [so_far for _, so_far in told] == [" ".join(segments[:count]) for count in range(8)]
    completed = seen.assert_completed_once_last()
    assert list(completed.check_failures) == streamer.check_failures
    verdicts = [event for event in seen.events if isinstance(event, tandem.CheckEvent)]
    assert [event.segment for event in verdicts] == [*segments, failed]
    assert [result.verdict for result in verdicts[-1].results] == ["unknown", "fail", "fail"]


async def test_the_checks_of_a_segment_run_side_by_side(quick: Stack) -> None:
    running = most = 0

    def waiting() -> tandem.Check:
        async def check(segment: str, so_far: str) -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return "pass"

        return check

    async with tandem.stream(quick.gateway, asked(), chunking="sentence", checks=[waiting() for _ in range(4)]) as streamer:
        assert [segment async for segment in streamer]
    assert most == 4


async def test_what_a_check_raises_reaches_the_caller(slow: Stack) -> None:
    def broken(segment: str, so_far: str) -> str:
        raise LookupError("no word list")

    def confused(segment: str, so_far: str) -> str:
        return "perhaps"

    for check, error, words in ((broken, LookupError, "no word list"), (confused, ValueError, "'pass', 'fail' or 'unknown'")):
        seen = Seen()
        streamer = tandem.stream(slow.gateway, asked(), checks=[check], observers=[seen])
        with pytest.raises(error, match=words):
            await read(streamer)
        assert not any(isinstance(event, tandem.TextEvent) for event in seen.events)
        assert streamer.failed_early
        assert words in (streamer.failure_reason or "")
        assert isinstance(seen.events[-2], tandem.ErrorEvent)
        seen.assert_completed_once_last()
        await asyncio.to_thread(slow.becomes, "slots_used", 0)


async def test_final_checks_look_at_the_whole_and_their_errors_are_raised(quick: Stack) -> None:
    async def short(text: str) -> str:
        assert text == TEXT
        return "fail"

    async with tandem.stream(quick.gateway, asked(), final_checks=[short, lambda text: "pass"]) as streamer:
        events = [event async for event in streamer.events()]
    assert streamer.completed_normally
    assert not streamer.failed_early
    assert streamer.check_failures == [tandem.CheckFailure("short", TEXT)]
    final = next(event for event in events if isinstance(event, tandem.CheckEvent))
    assert final.final
    assert [result.verdict for result in final.results] == ["fail", "pass"]

    def broken(text: str) -> str:
        raise LookupError("later")

    streamer = tandem.stream(quick.gateway, asked(), final_checks=[broken])
    with pytest.raises(LookupError, match="later"):
        await read(streamer)
    assert streamer.full_text == TEXT
    assert streamer.completed_normally


# ---- observers


async def test_an_observer_that_fails_is_reported_and_the_others_are_told(quick: Stack, caplog: pytest.LogCaptureFixture) -> None:
    seen, told = Seen(), []

    def broken(event: tandem.StreamEvent) -> None:
        raise LookupError("observer")

    async def slowly(event: tandem.StreamEvent) -> None:
        await asyncio.sleep(0)
        told.append(event)

    with caplog.at_level(logging.ERROR, "tandem.client"):
        async with tandem.stream(quick.gateway, asked(), observers=[broken, slowly, seen]) as streamer:
            assert "".join([segment async for segment in streamer]) == TEXT
    assert told == seen.events
    seen.assert_completed_once_last()
    assert len(caplog.records) == len(seen.events)


# ---- servers that fail


FAILURES: dict[str, tuple[dict[str, Any], dict[str, type[Exception] | None]]] = {
    "error": (
        {"kind": "error", "after": 5, "message": "asked for"},
        {"gateway": tandem.GenerationFailed, "pipeline": tandem.GenerationFailed},
    ),
    # The gateway goes on where the connection was cut.
    "drop": ({"kind": "drop", "after": 5}, {"gateway": None, "pipeline": tandem.ConnectionFailed}),
    "missing": ({"kind": "missing", "after": 5}, {"gateway": tandem.GenerationFailed, "pipeline": tandem.StreamProtocolError}),
    "duplicate": ({"kind": "duplicate", "after": 5}, {"gateway": tandem.GenerationFailed, "pipeline": tandem.StreamProtocolError}),
    # (It ends the answer there.) The gateway does not look at what a worker says behind its end.
    "late": ({"kind": "late", "after": 5}, {"gateway": None, "pipeline": tandem.StreamProtocolError}),
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_worker_that_fails_is_told_from_one_that_ends(tmp_path: Path, failure: str, kind: str) -> None:
    plan, outcome = FAILURES[failure]
    expected = outcome[kind]
    with stack(tmp_path, line(LONG, fail=plan, tokens_per_second=2000)) as services:
        seen = Seen()
        streamer = tandem.stream(services.target(kind), asked(), observers=[seen])
        if expected is None:
            text = "".join(await read(streamer))
            assert text == LONG if failure == "drop" else LONG.startswith(text)
            assert streamer.completed_normally
        else:
            with pytest.raises(expected):
                await read(streamer)
            segments = [event.text for event in seen.events if isinstance(event, tandem.TextEvent)]
            assert streamer.failed_early
            assert isinstance(seen.events[-2], tandem.ErrorEvent)
            # What came late had all been delivered before.
            assert streamer.full_text == "".join(segments)
            assert LONG.startswith(streamer.full_text)
            assert bool(segments)
        seen.assert_completed_once_last()
        await asyncio.to_thread(services.becomes, "slots_used", 0)


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_worker_that_stalls_is_left_when_the_caller_has_waited_enough(tmp_path: Path, kind: str) -> None:
    with stack(tmp_path, line(LONG, fail={"kind": "stall", "after": 5})) as services:
        seen = Seen()
        streamer = tandem.stream(services.target(kind), asked(), observers=[seen])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(streamer), 1)
        assert streamer.failed_early
        assert streamer.full_text
        seen.assert_completed_once_last()
        await asyncio.to_thread(services.becomes, "slots_used", 0)


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_refusal_says_what_the_server_said(quick: Stack, kind: str) -> None:
    streamer = tandem.stream(quick.target(kind), asked(top_p=7))
    with pytest.raises(tandem.RequestRefused) as refused:
        await read(streamer)
    assert (refused.value.status, refused.value.info and refused.value.info.param) == (400, "top_p")
    assert streamer.failed_early
    with pytest.raises(tandem.RequestRefused, match="404"):
        await read(tandem.stream(quick.target(kind), asked() | {"model": "other"}))


async def test_a_server_that_is_not_there_is_an_error_of_the_connection() -> None:
    for target in ("http://127.0.0.1:9", tandem.Pipeline(render="http://127.0.0.1:9", worker="x", derender="y")):
        with pytest.raises(tandem.ConnectionFailed, match=r"127\.0\.0\.1:9"):
            await read(tandem.stream(target, asked()))


# ---- laws


class Played:
    """A target that plays pieces, and fails behind the last if it is told so."""

    def __init__(self, texts: list[str], error: Exception | None = None) -> None:
        self.texts, self.error, self.closed = texts, error, False

    async def pieces(self, request: Any) -> AsyncIterator[Piece]:
        try:
            for text in self.texts:
                yield Piece("s", text)
            if self.error is not None:
                raise self.error
            yield Piece("s", finish_reason="stop")
        finally:
            self.closed = True


texts = st.lists(st.text(alphabet='ab .!?\n"。é', max_size=8), max_size=12)


@settings(max_examples=200, deadline=None)
@given(deltas=texts, chunking=st.sampled_from(CHUNKINGS), leave=st.integers(0, 12), fails=st.booleans(), events=st.booleans())
def test_the_text_never_diverges_from_what_came(deltas: list[str], chunking: Any, leave: int, fails: bool, events: bool) -> None:
    async def run() -> None:
        error = tandem.GenerationFailed(ErrorInfo(message="m", type="t")) if fails else None
        target, seen, segments = Played(deltas, error), Seen(), []
        async with tandem.stream(target, {}, chunking=chunking, observers=[seen]) as streamer:  # type: ignore[arg-type]
            try:
                if events:
                    async with aclosing(streamer.events()) as all_events:  # type: ignore[type-var]
                        async for event in all_events:
                            if isinstance(event, tandem.TextEvent):
                                segments.append(event.text)
                                if len(segments) == leave:
                                    break
                else:
                    async for segment in streamer:
                        segments.append(segment)
                        if len(segments) == leave:
                            break
            except tandem.GenerationFailed:
                assert fails
        whole = "".join(deltas)
        assert target.closed
        completed = seen.assert_completed_once_last()
        left = len(segments) == leave and leave > 0
        assert streamer.completed_normally == (not fails and not left)
        assert streamer.full_text == completed.full_text
        if streamer.completed_normally:
            assert streamer.full_text == whole
        else:
            assert whole.startswith(streamer.full_text)
            at = 0
            for segment in segments:
                at = whole.index(segment, at) + len(segment)
            assert streamer.full_text == whole[:at]

    asyncio.run(run())


def test_a_segment_that_is_not_in_the_text_is_an_error() -> None:
    transcript = Transcript()
    transcript.add("abc")
    transcript.deliver("b")
    assert (transcript.delivered, transcript.whole) == ("ab", "abc")
    with pytest.raises(ValueError, match="not in the text"):
        transcript.deliver("b")
