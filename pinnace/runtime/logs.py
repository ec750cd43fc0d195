"""Logging of the components: one line an event, to stderr, in one of two forms.

text    2026-11-22T11:45:59.720Z I apiserver-0 apiserver.services.errors: what happened (request 916e40357970-3)
json    an object with the names of Kubernetes' JSON logs (ts: seconds since 1970; msg; err: a traceback), and `requestID`;
        `event` and `fields` of lines that have a structured event (pinnace/runtime/log_events.py)

A line that is written on behalf of a call says which: the id that the caller got with the answer, and that the audit log has.

What others have said may be part of it (who they are, for one): it cannot begin a line, nor move a terminal's cursor.

Source: https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format
"""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Literal

Format = Literal["text", "json"]

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the call on whose behalf the present task runs; "": of none. Tasks that it starts inherit it."""

_ESCAPED = {number: repr(chr(number))[1:-1] for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Characters that are written as Python writes them in a string."""


class _OneLine(logging.Formatter):
    """A traceback still has lines of its own."""

    def __init__(self, component: str) -> None:
        line = f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s"
        super().__init__(line, datefmt="%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        line = super().formatMessage(record).translate(_ESCAPED)
        return f"{line} (request {of})" if (of := request_id.get()) else line


class _Json(logging.Formatter):
    """A traceback is in the line."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 6),
            "severity": record.levelname,
            "component": self._component,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if of := request_id.get():
            line["requestID"] = of
        if happened := record.__dict__.get("log_event"):
            line |= {"event": happened.name, "fields": happened.values}
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(component: str, verbosity: int = 0, form: Format = "text") -> None:
    """`verbosity`: 0 info, 1 and more debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(component) if form == "json" else _OneLine(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity else logging.INFO)
    logging.getLogger("grpc").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
