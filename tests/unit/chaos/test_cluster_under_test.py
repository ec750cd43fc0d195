"""Unexpected exits are reported, even if a fault hits the same process."""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.cluster.errors import ClusterError
from pinnace.cluster.spec import ProcessPlan
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.processes import Kill, Terminate

NAME = "apiserver-0"


PLAN = ProcessPlan("apiserver", NAME, "a:1", "a:1", ("python", "-m", "pinnace.apiserver.main"))


class FakeCluster:
    """One process, which runs or has ended with an exit code."""

    def __init__(self, logs: Path) -> None:
        self.folder = SimpleNamespace(log=lambda name: logs / f"{name}.log")
        record = SimpleNamespace(name=NAME, process=None, plan=PLAN)
        self.state: Any = SimpleNamespace(processes=[record], find_process=lambda name: record)
        self.code: int | None = None
        self.answers = -signal.SIGKILL
        """The exit code after a signal."""

    def change_plan(self, plan: ProcessPlan) -> None:
        self.state.find_process(NAME).plan = plan

    def pid(self, name: str) -> int:
        return 0 if self.code is not None else 7

    def kill(self, name: str, number: signal.Signals) -> None:
        if self.code is not None:
            raise ClusterError(f"{name} does not run")
        self.code = self.answers

    def stopped_processes(self) -> list[str]:
        return [] if self.code is None else [NAME]

    def exit_code(self, name: str) -> int | None:
        return self.code

    def start_without_waiting(self, names: list[str]) -> None:
        self.code = None


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    return FakeCluster(tmp_path)


@pytest.fixture
def world(cluster: FakeCluster) -> ClusterUnderTest:
    return ClusterUnderTest(cluster, None, None, None, None, lambda: 0)  # type: ignore[arg-type] # what it does not use


async def test_crash_before_a_fault_is_reported(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    cluster.code = 1
    fault = Kill(world, NAME, random.Random())
    with pytest.raises(NotPossible):
        await fault.inject()
    await fault.undo()
    assert world.find_crashed_processes() == [(NAME, 1)]


async def test_process_ended_by_a_fault_has_not_crashed(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    fault = Kill(world, NAME, random.Random())
    await fault.inject()
    assert cluster.stopped_processes() and not world.find_crashed_processes()
    await fault.undo()
    assert not cluster.stopped_processes() and not world.unstoppable_processes


@pytest.mark.parametrize("code", [0, -signal.SIGTERM, -signal.SIGKILL])
async def test_requested_exit_is_no_crash(world: ClusterUnderTest, cluster: FakeCluster, code: int) -> None:
    cluster.answers = code
    fault = Terminate(world, NAME, random.Random())
    await fault.inject()
    await fault.undo()
    assert not world.unstoppable_processes


@pytest.mark.parametrize("code", [1, -signal.SIGSEGV])
async def test_errors_during_teardown_are_reported(world: ClusterUnderTest, cluster: FakeCluster, code: int) -> None:
    cluster.answers = code
    fault = Terminate(world, NAME, random.Random())
    await fault.inject()
    await fault.undo()
    assert world.unstoppable_processes == [f"{NAME} failed while it was stopping: exit code {code}; see its log"]


async def test_excused_exit_is_no_crash_and_recover_restarts_the_process(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    world.allow_errors(NAME, may_end=True)
    cluster.code = -signal.SIGABRT
    assert not world.find_crashed_processes()
    assert await world.end_excuse(NAME)
    assert not cluster.stopped_processes()
    (excuse,) = world.excuses
    assert excuse.process == NAME and excuse.began <= excuse.ended


async def test_excuse_for_log_errors_does_not_excuse_an_exit(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    world.allow_errors(NAME, may_end=False)
    cluster.code = 1
    assert world.find_crashed_processes() == [(NAME, 1)]


async def test_excuse_covers_an_exit_that_is_detected_later(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    world.allow_errors(NAME, may_end=True)
    assert not await world.end_excuse(NAME), "the process still runs"
    cluster.code = 1
    (excuse,) = world.excuses
    log = cluster.folder.log(NAME)
    log.touch()
    os.utime(log, (excuse.ended, excuse.ended))
    assert not world.find_crashed_processes() and world.find_excused_exits_to_restart() == [NAME]
    os.utime(log, (excuse.ended + 60, excuse.ended + 60))
    assert world.find_crashed_processes() == [(NAME, 1)] and not world.find_excused_exits_to_restart()


async def test_excuses_of_two_faults_end_separately(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    world.allow_errors(NAME, may_end=True)
    world.allow_errors(NAME, may_end=True)
    await world.end_excuse(NAME)
    cluster.code = 1
    assert not world.find_crashed_processes() and not world.find_excused_exits_to_restart(), (
        "the second fault restarts the process"
    )
    assert await world.end_excuse(NAME)
    assert not cluster.stopped_processes()


async def test_process_runs_with_another_plan_until_it_is_restored(world: ClusterUnderTest, cluster: FakeCluster) -> None:
    other = replace(PLAN, argv=(*PLAN.argv, "--audit-log-path", "/dev/full"))
    await world.restart_with_plan(NAME, other)
    assert (
        cluster.state.find_process(NAME).plan == other
        and not cluster.stopped_processes()
        and not world.find_crashed_processes()
    )
    await world.restore_original_plan(NAME)
    assert (
        cluster.state.find_process(NAME).plan == PLAN and not cluster.stopped_processes() and not world.find_crashed_processes()
    )
    await world.restore_original_plan(NAME)  # already restored
    assert not world.unstoppable_processes


async def test_exit_under_another_plan_is_reported_and_restarted_as_before(
    world: ClusterUnderTest, cluster: FakeCluster
) -> None:
    await world.restart_with_plan(NAME, replace(PLAN, argv=("other",)))
    cluster.code = 1
    await world.restore_original_plan(NAME)
    assert cluster.state.find_process(NAME).plan == PLAN and not cluster.stopped_processes()
    assert world.unstoppable_processes == [f"{NAME} failed while it was stopping: exit code 1; see its log"]
