import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.cli.local.running import Steps
from pinnace.cli.settings import Settings
from pinnace.cli.verbs.up import _stop_cluster, follow_processes, list_process_changes
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, ClusterState, ProcessPlan, initial_state, pki_folder
from pinnace.cluster.view import ProcessStatus
from pinnace.runtime import procfs
from pinnace.runtime.files import remove_tree
from pinnace.runtime.procfs import ProcessIdentity

pytestmark = pytest.mark.processes

ZERO = ProcessStatus("scheduler", "scheduler-0", 10, "127.0.0.1:1", "127.0.0.1:91", ready=True, leader=True)
ONE = ProcessStatus("scheduler", "scheduler-1", 11, "127.0.0.1:2", "127.0.0.1:92", ready=True, leader=False)


def test_unchanged_state_prints_nothing() -> None:
    assert list_process_changes([ZERO, ONE], [ZERO, ONE]) == []


def test_failover_is_printed_step_by_step() -> None:
    dead = replace(ZERO, pid=0, ready=False, leader=False, problem="not running")
    leads = replace(ONE, leader=True)
    assert list_process_changes([ZERO, ONE], [dead, ONE]) == [
        "scheduler-0 has ended (was pid 10)",
        "no leader (before: scheduler-0)",
    ]
    assert list_process_changes([dead, ONE], [dead, leads]) == ["scheduler-1 leads"]
    assert list_process_changes([dead, leads], [replace(ZERO, pid=20, leader=False), leads]) == [
        "scheduler-0 has been started (pid 20)"
    ]


def test_leadership_change_between_two_polls_names_both_leaders() -> None:
    assert list_process_changes([ZERO, ONE], [replace(ZERO, leader=False), replace(ONE, leader=True)]) == [
        "scheduler-1 leads (before: scheduler-0)"
    ]


def test_readiness_is_printed_with_its_reason() -> None:
    ill = replace(ONE, ready=False, problem="informers: behind")
    assert list_process_changes([ZERO, ONE], [ZERO, ill]) == ["scheduler-1 is not ready: informers: behind"]
    assert list_process_changes([ZERO, ill], [ZERO, ONE]) == ["scheduler-1 is ready"]


def test_output_distinguishes_scheduler_and_controller_elections() -> None:
    controllers = ProcessStatus("controllers", "controllers-0", 12, "127.0.0.1:3", "127.0.0.1:93", ready=True, leader=True)
    before = [ZERO, ONE, controllers]
    assert list_process_changes(before, [replace(ZERO, leader=False), ONE, controllers]) == ["no leader (before: scheduler-0)"]
    assert list_process_changes(before, [ZERO, ONE, replace(controllers, leader=False)]) == [
        "no leader (before: controllers-0)"
    ]


def a_state(folder: Path, name: str, created: float) -> ClusterState:
    plans = [ProcessPlan("apiserver", item, "127.0.0.1:1", "127.0.0.1:1", ("sh",)) for item in ("apiserver-0", name)]
    return initial_state(ClusterSpec(data_dir=folder), plans, [], created)


@pytest.fixture
def replaced(tmp_path: Path) -> Cluster:
    """A cluster whose folder was claimed by another cluster after it ended."""
    ClusterFolder(tmp_path).claim_folder(a_state(tmp_path, "apiserver-1", 1.0))
    certificates.create_certificates(pki_folder(tmp_path), ["127.0.0.1:1"], {})
    cluster = Cluster.load(tmp_path)
    ClusterFolder(tmp_path).write(a_state(tmp_path, "apiserver-2", 2.0))
    return cluster


async def test_follow_ends_if_the_certificates_are_removed(replaced: Cluster) -> None:
    """Regression: during the removal of the folder, an error was reported as a bug."""
    remove_tree(replaced.folder.path)
    await follow_processes(replaced, [], str)
    with pytest.raises(FolderError, match="certificates"):
        await replaced.status()


async def test_follow_ends_if_another_cluster_replaces_it(replaced: Cluster) -> None:
    printed: list[str] = []
    async with asyncio.timeout(10):
        await follow_processes(replaced, [replace(ZERO, component="apiserver", name="apiserver-0")], printed.append)
    assert printed == []


@pytest.fixture
def its_process() -> Iterator[ProcessIdentity]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        result = procfs.identify_process(child.pid)
        assert result is not None
        yield result
        child.kill()


async def test_replacing_cluster_is_neither_stopped_nor_restarted(replaced: Cluster, its_process: ProcessIdentity) -> None:
    folder = ClusterFolder(replaced.spec.data_dir)
    other = a_state(folder.path, "apiserver-2", 2.0).with_process("apiserver-0", its_process)
    folder.write(other)
    settings = Settings()
    with Steps(settings) as steps:
        assert not await _stop_cluster(settings, replaced, steps)
    for act in (replaced.down, lambda: replaced.restart(["apiserver-0"])):
        with pytest.raises(NoCluster, match="another cluster"):
            await act()
    assert procfs.is_running(its_process) and folder.read() == other
