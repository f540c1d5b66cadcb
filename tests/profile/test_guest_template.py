"""Templates that requests bring: what they write is what they would write in the service, and what they break is theirs alone."""

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profile import ChatTemplate, TemplateFailed, TemplateInput, TemplateRefused
from model_profile import template_process as process_module
from model_profile.guest_template import GuestTemplate, GuestTemplates
from model_profile.provenance import sources_of
from model_profile.template import HostFailed, HostsBusy, InvalidTemplate
from model_profile.template_budget import TemplateLimits
from model_profile.template_pool import GuestExceeded
from model_profile.template_wire import HEADER, frame
from tests.bombs import IN_ONE_STEP, IN_STEPS, NO_PROGRAM, RECURSION, UNSEEN
from tests.profile.test_chat_template import FAMILIES, conversations, tool_lists
from tests.tokenizers import profile

LIMITS = TemplateLimits(seconds=1.0, characters=2_000_000, mib=192)
HI = TemplateInput([{"role": "user", "content": "hi"}])
PLAIN = "{% for m in messages %}{{ m.content }}!{% endfor %}"
LOOP = IN_STEPS["nested loops"][0]
HELD = UNSEEN["the same in tests"][0]
"""Lets no Python run while it does."""


@cache
def shared() -> GuestTemplates:
    return GuestTemplates(TemplateLimits(), 2)


@pytest.fixture(scope="module")
def bounded() -> Iterator[GuestTemplates]:
    guests = GuestTemplates(LIMITS, 2)
    yield guests
    guests.close()
    assert not guests.pool.pids


@pytest.fixture
def guests() -> Iterator[Callable[..., GuestTemplates]]:
    made: list[GuestTemplates] = []

    def make(size: int = 2, **limits: Any) -> GuestTemplates:
        made.append(GuestTemplates(TemplateLimits(**{"seconds": 5.0, **limits}), size))
        return made[-1]

    yield make
    for each in made:
        each.close()


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except TemplateFailed as error:
        return type(error), str(error)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(
    messages=conversations(),
    tools=tool_lists(),
    ending=st.sampled_from(["prompt", "continue", "neither"]),
    thinking=st.sampled_from([None, True, False]),
)
def test_text_and_sources_are_those_of_the_template_in_the_service(
    family: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, ending: str, thinking: bool | None
) -> None:
    own = profile(family)
    assert own.chat_template is not None
    source = own.chat_template.source
    at_home, away = ChatTemplate(source), shared().template(source)
    asked = TemplateInput(
        messages,
        tools=tools,
        add_generation_prompt=ending == "prompt",
        continue_final_message=ending == "continue",
        special_tokens=own.special_tokens,
        variables={} if thinking is None else {"enable_thinking": thinking},
    )
    assert away.habits() == at_home.habits()
    assert outcome(lambda: away.write(asked)) == outcome(lambda: at_home.write(asked))
    traced, right = outcome(lambda: away.trace(asked)), outcome(lambda: at_home.trace(asked))
    assert traced == right
    if isinstance(right, str):
        assert sources_of(traced) == sources_of(right)


@pytest.mark.parametrize(
    "content", ["", "\ud83d", "\x00\x1f\x7f\u2028", "日本 🙂", [float("inf"), -0.0, 10**300, 1e-9, None, True], {"a": [{"b": "c"}]}]
)
def test_values_arrive_as_they_are(content: Any) -> None:
    source = "{{ messages[0].content }}{{ messages[0].content | string | length }}{{ extra.x }}"
    asked = TemplateInput([{"role": "user", "content": content}], variables={"extra": {"x": "\ud83d"}})
    written = shared().template(source).trace(asked)
    right = ChatTemplate(source).trace(asked)
    assert (written, sources_of(written)) == (right, sources_of(right))


def test_half_characters_do_not_grow_together_on_the_way() -> None:
    source = "{{ messages[0].content }}{{ messages[1].content }}"
    asked = TemplateInput([{"role": "user", "content": "\ud83d"}, {"role": "user", "content": "\ude42"}])
    written = shared().template(source).trace(asked)
    assert written == "\ud83d\ude42"
    assert sources_of(written) == sources_of(ChatTemplate(source).trace(asked))


def test_what_cannot_be_written_as_json_is_the_messages_fault() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TemplateFailed, match="cannot be given these messages"):
        shared().template(PLAIN).write(TemplateInput([{"role": "user", "content": deep}]))
    assert shared().template(PLAIN).write(HI) == "hi!"


BOMBS = IN_STEPS | IN_ONE_STEP | UNSEEN | NO_PROGRAM


