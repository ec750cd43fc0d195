"""Start and end of small processes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinnace.cluster import processes
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import ProcessPlan, ProcessRecord
from pinnace.runtime import procfs

pytestmark = pytest.mark.processes

OBEYS = "import signal; TERM = [signal.SIGTERM]; signal.pthread_sigmask(signal.SIG_BLOCK, TERM); {ready}; signal.sigwait(TERM)"
"""SIGTERM is blocked before `ready`, so that it cannot be lost before `sigwait`, unlike with a handler and `pause`."""
RESISTS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ready}; signal.pause()"
TELLS = f"import os; {OBEYS}; print(os.path.exists('/proc/{{other}}/exe'), flush=True)"
READY = "print('ready', flush=True)"
Start = Callable[..., ProcessRecord]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script as a component, and return once it is ready."""
    children: list[subprocess.Popen[bytes]] = []

    def start_one(component: str, script: str, **values: object) -> ProcessRecord:
        plan = a_plan(component, script.format(ready=READY, **values))
        log = tmp_path / f"{component}.log"
        children.append(processes.spawn_process(plan, log))
        while b"ready" not in log.read_bytes():
            assert children[-1].poll() is None, log.read_text()
        return ProcessRecord(plan, procfs.identify_process(children[-1].pid))

    yield start_one
    for child in children:
        child.kill()
        child.wait()


def a_plan(component: str, script: str) -> ProcessPlan:
    address = f"127.0.0.1:{PortAllocator().next()}"
    return ProcessPlan(component, f"{component}-0", address, address, (sys.executable, "-c", script))


async def test_process_that_handles_sigterm_is_not_killed(start: Start) -> None:
    record = start("scheduler", OBEYS)
    assert await processes.stop_processes([record], grace=10) == []
    assert processes.find_running(record) is None


async def test_process_that_ignores_sigterm_is_killed_and_named(start: Start) -> None:
    record = start("scheduler", RESISTS)
    assert await processes.stop_processes([record], grace=0.1) == ["scheduler-0"]
    assert processes.find_running(record) is None


async def test_zero_grace_kills_immediately(start: Start) -> None:
    record = start("scheduler", RESISTS)
    assert await processes.stop_processes([record], grace=0) == ["scheduler-0"]
    assert processes.find_running(record) is None


async def test_suspended_process_is_continued_to_end(start: Start) -> None:
    record = start("scheduler", OBEYS)
    assert record.process
    procfs.send_signal(record.process, signal.SIGSTOP)
    assert await processes.stop_processes([record], grace=10) == []


async def test_api_servers_serve_until_the_schedulers_have_ended(start: Start, tmp_path: Path) -> None:
    scheduler = start("scheduler", OBEYS)
    apiserver = start("apiserver", TELLS, other=scheduler.pid)
    await processes.stop_processes([apiserver, scheduler], grace=10)
    assert (tmp_path / "apiserver.log").read_text().split() == ["ready", "False"]


async def test_ended_process_needs_no_stop(start: Start) -> None:
    record = start("scheduler", OBEYS)
    assert await processes.stop_processes([record], grace=10) == await processes.stop_processes([record], grace=10) == []


def test_process_has_a_separate_session(start: Start) -> None:
    record = start("scheduler", OBEYS)
    assert os.getsid(record.pid) == record.pid != os.getsid(0)


def test_process_without_a_recorded_start_is_found(start: Start) -> None:
    record = start("scheduler", OBEYS)
    assert processes.find_running(ProcessRecord(record.plan)) == record.process


def test_address_in_use_prevents_the_start_and_is_named(tmp_path: Path) -> None:
    plan = a_plan("scheduler", OBEYS)
    with socket.create_server(("127.0.0.1", int(plan.address.partition(":")[2]))), pytest.raises(ClusterError) as refused:
        processes.spawn_process(plan, tmp_path / "log")
    assert plan.address in refused.value.message and "scheduler-0" in refused.value.message


def test_missing_program_is_named(tmp_path: Path) -> None:
    address = f"127.0.0.1:{PortAllocator().next()}"
    with pytest.raises(ClusterError, match="/no/such/program"):
        processes.spawn_process(ProcessPlan("etcd", "etcd-0", address, address, ("/no/such/program",)), tmp_path / "log")
