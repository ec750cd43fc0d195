"""The effects of faults on real processes and files, and their reversal by `end`."""

import asyncio
import errno
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.cluster.spec import ClusterSpec, ProcessPlan
from pinnace.history import records
from pinnace.history.verdict import Findings
from pinnace.scheduler.config import parse_configuration
from pinnace.verification.chaos import host, run
from pinnace.verification.chaos.faults import clients, environment
from pinnace.verification.chaos.faults.base import FaultArea, FaultRequirement
from pinnace.verification.chaos.faults.environment import FULL, FewDescriptors, FullAudit, FullLog, LittleMemory, _ResourceLimit
from pinnace.verification.chaos.faults.table import KINDS, OBSERVING, TOLERATED
from pinnace.verification.chaos.saboteur import ACTION, CONFIG, PROFILE, REPORT, Saboteur
from pinnace.verification.check import liveness
from pinnace.verification.check.index import History

pytestmark = pytest.mark.processes

NAME = "apiserver-0"
SPEC = ClusterSpec(nodes=20, kubelets=2, etcd_members=3)
PROGRAM = """
import sys
kept = []
for command in sys.stdin:
    try:
        if command == "open\\n":
            kept.append([open("/dev/null") for _ in range(8)])
        else:
            kept.append(bytearray(256 << 20))
        print("done", flush=True)
    except (OSError, MemoryError) as error:
        print(type(error).__name__, flush=True)
"""


class FakeWorld:
    """One process, and the attributes of a ClusterUnderTest that faults use."""

    def __init__(self, pid: int, argv: tuple[str, ...] = ("python", "-m", "pinnace.apiserver.main")) -> None:
        plan = ProcessPlan("apiserver", NAME, "a:1", "a:1", argv)
        self.pid = pid
        self.reset: list[tuple[str, str]] = []
        self.started: list[ProcessPlan] = []
        self.excused: list[bool] = []
        self.excused_logs: list[str] = []
        self.recovered = 0
        self.is_ready = True
        self.cluster: Any = SimpleNamespace(
            pid=lambda name: self.pid, state=SimpleNamespace(find_process=lambda name: SimpleNamespace(plan=plan))
        )
        self.links: Any = SimpleNamespace(
            all_links=[(NAME, "etcd-0"), ("kubelet-0", NAME), ("kubelet-0", "apiserver-1")], reset=self._reset
        )

    async def resolve_target(self, target: str) -> str:
        return target

    def allow_errors(self, name: str, *, may_end: bool) -> None:
        self.excused.append(may_end)

    def allow_log_errors(self, name: str, since: float) -> None:
        self.excused_logs.append(name)

    async def end_excuse(self, name: str) -> bool:
        self.recovered += 1
        return False

    async def restart_with_plan(self, name: str, plan: ProcessPlan) -> None:
        self.started.append(plan)

    async def restore_original_plan(self, name: str) -> None:
        self.started.clear()

    async def wait_until_ready(self, name: str) -> bool:
        return self.is_ready

    async def _reset(self, links: list[tuple[str, str]]) -> None:
        self.reset += links


