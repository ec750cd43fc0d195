"""Finding the scheduler that leads, and reading what it shows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinnace.api.records import BoundedList, CacheDump, Dump, QueueDump, to_json
from pinnace.cli.local import schedulers
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs.sched import queue_lines
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import SCHEDULER, ClusterSpec, ProcessPlan, initial_state
from pinnace.runtime.http import StatusServer
from tests.says import says


@asynccontextmanager
async def scheduler(name: str, *, leading: bool) -> AsyncIterator[str]:
    shown = to_json(QueueDump(name, leading, {}, {}, BoundedList(0, [])))
    server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop(), {QueueDump.path: lambda: shown})
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


def http(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def ask(http: str, data_dir: Path, kind: type[Dump] = QueueDump) -> Dump:
    return await asyncio.to_thread(schedulers.ask_scheduler, kind, http, data_dir)


def cluster_of(data_dir: Path, *addresses: str) -> None:
    plans = [ProcessPlan(SCHEDULER, f"scheduler-{i}", address, address, ()) for i, address in enumerate(addresses)]
    ClusterFolder(data_dir).write(initial_state(ClusterSpec(data_dir=data_dir), plans, (), 0.0))


async def test_leader_of_a_local_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = f"127.0.0.1:{PortAllocator().next()}"
    async with scheduler("scheduler-1", leading=False) as standby, scheduler("scheduler-2", leading=True) as leader:
        cluster_of(tmp_path, dead, standby, leader)
        assert (await ask("", tmp_path)).name == "scheduler-2"
    assert capsys.readouterr().err == ""


async def test_standby_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with scheduler("scheduler-1", leading=False) as standby:
        assert (await ask(standby, tmp_path)).name == "scheduler-1"
    assert (
        capsys.readouterr().err == "note: scheduler-1 is on standby: this is the state with which it would become the leader\n"
    )


async def test_scheduler_that_cannot_be_asked_is_a_failure(tmp_path: Path) -> None:
    async def failure(http: str, kind: type[Dump] = QueueDump) -> tuple[str, ExitCode]:
        with pytest.raises(Failure) as failed:
            await ask(http, tmp_path, kind)
        return failed.value.report.lines[0], failed.value.report.code

    assert await failure("nowhere") == ('--http: "nowhere" is not HOST:PORT', ExitCode.USAGE)
    assert await failure("") == (f"no schedulers of a local cluster found in {tmp_path}", ExitCode.NOT_FOUND)
    dead = f"127.0.0.1:{PortAllocator().next()}"
    assert await failure(dead) == (f"no scheduler responds at {dead}: connection refused", ExitCode.UNAVAILABLE)
    async with scheduler("apiserver-0", leading=True) as other:
        missing = f"{other} responds to /debug/cache with 404 Not Found"
        assert await failure(other, CacheDump) == (missing, ExitCode.UNAVAILABLE)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\n{}",
        http(b"\xff"),
        http(b"ok"),
        http(b"[]"),
        http(b"[" * 100_000),
        http(b'{"name": "s", "leading": true}'),
    ],
    ids=["gRPC", "cut off", "no text", "no JSON", "a list", "too deep", "another page"],
)
async def test_answer_of_another_program_is_a_failure(answer: bytes, tmp_path: Path) -> None:
    async with says(answer) as other:
        with pytest.raises(Failure) as failed:
            await ask(other, tmp_path)
    assert failed.value.report.lines[0].startswith(f"{other} does not respond like a scheduler")


async def test_answer_of_another_shape(tmp_path: Path) -> None:
    """It is said what is wrong with it: it may be a scheduler of another version."""
    shown = to_json(QueueDump("s", True, {}, {}, BoundedList(0, [])))
    async with says(http(json.dumps(shown | {"counts": []}).encode())) as other:
        with pytest.raises(Failure) as failed:
            await ask(other, tmp_path)
    assert failed.value.report.lines[0] == f"{other} does not respond like a scheduler: counts: expected an object"


async def test_later_version(tmp_path: Path) -> None:
    """It shows more, and has a place of which nothing is known here."""
    pod = {"pod": "default/a", "priority": 0, "attempts": 0, "seconds": 0.0, "refusedBy": [], "mood": "good"}
    shown = to_json(QueueDump("s", True, {"active": 1, "limbo": 2}, {}, BoundedList(0, [])))
    shown |= {"places": {"active": [pod], "limbo": [pod]}, "weather": "fair"}
    async with says(http(json.dumps(shown).encode())) as later:
        result = await ask(later, tmp_path)
    assert isinstance(result, QueueDump)
    *_, row, more = queue_lines(result)
    assert row.startswith("default/a   active") and more == "... and 2 more"


def test_read_scheduler_options_returns_the_options_of_the_running_schedulers(tmp_path: Path) -> None:
    assert schedulers.read_scheduler_options(tmp_path) == schedulers.SchedulerOptions()
    argv = ("python", "-m", "pinnace.scheduler.main", "--config", "/c/scheduler.yaml", "--plugin", "a:B", "--plugin", "/p.py:C")
    plan = ProcessPlan(SCHEDULER, "scheduler-0", "127.0.0.1:1", "127.0.0.1:1", argv, (("PYTHONPATH", "/c/modules"),))
    ClusterFolder(tmp_path).write(initial_state(ClusterSpec(data_dir=tmp_path), [plan], (), 0.0))
    assert schedulers.read_scheduler_options(tmp_path) == schedulers.SchedulerOptions(
        "/c/scheduler.yaml", ["a:B", "/p.py:C"], str(tmp_path), "/c/modules"
    )
