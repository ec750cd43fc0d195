"""How the lines of several containers are printed."""

from typing import Any

import pytest

from pinnace.cli.logs.pods import Source, printer
from tests.builders import make_pod


@pytest.mark.parametrize(
    ("prefixed", "whole_lines", "printed"),
    [
        (False, False, [b"a", b"\nb", b""]),
        (False, True, [b"", b"a\n", b"b\n"]),
        (True, True, [b"", b"[pod/web/c] a\n", b"[pod/web/c] b\n"]),
    ],
)
def test_lines_of_several_do_not_mix(
    prefixed: bool, whole_lines: bool, printed: list[bytes], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write = printer(Source(make_pod("web").build(), "c"), prefixed, whole_lines=whole_lines)
    seen: list[Any] = []
    for chunk in (b"a", b"\nb", b""):
        write(chunk)
        seen.append(capfdbinary.readouterr().out)
    assert seen == printed
