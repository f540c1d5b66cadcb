"""A process that runs strangers' templates: `python -m model_profile.template_host <seconds> <characters> <MiB> <lifeline>`.

Reads jobs from its standard input and writes answers to its standard output; `lifeline` is a pipe that says nothing, and ends with
the service. A job may fill the memory or never end: the operating system's limits hold for the whole process, which has nothing to
lose. Who started it keeps the time, and starts another.
"""

import fcntl
import os
import resource
import select
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from model_profile.chat_template import ChatTemplate
from model_profile.template import TemplateExceeded, TemplateFailed, TemplateInput
from model_profile.template_budget import MIB, TemplateLimits, within
from model_profile.template_wire import HEADER, OUT_OF_MEMORY, JsonObject, frame, traced_as_json, unframed

_MESSAGE_CHARACTERS = 10_000
"""Of an error, which may quote all that it was given."""
_NICE = 5
"""The service is to go first."""
_PAGE = resource.getpagesize()


def main(seconds: str, characters: str, mib: str, lifeline: str) -> None:
    limits = TemplateLimits(float(seconds), int(characters), int(mib))
    # Ctrl-C and the like are for the service, which may want an answer yet: this ends when its input does.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    _end_with(int(lifeline))
    os.nice(_NICE)
    begun = _confine(limits)
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    _say(answers, {"ready": True})
    while len(header := jobs.read(HEADER.size)) == HEADER.size:
        (size,) = HEADER.unpack(header)
        job = jobs.read(size)
        if len(job) < size:
            return
        _bound_processor_time(limits)
        answer = answered(unframed(job), limits)
        # What a job leaves behind, such as compiled templates, must not take the next one's room.
        last = answer.get("memory", False) or _memory() > begun + limits.mib * MIB // 4
        _say(answers, {**answer, "last": last})
        if last:
            return


def answered(job: JsonObject, limits: TemplateLimits) -> JsonObject:
    template = ChatTemplate(job["source"], limits=limits)
    try:
        with within(limits):
            if job["do"] == "habits":
                return {"habits": asdict(template.habits())}
            given = TemplateInput(**job["given"])
            return traced_as_json(template.trace(given)) if job["do"] == "trace" else {"text": template.write(given)}
    except TemplateFailed as error:
        if isinstance(error.__cause__, MemoryError):
            return {"memory": True}
        kind = "TemplateExceeded" if isinstance(error, TemplateExceeded) else type(error).__name__
        return {"failed": kind, "message": str(error)[:_MESSAGE_CHARACTERS]}
    except MemoryError:
        return {"memory": True}


def _say(answers: BinaryIO, answer: JsonObject) -> None:
    answers.write(frame(answer))
    answers.flush()


def _confine(limits: TemplateLimits) -> int:
    """Bounds this process's memory to what it has now and the limit. Returns what it has now."""
    _bound(resource.RLIMIT_CORE, 0)
    begun = _memory()
    if begun:
        _bound(resource.RLIMIT_AS, begun + limits.mib * MIB)
    return begun


def _bound(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _memory() -> int:
    """Bytes of address space; 0 where the system does not tell, and does not bound it either."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    except FileNotFoundError:
        return 0


def _bound_processor_time(limits: TemplateLimits) -> None:
    """For a service that stands still while a job runs."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _bound(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + limits.seconds) + 2)


def _end_with(pipe: int) -> None:
    """Has the kernel end this process when the pipe's other end is closed, also in the middle of a step that lets no Python run."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(pipe, 0)
    if poll.poll(0):  # it was closed before the kernel knew
        sys.exit(0)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BrokenPipeError:
        os._exit(0)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
