"""The logs of a local cluster: found through the client configuration, whole or their end, and followed."""

import asyncio
import io
import tracemalloc
from contextlib import aclosing
from pathlib import Path

import pytest

from pinnace.cli.main import run_command_line
from pinnace.cli.verbs import logs
from pinnace.client.config import ClientConfig
from pinnace.client.contexts import write_context

PATIENCE = 5.0


async def read(path: Path, lines: int | None) -> list[bytes]:
    return [data async for data in logs.read_lines(path, lines, follow=False)]


@pytest.mark.parametrize("text", [b"", b"\n", b"1", b"1\n", b"\n\n", b"1\n2\n3", b"1\n2\n3\n", b"1\r2\n\n3\n"])
@pytest.mark.parametrize("lines", [None, 0, 1, 2, 99])
@pytest.mark.parametrize("chunk", [1, 2, 1 << 16])
async def test_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, lines: int | None, chunk: int) -> None:
    monkeypatch.setattr(logs, "CHUNK", chunk)
    path = tmp_path / "x.log"
    path.write_bytes(text)
    last = io.BytesIO(text).readlines()[0 if lines is None else -lines if lines else len(text) :]
    assert b"".join(await read(path, lines)) == b"".join(last)


async def test_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(b"%08d\n" % number for number in range(50_000)))
    pieces = await read(path, None)
    assert b"".join(pieces) == path.read_bytes() and max(map(len, pieces)) == logs.CHUNK
    assert b"".join(await read(path, 40_000)).splitlines()[0] == b"00010000"


async def test_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL", 0.001)
    path = tmp_path / "x.log"
    path.write_bytes(b"old\n")
    async with asyncio.timeout(PATIENCE), aclosing(logs.read_lines(path, None, follow=True)) as pieces:
        assert await anext(pieces) == b"old\n"
        with path.open("ab") as file:
            file.write(b"new\n")
        assert await anext(pieces) == b"new\n"
        path.write_bytes(b"anew\n")  # shorter: begun again
        assert await anext(pieces) == b"anew\n"


@pytest.fixture
def local_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its logs."""
    monkeypatch.delenv("PINNACE_SERVER", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    write_context("local", ClientConfig(("127.0.0.1:1",), data_dir=tmp_path), file=tmp_path / "config")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "scheduler-0.log").write_text("one\ntwo\n")
    return logs


def test_log_of_a_component(local_cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["logs", "component/scheduler-0", "--tail", "1"]) == 0
    assert capfd.readouterr().out == "two\n"
    assert run_command_line(["logs", "component/scheduler-0", "-f", "--timeout", "10ms"]) == 0
    assert capfd.readouterr().out == "one\ntwo\n"


def test_log_that_is_long_is_not_kept_and_has_a_deadline(
    local_cluster: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put together from pieces, each time from the first: minutes for a few hundred MB, whatever --timeout said."""
    log = local_cluster / "scheduler-0.log"
    log.write_bytes(b"line\n")
    assert run_command_line(["logs", "component/scheduler-0"]) == 0, "modules that are imported do not count"
    capfd.readouterr()
    log.write_bytes(b"line\n" * 4_000_000)
    tracemalloc.start()
    try:
        assert run_command_line(["logs", "component/scheduler-0"]) == 0
        assert tracemalloc.get_traced_memory()[1] < log.stat().st_size / 2
    finally:
        tracemalloc.stop()
    assert len(capfd.readouterr().out) == log.stat().st_size
    monkeypatch.setattr(logs, "CHUNK", 10)
    assert run_command_line(["logs", "component/scheduler-0", "--timeout", "10ms"]) == 6
    assert capfd.readouterr().err.startswith("error: timed out after 0.01 s\n")


def test_components_that_are_not_there(local_cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["logs", "component/schedular-0"]) == 3
    error, hint = capsys.readouterr().err.splitlines()
    assert 'did you mean "scheduler-0"?' in error and hint == "hint: there are scheduler-0"
    assert run_command_line(["logs", "component/../config"]) == 3
    capsys.readouterr()
    write_context("far", ClientConfig(("127.0.0.1:1",)), file=local_cluster.parent / "config")
    assert run_command_line(["logs", "component/scheduler-0"]) == 3
    assert "local clusters only" in capsys.readouterr().err
