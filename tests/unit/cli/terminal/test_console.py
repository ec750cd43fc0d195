"""Text of others on a terminal: its control characters are shown. Into a pipe it goes as it is."""

import io
from contextlib import redirect_stdout

import pytest

from pinnace.cli.terminal import escape_control_characters, print_bytes, print_result

HOSTILE = "a\x1b]0;title\x07\x1b[2J\rb\x9b31m\x7f\u202ec\td\r\ne\n"
SHOWN = "a^[]0;title^G^[[2J\\rb\\x9b31m^?\\u202ec\td\r\ne\n"


class Terminal(io.TextIOWrapper):
    def __init__(self, *, tty: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(errors="surrogateescape")


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def stdout(request: pytest.FixtureRequest) -> Terminal:
    return Terminal(tty=request.param)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal(tty=True)


def test_control_characters_are_made_visible() -> None:
    assert escape_control_characters(HOSTILE) == SHOWN
    assert escape_control_characters("plain\ttext, äöü €\n") == "plain\ttext, äöü €\n"


def test_results(stdout: Terminal) -> None:
    with redirect_stdout(stdout):
        print_result(HOSTILE)
    assert stdout.text() == (SHOWN if stdout.isatty() else HOSTILE)


def test_styled_results_keep_their_colours(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        print_result("\x1b[31m-a\x1b[0m\n", styled=True)
    assert terminal.text() == "\x1b[31m-a\x1b[0m\n"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_bytes_in_pieces_of_any_size(stdout: Terminal, size: int) -> None:
    """Characters and line ends may be divided between pieces."""
    write, data = print_bytes(), HOSTILE.encode()
    with redirect_stdout(stdout):
        for start in range(0, len(data), size):
            write(data[start : start + size])
        write(b"")
    assert stdout.text() == (SHOWN if stdout.isatty() else HOSTILE)


def test_bytes_that_are_no_text(terminal: Terminal) -> None:
    """0x9b alone begins an escape sequence on terminals that are not UTF-8."""
    write = print_bytes()
    with redirect_stdout(terminal):
        write(b"\x9b31m\xe2\x82")
        write(b"")
    assert terminal.text() == "\\x9b31m\\xe2\\x82"
