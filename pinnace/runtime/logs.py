"""Logging of the components: one line an event, to stderr, with UTC time to the millisecond."""

import logging
import sys
import time


def configure(component: str, verbosity: int = 0) -> None:
    """`verbosity`: 0 info, 1 and more debug."""
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity else logging.INFO)
    logging.getLogger("grpc").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
