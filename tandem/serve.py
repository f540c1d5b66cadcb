"""One service of this process: its socket, its app, and the way from one to the other."""

import sys
from collections.abc import Callable
from typing import TypeVar

from fastapi import FastAPI

from service_kit import logs
from service_kit.lifecycle import listen, run
from service_kit.scale import inherited_socket, supervise
from service_kit.settings import ScalableSettings, ServiceSettings
from tandem.options import fail

S = TypeVar("S", bound=ServiceSettings)


def serve(create_app: Callable[[S], FastAPI], settings: S, *, refusals: tuple[type[Exception], ...] = ()) -> None:
    """Serves until told to stop. The port is taken before the app is built: a port in use is known at once, not after a model load.

    For several processes this one becomes the parent of those, which run the same command on its socket. `refusals` are the errors
    that tell why the app cannot be built; they end the process with their message and exit code 2.
    """
    inherited = inherited_socket()
    sock = inherited or listen(settings)
    if inherited is None and isinstance(settings, ScalableSettings) and settings.processes > 1:
        sys.exit(supervise(sock, settings.processes))
    logs.configure(settings.log_format, settings.log_level)
    try:
        app = create_app(settings)
    except refusals as error:
        fail(str(error))
    run(app, settings, sock)
