"""The log of a shim: its format and its size limit."""

import errno
import os
import re
from pathlib import Path

import pytest

from pinnace.kubelet.runtime.process import shim
from pinnace.kubelet.runtime.process.shim import MAX_LINE, LogWriter


def entries(path: Path) -> list[str]:
    """The entries of the log, without their times."""
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ", line) for line in lines)
    return [line.split(" ", 1)[1] for line in lines]


def test_complete_lines_are_written_and_the_rest_at_the_end(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "log"), 1 << 20, 2)
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"\nerr\n")
    log.write("stdout", b"o\nthree")
    assert entries(tmp_path / "log") == ["stdout F one", "stderr F ", "stderr F err", "stdout F two"]
    log.close()
    assert entries(tmp_path / "log")[-1] == "stdout P three"


def test_long_lines_are_written_in_parts(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "log"), 1 << 20, 2)
    log.write("stdout", b"x" * (2 * MAX_LINE + 1))
    assert [(entry.split()[1], len(entry.split()[2])) for entry in entries(tmp_path / "log")] == [("P", MAX_LINE)] * 2
    log.write("stdout", b"y\n")
    assert entries(tmp_path / "log")[-1] == "stdout F xy"
    log.close()


def test_rotation_bounds_files_and_keeps_the_latest_lines(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "log"), 1000, 3)
    for number in range(200):
        log.write("stdout", b"line %d\n" % number)
    log.close()
    written = [tmp_path / name for name in ("log.2", "log.1", "log")]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert all(path.stat().st_size <= 1000 for path in written)
    numbers = [int(entry.split()[-1]) for path in written for entry in entries(path)]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 40


class Disk:
    """A disk with a limited number of free bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 1 << 30
        self._write = os.write
        self._open = os.open
        monkeypatch.setattr(shim.os, "write", self.write)
        monkeypatch.setattr(shim.os, "open", self.open)

    def write(self, file: int, data: bytes) -> int:
        self._check()
        written = self._write(file, data[: self.free])
        self.free -= written
        return written

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._check()
        return self._open(path, flags, mode)

    def _check(self) -> None:
        if not self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_lines_lost_on_a_full_disk_are_noted_later(tmp_path: Path, disk: Disk) -> None:
    log = LogWriter(str(tmp_path / "log"), 1 << 20, 2)
    disk.free = len("2026-11-22T11:45:59.720367123Z stdout F line 0\n") + 20
    for number in range(3):
        log.write("stdout", b"line %d\nand more\n" % number)
    assert entries(tmp_path / "log") == ["stdout F line 0"]
    disk.free = 1 << 20
    log.write("stdout", b"again\n")
    log.write("stdout", b"and again\n")
    lost = "stderr F 5 lines were lost: no space left on device"
    assert entries(tmp_path / "log")[1:] == [lost, "stdout F again", "stdout F and again"]
    log.close()


def test_lost_lines_are_noted_at_the_end(tmp_path: Path, disk: Disk) -> None:
    log = LogWriter(str(tmp_path / "log"), 1 << 20, 2)
    disk.free = 0
    log.write("stdout", b"one\n")
    disk.free = 1 << 20
    log.close()
    assert entries(tmp_path / "log") == ["stderr F 1 line was lost: no space left on device"]


def test_failed_rotation_keeps_the_older_files(tmp_path: Path, disk: Disk) -> None:
    log = LogWriter(str(tmp_path / "log"), 100, 2)
    for number in range(3):
        log.write("stdout", b"line %d\n" % number)
    disk.free = 0
    for _ in range(5):
        log.write("stdout", b"lost\n")
    assert (entries(tmp_path / "log.1"), entries(tmp_path / "log")) == (
        ["stdout F line 0", "stdout F line 1"],
        ["stdout F line 2"],
    )
    disk.free = 1 << 20
    log.write("stdout", b"again\n")
    log.close()
    lines = [entry for name in ("log.1", "log") for entry in entries(tmp_path / name)]
    assert lines[-2:] == ["stderr F 5 lines were lost: no space left on device", "stdout F again"]
