"""How the lines of containers are printed, and what is told when they end before their time."""

from typing import Any

import pytest

from pinnace.api.pods_pb2 import LogOptions, LogsResponse
from pinnace.api.status import Code, Refusal
from pinnace.cli import session
from pinnace.cli.errors import guarded
from pinnace.cli.outcomes import ExitCode
from pinnace.cli.settings import Settings
from pinnace.cli.verbs.logs import Source, printer, show
from pinnace.client.client import PodClient
from pinnace.client.config import ClientConfig
from pinnace.client.errors import from_refusal
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


class Cut:
    """A stream whose server dies after one response."""

    def __init__(self) -> None:
        self._left = [LogsResponse(data=b"line\n")]

    async def read(self) -> LogsResponse:
        if self._left:
            return self._left.pop()
        raise from_refusal(Refusal(Code.UNAVAILABLE, "", "socket closed"))

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("follow", [True, False])
def test_a_connection_that_is_lost(follow: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    async def reach(config: ClientConfig) -> None:
        """Somebody answers."""

    async def begin(self: PodClient, *_: object) -> Cut:
        return Cut()

    async def body(found: session.Session) -> None:
        await show(found, [Source(make_pod("web").build(), "c")], LogOptions(follow=follow), prefixed=False)

    monkeypatch.setattr(session, "reach", reach)
    monkeypatch.setattr(PodClient, "logs", begin)
    settings = Settings(server="127.0.0.1:1")
    assert guarded(lambda: session.run(settings, body), settings) == ExitCode.UNAVAILABLE
    out, err = capfd.readouterr()
    assert out == "line\n" and "the connection was lost" in err and "run it again" in err
    assert ("--since" in err) is follow and "`pinnace up`" not in err
