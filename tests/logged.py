"""The structured events of captured log records."""

from typing import TypeVar

import pytest

from pinnace.runtime.logs import LogEvent

E = TypeVar("E", bound=LogEvent)


def logged(caplog: pytest.LogCaptureFixture, kind: type[E]) -> list[E]:
    """Those of one kind, in their order."""
    events = [record.__dict__.get("log_event") for record in caplog.records]
    return [event for event in events if isinstance(event, kind)]
