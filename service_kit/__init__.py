"""What every HTTP service of the project shares: the app around its routes, request ids, limits, metrics, logs, shutdown.

Services import it; it knows `protocol` and no service.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("tandem-serving")
except PackageNotFoundError:  # run from a bare checkout
    VERSION = "0.0.0"