@pytest.mark.parametrize(("source", "says"), BOMBS.values(), ids=BOMBS)
def test_bombs(bounded: GuestTemplates, source: str, says: str) -> None:
    def run() -> None:
        template = bounded.template(source)
        template.habits()
        template.write(HI)

    assert bounded.template(PLAIN).write(HI) == "hi!"
    started = time.perf_counter()
    with pytest.raises((GuestExceeded, InvalidTemplate), match=says) as caught:
        run()
    assert time.perf_counter() - started < LIMITS.seconds + 1.5
    assert caught.value.fault == "chat_template"
    assert len(bounded.pool.pids) <= 2
    assert all(psutil.Process(pid).memory_info().rss < (LIMITS.mib + 64) << 20 for pid in bounded.pool.pids)
    assert bounded.template(PLAIN).write(HI) == "hi!"


@pytest.mark.parametrize("way", ["write", "trace"])
def test_what_a_template_says_is_the_messages_fault(way: str) -> None:
    for source, kind, says in [
        ("{{ raise_exception('no such role') }}", TemplateRefused, "refuses these messages: no such role"),
        ("{{ 1 / 0 }}", TemplateFailed, "division by zero"),
        (RECURSION, TemplateFailed, "recursion"),
    ]:
        with pytest.raises(kind, match=says) as caught:
            getattr(shared().template(source), way)(HI)
        assert caught.value.fault == "messages"


def test_a_long_refusal_is_cut() -> None:
    with pytest.raises(TemplateRefused) as caught:
        shared().template("{{ raise_exception('x' * 1000000) }}").write(HI)
    assert 9_000 < len(str(caught.value)) <= 10_000


def test_processes_are_started_when_needed_and_used_again(guests: Callable[..., GuestTemplates]) -> None:
    few = guests()
    assert few.pool.pids == []
    assert few.template(PLAIN).write(HI) == "hi!"
    (pid,) = few.pool.pids
    with pytest.raises(TemplateFailed):
        few.template("{{ 1 / 0 }}").write(HI)
    assert few.template(PLAIN).write(HI) == "hi!"
    assert few.pool.pids == [pid]


def test_others_go_on_while_one_loops(guests: Callable[..., GuestTemplates]) -> None:
    few = guests(seconds=2.0)
    failures: list[BaseException] = []

    def bomb() -> None:
        try:
            few.template(HELD).write(HI)
        except GuestExceeded as error:
            failures.append(error)

    few.template(PLAIN).write(HI)
    thread = threading.Thread(target=bomb)
    thread.start()
    written = 0
    while thread.is_alive():
        assert few.template(PLAIN).write(HI) == "hi!"
        written += 1
    thread.join()
    assert written > 20
    assert len(failures) == 1


def test_many_threads(guests: Callable[..., GuestTemplates]) -> None:
    few = guests()
    right: list[bool] = []

    def write(number: int) -> None:
        asked = TemplateInput([{"role": "user", "content": f"{number}"}])
        right.extend(few.template(PLAIN).write(asked) == f"{number}!" for _ in range(30))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 240
    assert len(few.pool.pids) <= 2


def test_who_waits_for_a_process_too_long_is_told(guests: Callable[..., GuestTemplates]) -> None:
    none = guests(size=0, seconds=0.2)
    with pytest.raises(HostsBusy, match="are busy"):
        none.template(PLAIN).write(HI)


def test_a_process_that_is_killed_is_replaced(guests: Callable[..., GuestTemplates]) -> None:
    one = guests(size=1)
    assert one.template(PLAIN).write(HI) == "hi!"
    (idle,) = one.pool.pids
    psutil.Process(idle).kill()
    time.sleep(0.1)
    assert one.template(PLAIN).write(HI) == "hi!"
    (busy,) = one.pool.pids
    assert busy != idle
    threading.Timer(0.3, psutil.Process(busy).kill).start()
    with pytest.raises(HostFailed, match="ended before it had an answer"):
        one.template(LOOP).write(HI)
    assert one.template(PLAIN).write(HI) == "hi!"


def test_a_crash_is_the_templates_fault(guests: Callable[..., GuestTemplates]) -> None:
    one = guests(size=1)
    one.template(PLAIN).write(HI)
    (pid,) = one.pool.pids
    threading.Timer(0.3, psutil.Process(pid).send_signal, [11]).start()
    with pytest.raises(GuestExceeded, match=r"crashed the process that ran it \(SIGSEGV\)"):
        one.template(LOOP).write(HI)


