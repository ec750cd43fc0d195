"""These tests use real processes and the real /proc: a fake would not prove the interface."""

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


def test_process_is_identified_by_pid_start_time_and_boot(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify_process(child.pid)
    assert process is not None and procfs.is_running(process)
    assert not procfs.is_running(replace(process, started=process.started - 1)), "another process with the same pid"
    assert not procfs.is_running(replace(process, boot="another boot"))


def test_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify_process(child.pid)
    assert process is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
    assert procfs.identify_process(child.pid) is None and not procfs.is_running(process) and procfs.read_usage(process) is None


def test_signal_is_not_sent_to_a_reused_pid(child: subprocess.Popen[bytes]) -> None:
    process = procfs.identify_process(child.pid)
    assert process is not None
    assert not procfs.send_signal(replace(process, started=process.started - 1), signal.SIGKILL)
    assert procfs.is_running(process)
    assert procfs.send_signal(process, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert not procfs.send_signal(process, signal.SIGKILL)


def test_process_is_found_by_its_command_line(child: subprocess.Popen[bytes]) -> None:
    assert isinstance(child.args, list)
    result = procfs.find_process([*map(str, child.args)])
    assert result is not None and result.pid == child.pid
    assert procfs.find_process([sys.executable, "-c", "print(flush=True); input() # no such process"]) is None


def test_usage_grows_with_work() -> None:
    own = procfs.identify_process(os.getpid())
    assert own is not None
    before = procfs.read_usage(own)
    assert before is not None and before.peak_rss_mb > 5
    while (after := procfs.read_usage(own)) is not None and after.cpu_s <= before.cpu_s:
        pass  # burns CPU until the usage grows; the timeout of the test bounds it
    assert after is not None


def test_command_name_with_brackets_and_spaces_is_parsed() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert procfs.identify_process(child.pid) is not None
        child.kill()


MEMORY = """
import subprocess, sys
code = "x = bytearray(100 << 20); print(1, flush=True); input()"
child = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=-1, stdout=-1)
child.stdout.readline()
x = bytearray(200 << 20)
del x
print(1, flush=True)
input()
x = bytearray(50 << 20)
print(1, flush=True)
input()
"""


def test_peak_memory_is_measured_since_its_reset_with_descendants() -> None:
    command = [sys.executable, "-S", "-c", MEMORY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        process = procfs.identify_process(child.pid)
        assert process is not None
        before = procfs.peak_memory([process])
        resident = procfs.reset_peaks([process])
        assert 100 < resident < before - 150, "with the child, without the memory that was freed"
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        assert resident + 45 < procfs.peak_memory([process]) < before - 100
        for result in procfs.find_descendants([process]):
            procfs.send_signal(result, signal.SIGKILL)
        child.kill()
