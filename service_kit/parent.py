"""A process that was started by another of ours ends when that one does, also when it was killed and could tell nobody."""

import ctypes
import os
import signal
import sys
import threading
import time

PARENT_PID = "TANDEM_PARENT_PID"
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0


def child_environment() -> dict[str, str]:
    """What to add to a child's environment so that it ends with this process."""
    return {PARENT_PID: str(os.getpid())}


def end_with_parent() -> None:
    """In a child: asks to be sent SIGTERM when the parent is gone, which is a graceful stop. In any other process: nothing.

    Linux's kernel does it at once; elsewhere a thread looks once a second.
    """
    given = os.environ.pop(PARENT_PID, None)
    if given is None:
        return
    parent = int(given)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before the kernel knew
            sys.exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
