"""`pinnace exec`: how long it may take, and how it ends."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import ExecExit, ExecRequest, ExecResponse
from pinnace.api.status import Code, Refusal
from pinnace.cli import session
from pinnace.cli.main import run
from pinnace.cli.verbs import logs
from pinnace.client.client import PodClient
from pinnace.client.config import ClientConfig
from pinnace.client.errors import from_refusal
from tests.builders import make_pod

COMMAND = ["exec", "web", "--server", "127.0.0.1:1"]


class Stream:
    """Of a command that ends after a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stdin = False
        self._fed = asyncio.Event()
        self.cancelled = False
        self.given = b""

    async def write(self, request: ExecRequest, *, patience: float | None = 1.0) -> None:
        if request.HasField("start"):
            assert request.start.name == "web"
            self._stdin = request.start.stdin
        self.given += request.stdin
        if request.closeStdin:
            self._fed.set()

    async def read(self) -> ExecResponse:
        if self._stdin:
            await self._fed.wait()
        await asyncio.sleep(self._seconds)
        return ExecResponse(exit=ExecExit(code=3))

    def cancel(self) -> None:
        self.cancelled = True


def play(stream: Stream, words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    async def reach(config: ClientConfig) -> None:
        """Somebody answers."""

    async def pods_of(session: session.Session, what: str, labels: str) -> list[Pod]:
        return [make_pod("web").req(cpu=1).build()]

    async def begin(self: PodClient) -> Stream:
        return stream

    monkeypatch.setattr(session, "reach", reach)
    monkeypatch.setattr(logs, "pods_of", pods_of)
    monkeypatch.setattr(PodClient, "exec", begin)
    return run([*COMMAND, *words, "--", "sleep", "10"])


def test_a_command_that_takes_longer_than_it_may(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(60.0)
    assert play(stream, ["--timeout", "10ms"], monkeypatch) == 6
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "error: timed out after 0.01 s waiting for the command to end"
    assert "--timeout" in hint and stream.cancelled


def test_a_command_may_take_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(session, "DEFAULT_DEADLINE", 0.01)
    assert play(Stream(0.03), [], monkeypatch) == 3
    assert capsys.readouterr().err == "command terminated with exit code 3\n"


def test_input_that_cannot_be_read_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Stream(60.0)
    with open(os.devnull, "w", encoding="utf-8") as unreadable:  # noqa: PTH123 - a device, not a file of ours
        monkeypatch.setattr(sys, "stdin", unreadable)
        assert play(stream, ["-i", "--timeout", "30s"], monkeypatch) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "error: standard input cannot be read: bad file descriptor"
    assert hint.startswith("hint: ") and stream.cancelled


@pytest.mark.parametrize("reason", ["", "KubeletUnavailable"])
def test_a_connection_that_is_lost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str) -> None:
    async def fail(self: Stream) -> ExecResponse:
        raise from_refusal(Refusal(Code.UNAVAILABLE, reason, "socket closed"))

    monkeypatch.setattr(Stream, "read", fail)
    assert play(Stream(0.0), [], monkeypatch) == 6
    first, hint = capsys.readouterr().err.splitlines()
    assert ("the connection was lost" in first and "run it again" in hint) is not bool(reason)
    assert "socket closed" in first and "`pinnace up`" not in hint


def test_stdin_is_passed_on_until_eof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_bytes(b"x" * 100_000)
    stream = Stream(0.0)
    with text.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert play(stream, ["-i"], monkeypatch) == 3
    assert stream.given == text.read_bytes()
