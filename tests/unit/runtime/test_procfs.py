"""Run against the processes of this machine: /proc is the interface, and a fake of it would prove nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pinnace.runtime import procfs

pytestmark = pytest.mark.processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_known_by_pid_and_start(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify(child.pid)
    assert process is not None and procfs.alive(process)
    assert not procfs.alive(replace(process, started=process.started - 1)), "another process with the same pid"
    assert not procfs.alive(replace(process, boot="another boot"))


def test_a_zombie_does_not_run(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify(child.pid)
    assert process is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
    assert procfs.identify(child.pid) is None and not procfs.alive(process) and procfs.usage(process) is None


def test_a_signal_never_reaches_a_process_that_has_the_pid_of_another(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify(child.pid)
    assert process is not None
    assert not procfs.send_signal(replace(process, started=process.started - 1), signal.SIGKILL)
    assert procfs.alive(process)
    assert procfs.send_signal(process, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert not procfs.send_signal(process, signal.SIGKILL)


def test_a_process_is_found_by_its_command_line(child: subprocess.Popen[bytes]) -> None:
    assert isinstance(child.args, list)
    found = procfs.find([*map(str, child.args)])
    assert found is not None and found.pid == child.pid
    assert procfs.find([sys.executable, "-c", "print(flush=True); input() # no such process"]) is None


def test_usage_grows_with_work() -> None:
    own = procfs.identify(os.getpid())
    assert own is not None
    before = procfs.usage(own)
    assert before is not None and before.peak_rss_mb > 5
    while (after := procfs.usage(own)) is not None and after.cpu_s <= before.cpu_s:
        pass  # burns CPU until it shows; the test's own timeout ends it otherwise
    assert after is not None


def test_a_command_name_with_brackets_and_spaces_is_read_well() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert procfs.identify(child.pid) is not None
        child.kill()
