"""Starting again what has ended: what is chosen, and where people are told that they can."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import reach
from pinnace.cli.verbs.restart import chosen
from pinnace.client.config import ClientConfig
from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import AlreadyRunning, FolderError, NoCluster
from pinnace.cluster.folder import Folder
from pinnace.cluster.ports import Ports
from pinnace.cluster.spec import ClusterSpec, Plan
from pinnace.cluster.state import ClusterState, planned
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Identity

DEAD = Identity(1, 1, "an earlier boot")
PLANS = [Plan("scheduler", f"scheduler-{i}", "127.0.0.1:1", "127.0.0.1:1", ("sh",)) for i in range(2)]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Of two processes: scheduler-0 runs (it is this one), scheduler-1 is dead."""
    myself = procfs.identify(os.getpid())
    assert myself is not None
    state = planned(ClusterSpec(data_dir=tmp_path), PLANS, [], 0.0)
    Folder(tmp_path).write(state.with_process("scheduler-0", myself).with_process("scheduler-1", DEAD))
    return Cluster.load(tmp_path)


def test_what_has_ended_is_started_unless_it_is_named(cluster: Cluster) -> None:
    assert chosen(cluster, []) == ["scheduler-1"]
    assert chosen(cluster, ["scheduler-1", "scheduler-1"]) == ["scheduler-1"]


@pytest.mark.parametrize(("name", "code"), [("scheduler-0", ExitCode.CONFLICT), ("scheduler-7", ExitCode.NOT_FOUND)])
def test_what_runs_or_is_not_there_is_refused(cluster: Cluster, name: str, code: ExitCode) -> None:
    with pytest.raises(Failure) as refused:
        chosen(cluster, [name])
    assert refused.value.report.code == code and refused.value.report.hint


async def test_a_cluster_that_was_taken_down_meanwhile_is_not_started(cluster: Cluster) -> None:
    Folder(cluster.spec.data_dir).remove()
    with pytest.raises(NoCluster):
        await cluster.restart(["scheduler-1"])
    assert not list(cluster.spec.data_dir.iterdir())


async def test_up_names_both_ways_out_of_a_cluster_that_runs_in_part(cluster: Cluster) -> None:
    with pytest.raises(AlreadyRunning) as refused:
        await Cluster(ClusterSpec(data_dir=cluster.spec.data_dir)).up()
    assert refused.value.message.startswith(f"a cluster of 1 process (pid {os.getpid()}) runs in")
    assert "`pinnace restart --data-dir" in refused.value.hint and "`pinnace down --data-dir" in refused.value.hint


def test_no_answer_from_a_local_cluster_names_restart(tmp_path: Path) -> None:
    server = Plan("apiserver", "apiserver-0", "127.0.0.1:1", "127.0.0.1:1", ("sh",))
    Folder(tmp_path).write(planned(ClusterSpec(data_dir=tmp_path), [server], [], 0.0))

    def hint(*servers: str) -> str:
        with pytest.raises(Failure) as refused:
            asyncio.run(reach(ClientConfig(servers, data_dir=tmp_path)))
        return refused.value.report.hint

    assert f"`pinnace restart --data-dir {tmp_path}`" in hint("127.0.0.1:1")
    assert "`pinnace up`" in hint("127.0.0.1:2"), "none of its API servers was asked"
    Folder(tmp_path).remove()
    assert "`pinnace up`" in hint("127.0.0.1:1")


async def test_what_starts_again_is_of_the_installation_that_starts_it(tmp_path: Path) -> None:
    """After an upgrade, or from another environment. etcd is none of its programs, and stays the one that there was."""
    path, elsewhere = tmp_path / "cluster", "/elsewhere/bin/python"
    addresses = iter(Ports().next, None)
    plans = [
        Plan(component, f"{component}-0", f"127.0.0.1:{next(addresses)}", f"127.0.0.1:{next(addresses)}", argv)
        for component, argv in {
            "etcd": (sys.executable, "-c", "import time; time.sleep(60)", "etcd", str(path)),
            "scheduler": (elsewhere, "-c", "import time; time.sleep(60)", "scheduler", str(path)),
        }.items()
    ]
    made = Folder(path).create()
    state = planned(ClusterSpec(data_dir=path), plans, made, 0.0)
    Folder(path).claim(state.with_process("etcd-0", DEAD).with_process("scheduler-0", DEAD))
    cluster = Cluster.load(path)
    try:
        cluster.revive(["etcd-0", "scheduler-0"])
        records = {record.component: record for record in Cluster.load(path).state.processes}
        assert records["etcd"].plan == plans[0]
        assert records["scheduler"].plan == replace(plans[1], argv=(sys.executable, *plans[1].argv[1:]))
        for name, record in records.items():
            assert procfs.find(record.plan.argv) == record.process, name
    finally:
        await cluster.down()


async def test_what_was_started_is_found_though_it_could_not_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster"
    address = f"127.0.0.1:{Ports().next()}"
    plan = Plan("etcd", "etcd-0", address, address, (sys.executable, "-c", "import time; time.sleep(60)", str(path)))
    made = Folder(path).create()
    Folder(path).claim(planned(ClusterSpec(data_dir=path), [plan], made, 0.0).with_process("etcd-0", DEAD))
    children: list[subprocess.Popen[bytes]] = []
    spawn = processes.spawn

    def fill_the_disk(plan: Plan, log: Path) -> subprocess.Popen[bytes]:
        children.append(spawn(plan, log))
        monkeypatch.setattr(Folder, "write", full)
        return children[-1]

    def full(folder: Folder, state: ClusterState) -> None:
        (path / "cluster.tmp").write_text("{")
        raise FolderError("no space left on device")

    monkeypatch.setattr(processes, "spawn", fill_the_disk)
    try:
        with pytest.raises(FolderError):
            Cluster.load(path).revive(["etcd-0"])
        assert Cluster.load(path).pid("etcd-0") == children[0].pid
        await Cluster.load(path).down()
        assert procfs.identify(children[0].pid) is None, "it was killed"
        assert not path.exists()
    finally:
        children[0].kill()
        children[0].wait()