class Child:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.pid = process.pid
        self._process = process

    def ask(self, command: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture
def child() -> Iterator[Child]:
    """A process that opens files or allocates memory on request."""
    command = [sys.executable, "-S", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Child(process)
        process.kill()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="prlimit is Linux'")
@pytest.mark.parametrize(
    ("make", "command", "problem"), [(FewDescriptors, "open", "OSError"), (LittleMemory, "take", "MemoryError")]
)
async def test_resource_limit_applies_until_the_end_and_resets_connections(
    child: Child, make: type[_ResourceLimit], command: str, problem: str
) -> None:
    world = FakeWorld(child.pid)
    assert child.ask(command) == "done"
    fault = make(world, NAME, random.Random())  # type: ignore[arg-type] # a stand-in
    await fault.inject()
    assert child.ask(command) == problem
    assert world.reset == [(NAME, "etcd-0"), ("kubelet-0", NAME)]
    await fault.undo()
    assert child.ask(command) == "done"
    await fault.undo()
    assert world.recovered == 1
    assert world.excused == [make is LittleMemory], "only the memory limit excuses an exit"


async def test_limit_is_not_restored_on_another_process(child: Child) -> None:
    world = FakeWorld(child.pid)
    fault = FewDescriptors(world, NAME, random.Random())  # type: ignore[arg-type] # a stand-in
    await fault.inject()
    limited = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
    world.pid = os.getpid()  # the process was restarted
    await fault.undo()
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == limited


@pytest.mark.skipif(not FULL.exists(), reason="the disk that is always full is Linux'")
async def test_full_log_fault_keeps_the_arguments_of_the_process(tmp_path: Path) -> None:
    said = tmp_path / "said"
    report = f"open({str(said)!r}, 'w').write(f'{{e.errno}} {{sys.argv[1]}}')"
    script = f"import sys\ntry:\n print('x', flush=True)\nexcept OSError as e:\n {report}"
    world = FakeWorld(1, (sys.executable, "-c", script, "own"))
    fault = FullLog(world, NAME, random.Random())  # type: ignore[arg-type] # a stand-in
    await fault.inject()
    (plan,) = world.started
    process = await asyncio.create_subprocess_exec(*plan.argv)
    async with asyncio.timeout(20):
        await process.wait()
    assert said.read_text() == f"{errno.ENOSPC} own"
    await fault.undo()
    assert not world.started


@pytest.mark.parametrize(("ready", "lost"), [(True, 3), (False, 3), (True, 0)])
async def test_full_audit_log_is_judged_by_readiness_and_the_error_counter(
    ready: bool, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(http: str, name: str) -> int:
        return lost

    monkeypatch.setattr(environment.usage, "read_metric", read)
    monkeypatch.setattr(environment, "COUNTED_WITHIN", 0.1)
    monkeypatch.setattr(environment, "POLL", 0.01)
    world = FakeWorld(1)
    world.is_ready = ready
    fault = FullAudit(world, NAME, random.Random())  # type: ignore[arg-type] # a stand-in
    await fault.inject()
    assert world.started[0].argv[-2:] == ("--audit-log-path", "/dev/full")
    read_of = [(reading.target, reading.what, reading.value, reading.least) for reading in fault.readings]
    assert read_of == [(NAME, "ready", float(ready), 1), (NAME, "apiserver_audit_error_total", lost, 1)]


@pytest.mark.skipif(not host.can_mount_tmpfs(), reason="no tmpfs can be mounted")
async def test_filled_disk_refuses_writes_until_it_is_emptied(tmp_path: Path) -> None:
    async with host.mount_disk(tmp_path / "disk") as disk:
        file = disk.path / "data"
        file.write_bytes(bytes(1 << 20))
        await disk.shrink_to_contents()
        assert disk.free == 0
        with pytest.raises(OSError, match="No space left"), file.open("ab") as output:
            output.write(bytes(1 << 16))
        await disk.restore_size()
        with file.open("ab") as output:
            output.write(bytes(1 << 16))
    assert not (tmp_path / "disk").exists()


@pytest.mark.parametrize(
    ("deed", "raised"), [("cancel", asyncio.CancelledError), ("exit", SystemExit), ("generator-exit", GeneratorExit)]
)
def test_saboteur_reports_and_executes_the_action_of_the_pod(tmp_path: Path, deed: str, raised: type[BaseException]) -> None:
    report = tmp_path / "asked"
    annotations = {ACTION: deed, REPORT: str(report)}
    pod = SimpleNamespace(raw=SimpleNamespace(metadata=SimpleNamespace(annotations=annotations)))
    with pytest.raises(raised):
        Saboteur().pre_filter({}, pod, None)
    assert report.exists()
    annotations.clear()
    assert Saboteur().pre_filter({}, pod, None) is None


def test_saboteur_is_only_in_its_own_profile() -> None:
    configuration = parse_configuration(CONFIG)
    assert [profile.scheduler_name for profile in configuration.profiles] == ["default-scheduler", PROFILE]
    assert [any("Saboteur" in name for name in profile.plugins) for profile in configuration.profiles] == [False, True]


def test_fault_of_a_single_etcd_member_hits_all_areas() -> None:
    one = replace(SPEC, etcd_members=1)
    assert KINDS["nospace"].for_cluster(one).area is FaultArea.ALL
    assert KINDS["nospace"].for_cluster(SPEC).area is FaultArea.ETCD
    assert KINDS["kill-leader"].for_cluster(one).area is FaultArea.SCHEDULERS


def test_unsupported_fault_is_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "can_mount_tmpfs", lambda: False)
    monkeypatch.setattr(run, "find_library", lambda: None)
    one = replace(SPEC, etcd_members=1)
    assert run.find_missing_requirement(KINDS["full-disk"], SPEC) == FaultRequirement.DISK
    assert run.find_missing_requirement(KINDS["clock-kubelet"], SPEC) == FaultRequirement.FAKETIME
    assert run.find_missing_requirement(KINDS["etcd-quorum"], one) == FaultRequirement.MEMBERS
    assert run.find_missing_requirement(KINDS["etcd-quorum"], SPEC) == ""
    assert run.find_missing_requirement(KINDS["kill-leader"], one) == ""


def test_observing_and_tolerated_faults_exist() -> None:
    assert set(OBSERVING) | set(TOLERATED) <= KINDS.keys()


@pytest.mark.parametrize(("code", "served", "wrong"), [(1, False, False), (0, True, True), (0, False, True)])
async def test_second_control_plane_must_exit_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, served: bool, wrong: bool
) -> None:
    """The planted defects: it serves, or it exits with code 0."""
    program = f"import time\ntime.sleep({60 if served else 0})\nraise SystemExit({code})"
    options = ("--name", "a", "--listen", "a:1", "--http", "a:1", "--tls-cert-file", "a", "--tls-private-key-file", "a")
    world = FakeWorld(1, (sys.executable, "-c", program, *options, "--client-ca-file", "a"))
    world.cluster.spec = SimpleNamespace(data_dir=tmp_path)
    (tmp_path / "logs").mkdir()

    async def problem(plan: ProcessPlan) -> str | None:
        return None if served else "no answer"

    monkeypatch.setattr(clients, "probe_readiness", problem)
    fault = clients.SecondControlPlane(world, NAME, random.Random())  # type: ignore[arg-type] # a stand-in
    await fault.inject()
    await fault.undo()
    assert world.excused_logs == [f"{NAME}.stranger"], "only the log of the second server is excused"
    history = History(
        [records.FaultRecord(1, "second-control-plane", NAME, 0.0, 1.0)]
        + [
            records.Observation(reading.at, 1, reading.target, reading.what, reading.value, reading.least, reading.most)
            for reading in fault.readings
        ]
    )
    findings = Findings(*liveness.OBSERVATIONS)
    liveness.examine_observations(history, findings)
    assert (findings.make_verdict().status == "violated") == wrong
