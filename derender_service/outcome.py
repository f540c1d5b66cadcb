"""What became of one stream body among others: an HTTP status and a body, never an exception."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import ErrorResponse, InternalError, TandemError

log = logging.getLogger("tandem.derender")


@dataclass(frozen=True)
class Outcome:
    """`body` is JSON: what the single route would have answered, to the byte."""

    status: int
    body: bytes


def outcome(work: Callable[[], bytes]) -> Outcome:
    """Runs `work`, which gives the body of a 200. One body harms no other, so an error becomes its own answer."""
    try:
        return Outcome(200, work())
    except TandemError as error:
        return _failed(error)
    except Exception:  # as at the edge: a bug is a 500 with a traceback in the log, here for the one body that met it
        log.exception("unhandled error")
        return _failed(InternalError("internal error; the service's log has the details under this request id"))


def _failed(error: TandemError) -> Outcome:
    return Outcome(error.status, ErrorResponse(error=error.info).wire())
