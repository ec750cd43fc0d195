"""The log that a shim writes: its format, and its bound."""

import re
from pathlib import Path

from kubelet.process.crilog import MAX_LINE, LogWriter


def entries(path: Path) -> list[str]:
    """Without their times."""
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ", line) for line in lines)
    return [line.split(" ", 1)[1] for line in lines]


def test_lines_are_written_whole_and_what_is_left_at_the_end(tmp_path: Path) -> None:
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
    assert [(each.split()[1], len(each.split()[2])) for each in entries(tmp_path / "log")] == [("P", MAX_LINE)] * 2
    log.write("stdout", b"y\n")
    assert entries(tmp_path / "log")[-1] == "stdout F xy"
    log.close()


def test_files_and_their_size_are_bounded_and_the_latest_lines_are_kept(tmp_path: Path) -> None:
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
