"""A cluster whose processes were all killed, as by a reboot. A start never removes it."""

import os
import signal
import time
from pathlib import Path

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import AlreadyRunning
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import ClusterSpec, initial_state, plan_processes, pods_folder
from pinnace.runtime.procfs import ProcessIdentity
from tests.unit.kubelet.process.scene import FOR_EVER, Scene, exists, shell

NO_ETCD = EtcdBinary(Path("/bin/false"), (3, 5, 21), False)


def died(spec: ClusterSpec) -> Cluster:
    """The state of a cluster whose processes were all killed."""
    cluster = Cluster(spec)
    state = initial_state(
        spec, plan_processes(spec, NO_ETCD, iter(range(1, 100)).__next__), cluster.folder.create(), time.time()
    )
    for record in state.processes:
        state = state.with_process(record.name, ProcessIdentity(1, 1, "another boot"))
    cluster.folder.claim_folder(state)
    return Cluster.load(spec.data_dir)


async def test_up_does_not_replace_a_dead_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `pinnace up` removed the cluster's data without confirmation."""
    spec = ClusterSpec(nodes=1, data_dir=tmp_path / "data")
    died(spec)
    (tmp_path / "data" / "etcd" / "etcd-0").write_text("objects")
    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: NO_ETCD)
    with pytest.raises(AlreadyRunning, match=r"a cluster is in .* already") as refused:
        await Cluster(ClusterSpec(nodes=2, data_dir=tmp_path / "data")).up()
    assert "`pinnace start --data-dir" in refused.value.hint
    assert (tmp_path / "data" / "etcd" / "etcd-0").read_text() == "objects"
    assert Cluster.load(spec.data_dir).spec.nodes == 1


@pytest.mark.processes
async def test_stop_ends_containers_and_keeps_their_files(tmp_path: Path) -> None:
    """Containers outlive their kubelet. The next kubelet finds them, and restarts them by their restart policy."""
    spec = ClusterSpec(nodes=1, data_dir=tmp_path / "data", runtime="process")
    cluster = died(spec)
    scene = Scene(pods_folder(spec.data_dir) / "kubelet-0")
    scene.run(shell(FOR_EVER))
    await scene.running()
    pid, shim = scene.pid(), scene.shim()
    scene.root.close()
    try:
        await cluster.stop()
        assert not exists(pid)
        assert list((pods_folder(spec.data_dir) / "kubelet-0" / "pods").iterdir())
        assert Cluster.load(spec.data_dir).state.stopped
    finally:
        if exists(shim):
            os.kill(shim, signal.SIGKILL)
        await scene.exited()
        await cluster.down()
