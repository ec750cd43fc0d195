"""The logs of a local cluster: found through the client configuration, whole or their end, and followed."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from pinnace.cli import logfile
from pinnace.cli.main import run
from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs.logs import look_elsewhere
from pinnace.client.config import ClientConfig, write_context

PATIENCE = 5.0


@pytest.mark.parametrize(("lines", "wanted"), [(None, b"1\n2\n3"), (0, b""), (1, b"3"), (2, b"2\n3"), (99, b"1\n2\n3")])
def test_tail(tmp_path: Path, lines: int | None, wanted: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"1\n2\n3")
    assert logfile.tail(path, lines) == (wanted, 5)


def test_tail_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(b"%08d\n" % number for number in range(50_000)))
    assert logfile.tail(path, 10_000)[0].splitlines()[0] == b"00040000"


async def test_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "POLL", 0.001)
    path = tmp_path / "x.log"
    path.write_bytes(b"old\n")
    async with asyncio.timeout(PATIENCE), aclosing(logfile.follow(path, 4)) as additions:
        with path.open("ab") as file:
            file.write(b"new\n")
        assert await anext(additions) == b"new\n"
        path.write_bytes(b"anew\n")  # shorter: begun again
        assert await anext(additions) == b"anew\n"


@pytest.fixture
def local_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its logs."""
    monkeypatch.delenv("PINNACE_SERVER", raising=False)
    monkeypatch.setenv("PINNACE_CONFIG", str(tmp_path / "config"))
    write_context("local", ClientConfig(("127.0.0.1:1",), data_dir=tmp_path))
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "scheduler-0.log").write_text("one\ntwo\n")
    return logs


def test_the_log_of_a_component(local_cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", "component/scheduler-0", "--tail", "1"]) == 0
    assert capfd.readouterr().out == "two\n"
    assert run(["logs", "component/scheduler-0", "-f", "--timeout", "10ms"]) == 0
    assert capfd.readouterr().out == "one\ntwo\n"


def test_the_name_of_a_component_is_not_mistaken_for_a_pod(local_cluster: Path) -> None:
    with pytest.raises(Failure) as failed:
        look_elsewhere(local_cluster.parent, "scheduler-0")
    assert failed.value.report.code == 3 and "`pinnace logs component/scheduler-0`" in failed.value.report.hint
    look_elsewhere(local_cluster.parent, "scheduler-9")
    look_elsewhere(None, "scheduler-0")


def test_components_that_are_not_there(local_cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", "component/schedular-0"]) == 3
    error, hint = capsys.readouterr().err.splitlines()
    assert 'did you mean "scheduler-0"?' in error and hint == "hint: there are scheduler-0"
    assert run(["logs", "component/../config"]) == 2
    capsys.readouterr()
    write_context("far", ClientConfig(("127.0.0.1:1",)))
    assert run(["logs", "component/scheduler-0"]) == 3
    assert "no local cluster" in capsys.readouterr().err
