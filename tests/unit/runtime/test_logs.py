import logging
from collections.abc import Iterator

import pytest

from pinnace.runtime import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_what_a_peer_says_begins_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver")
    logging.getLogger("a.b").info("%s comes back", "eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"I apiserver a.b: eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J comes back")


def test_a_traceback_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver")
    logging.getLogger("a.b").error("a bug", exc_info=ValueError("no"))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith("E apiserver a.b: a bug") and last == "ValueError: no"