def test_closing_ends_what_runs(guests: Callable[..., GuestTemplates]) -> None:
    few = guests()
    few.template(PLAIN).write(HI)
    pids = few.pool.pids
    threading.Timer(0.3, few.close).start()
    with pytest.raises(HostFailed):
        few.template(LOOP).write(HI)
    with pytest.raises(HostFailed):
        few.template(PLAIN).write(HI)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_sees_no_secrets(monkeypatch: pytest.MonkeyPatch, guests: Callable[..., GuestTemplates]) -> None:
    monkeypatch.setenv("TANDEM_API_KEY", "very-secret")
    one = guests(size=1)
    one.template(PLAIN).write(HI)
    (pid,) = one.pool.pids
    assert b"very-secret" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_templates_left_behind_do_not_take_the_next_ones_room(guests: Callable[..., GuestTemplates]) -> None:
    one = guests(size=1, mib=16)
    for number in range(60):
        source = f"{{{{ messages[0].content }}}} {number} " + "x" * 200_000
        assert one.template(source).write(HI).startswith(f"hi {number} x")


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, guests: Callable[..., GuestTemplates]) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(HostFailed, match="cannot be started: No such file"):
        guests().template(PLAIN).write(HI)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(HostFailed, match="does not start"):
        guests().template(PLAIN).write(HI)


JUNK = {
    "nothing": b"",
    "half a header": b"\0\0",
    "half a frame": HEADER.pack(100) + b"x",
    "a frame without end": HEADER.pack(2**60) + b"x" * 1000,
    "no JSON": HEADER.pack(1) + b"{",
    "no UTF-8": HEADER.pack(2) + b"\xff\xff",
    "no object": frame([]),
    "nothing of what was asked": frame({}),
    "text that is none": frame({"text": 5, "runs": [], "last": False}),
    "runs that do not fit": frame({"text": "ab", "runs": [1, 1], "last": False}),
    "runs that are none": frame({"text": "ab", "runs": ["x", 1], "last": False}),
    "sources that are none": frame({"text": "ab", "runs": [2, -1], "last": False}),
    "an odd number": frame({"text": "ab", "runs": [2, 1, 0], "last": False}),
    "a memory that is none": frame({"memory": "", "last": 0, "failed": []}),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_process_that_talks_nonsense(junk: bytes, monkeypatch: pytest.MonkeyPatch, guests: Callable[..., GuestTemplates]) -> None:
    code = (
        "import sys, os\n"
        f"os.write(1, {frame({'ready': True})!r})\n"
        f"size = int.from_bytes(sys.stdin.buffer.read(8), 'big'); sys.stdin.buffer.read(size); os.write(1, {junk!r})"
    )
    monkeypatch.setattr(
        process_module,
        "_start",
        lambda _: (
            subprocess.Popen([sys.executable, "-c", code], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE),
            io.BytesIO(),
        ),
    )
    one = guests(size=1, seconds=3.0)
    with pytest.raises((HostFailed, TemplateFailed)):
        one.template(PLAIN).trace(HI)
    monkeypatch.undo()
    assert one.template(PLAIN).write(HI) == "hi!"


def test_a_process_ends_with_who_started_it() -> None:
    """Also when that one is killed, and also in the middle of a step that lets no Python run."""
    code = (
        "import sys, threading, time\n"
        "from model_profile.guest_template import GuestTemplates\n"
        "from model_profile.template_budget import TemplateLimits\n"
        "from model_profile import TemplateInput\n"
        "guests = GuestTemplates(TemplateLimits(seconds=60.0), 2)\n"
        "hi = TemplateInput([{'role': 'user', 'content': 'hi'}])\n"
        "threading.Thread(target=guests.template(sys.argv[1]).write, args=(hi,), daemon=True).start()\n"
        "time.sleep(0.7)\n"
        "guests.template('x').write(hi)\n"
        "print(*guests.pool.pids, flush=True)\n"
        "time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code, HELD], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    children = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(children) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    _, left = psutil.wait_procs(children, timeout=3)
    assert [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_the_two_kinds_have_one_interface() -> None:
    names = {"literals", "habits", "write", "trace"}
    assert names <= set(dir(ChatTemplate)) & set(dir(GuestTemplate))


def test_memory_that_ends_is_told_as_such(guests: Callable[..., GuestTemplates]) -> None:
    one = guests(size=1, mib=64, seconds=20.0)
    with pytest.raises(GuestExceeded, match="needed more than 64 MiB of memory"):
        one.template(UNSEEN["lists of numbers"][0]).habits()
    assert one.template(PLAIN).write(HI) == "hi!"
