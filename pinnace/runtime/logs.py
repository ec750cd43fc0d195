"""Logging of the components: one line an event, to stderr, with UTC time to the millisecond.

What others have said may be part of it (who they are, for one): it cannot begin a line, nor move a terminal's cursor.
"""

import logging
import sys
import time

_ESCAPED = {number: repr(chr(number))[1:-1] for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Characters that are written as Python writes them in a string."""


class _OneLine(logging.Formatter):
    """A traceback still has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return super().formatMessage(record).translate(_ESCAPED)


def configure(component: str, verbosity: int = 0) -> None:
    """`verbosity`: 0 info, 1 and more debug."""
    formatter = _OneLine(
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
