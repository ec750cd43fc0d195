"""Unit tests run in one process. A test that starts a process has the mark `processes`, and `make test-quick` leaves it out.

Without the mark, it fails."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pinnace.runtime import build

_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"})
_unmarked = ""
"""The running test, if it has no mark `processes`."""


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if _unmarked and event in _STARTS:
        pytest.fail(f"{_unmarked} starts a process: add pytest.mark.processes")


sys.addaudithook(_refuse_processes)
build.build_version()  # runs git once


@pytest.fixture(autouse=True)
def no_unmarked_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail tests without the mark that start a process."""
    global _unmarked
    _unmarked = "" if request.node.get_closest_marker("processes") else request.node.nodeid
    yield
    _unmarked = ""
