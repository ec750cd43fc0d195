"""The log scan reports errors and nothing else."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinnace.runtime import logs
from pinnace.verification.chaos.log_scan import AFTERWARDS, SHOWN, ErrorExcuse, find_log_errors


@pytest.fixture
def write(tmp_path: Path) -> Iterator[logging.Logger]:
    """A logger that writes the lines of a component to scheduler-0.log."""
    logger = logging.Logger("scheduler.part")
    handler = logging.FileHandler(tmp_path / "scheduler-0.log")
    handler.setFormatter(logs._JsonFormatter("scheduler-0"))
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_log_errors_are_reported(write: logging.Logger, tmp_path: Path) -> None:
    write.critical("failed")
    write.error("still busy after %.0f s; cancelled", 10.0)
    first, second = find_log_errors(tmp_path)
    assert first.startswith("scheduler-0 logged an error") and first.endswith("scheduler.part: failed")
    assert "still busy" in second


def test_log_without_level_is_reported(tmp_path: Path) -> None:
    """Without `--logging-format json` the log has text lines, and the scan would find no errors in it."""
    (tmp_path / "scheduler-0.log").write_text("2026-11-22T11:45:59.720Z C scheduler-0 pinnace.scheduler.main: failed\n")
    (tmp_path / "scheduler-1.log").touch()  # the process was killed before its first line
    assert find_log_errors(tmp_path) == [
        "scheduler-0 contains no JSON lines and cannot be checked for errors; see scheduler-0.log"
    ]


def test_other_lines_are_not_reported(write: logging.Logger, tmp_path: Path) -> None:
    write.info("stopping")
    write.warning("E no error")
    write.name = "grpc._cython.cygrpc"
    write.error("ExecuteBatchError raised in core by servicer method")
    (tmp_path / "etcd-0.log").write_text('{"level":"fatal"}\n2026-11-23 06:17:51.366937 E | etcdserver: no leader\n')
    assert find_log_errors(tmp_path) == []


def test_number_of_reported_errors_is_bounded(write: logging.Logger, tmp_path: Path) -> None:
    for _ in range(SHOWN + 1000):
        write.error("x" * 1000)
    log_errors = find_log_errors(tmp_path)
    assert len(log_errors) == SHOWN + 1
    assert max(map(len, log_errors)) < 500
    assert log_errors[-1] == "scheduler-0 logged 1,000 more errors; see scheduler-0.log"


def test_excused_errors_are_not_reported(write: logging.Logger, tmp_path: Path) -> None:
    write.error("no memory")
    now = time.time()
    assert not find_log_errors(tmp_path, [ErrorExcuse("scheduler-0", now - 5, now)])
    assert find_log_errors(tmp_path, [ErrorExcuse("scheduler-1", now - 5, now)]), "another process"
    assert find_log_errors(tmp_path, [ErrorExcuse("scheduler-0", now - 60, now - 2 * AFTERWARDS)]), "long before"
