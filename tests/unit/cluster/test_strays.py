"""Processes of a cluster whose folder was removed: they are found by their arguments, ended by `down` and named by `up`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import AlreadyRunning
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, initial_state
from tests.unit.kubelet.process.scene import eventually, exists

pytestmark = pytest.mark.processes

SCRIPT = "import subprocess as s; print(s.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True); input()"
"""A program with a child in a separate session."""


class Running:
    """Processes with the arguments of a cluster's processes. Each has a child."""

    def __init__(self) -> None:
        self.left = ExitStack()

    def start(self, *arguments: str) -> tuple[int, int]:
        """The pids of the process and its child."""
        command = [sys.executable, "-c", SCRIPT, *arguments]
        process = self.left.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self.left.callback(process.kill)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        self.left.callback(subprocess.run, ["kill", "-9", str(child)], stderr=subprocess.DEVNULL, check=False)
        return process.pid, child


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    with running.left:
        yield running


def some(running: Running, data: Path) -> dict[int, int]:
    return dict(
        running.start(*arguments)
        for arguments in (
            ("-m", "pinnace.scheduler.main", "--kubeconfig", f"{data}/pki/scheduler.conf"),
            ("--name=etcd-0", f"--data-dir={data}/etcd/etcd-0"),
            ("-m", "pinnace.kubelet.runtime.process.shim", f"{data}/pods/kubelet-0/pods/uid/containers/c/0", "3", "4"),
        )
    )


def nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


async def test_strays_are_ended_with_their_children(tmp_path: Path, running: Running) -> None:
    """Regression: `pinnace down` reported that there was nothing to do, and left the processes."""
    data = tmp_path / "data"
    ours = some(running, data)
    others = dict(
        [
            running.start("-f", f"{data}/etcd/log"),
            running.start("-m", "pinnace.scheduler.main", "--kubeconfig", f"{data}-too/pki/scheduler.conf"),
            running.start("-m", "pinnace.cli.entry", "status", "--data-dir", f"{data}/pki"),
        ]
    )
    assert {process.pid for process in processes.find_processes(data)} == set(ours)
    assert await processes.end_processes(data) == len(ours)
    await eventually(lambda: not any(exists(pid) for pid in (*ours, *ours.values())))
    assert all(exists(pid) for pid in (*others, *others.values())), "other clusters and clients are not affected"
    assert nothing_in(tmp_path), "the removed folder is not created again"
    assert await processes.end_processes(data) == 0


async def test_strays_are_found_by_any_path_of_the_folder(tmp_path: Path, running: Running) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    ours = {*some(running, link / "data"), *some(running, tmp_path / "real" / "data")}
    for data in (link / "data", tmp_path / "real" / "data"):
        assert {process.pid for process in processes.find_processes(data)} == ours


async def test_processes_of_a_cluster_with_a_state_are_not_strays(tmp_path: Path, running: Running) -> None:
    """Another `up` may have started the cluster. Processes of a cluster with a state are not strays."""
    ours = some(running, tmp_path)
    ClusterFolder(tmp_path).write(initial_state(ClusterSpec(data_dir=tmp_path), [], [], 1.0))
    assert await processes.end_processes(tmp_path) == 0
    assert all(map(exists, ours))


async def test_up_names_strays_and_creates_no_folder(tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    pid = min(some(running, data))
    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: EtcdBinary(Path("/bin/false"), (3, 5, 21), False))
    with pytest.raises(AlreadyRunning, match=rf"whose state is gone, still run \(pid .*\b{pid}\b") as refused:
        await Cluster(ClusterSpec(nodes=1, data_dir=data)).up()
    assert refused.value.hint == f"end them with `pinnace down --data-dir {data}`"
    assert nothing_in(tmp_path)
