"""A cluster whose processes have all been killed, as by a reboot: a start never removes it."""

import os
import signal
import time
from pathlib import Path

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import AlreadyRunning
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import ClusterSpec, plan, planned, pods_folder
from pinnace.runtime.procfs import Identity
from tests.unit.kubelet.process.scene import FOR_EVER, Scene, exists, shell

NO_ETCD = EtcdBinary(Path("/bin/false"), (3, 5, 21), False)


def died(spec: ClusterSpec) -> Cluster:
    """Leaves the state of a cluster all of whose processes were killed."""
    cluster = Cluster(spec)
    state = planned(spec, plan(spec, NO_ETCD, iter(range(1, 100)).__next__), cluster.folder.create(), time.time())
    for record in state.processes:
        state = state.with_process(record.name, Identity(1, 1, "another boot"))
    cluster.folder.claim(state)
    return Cluster.load(spec.data_dir)


async def test_another_one_is_not_started_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pinnace up` removed all that it had, without a question."""
    spec = ClusterSpec(nodes=1, data_dir=tmp_path / "data")
    died(spec)
    (tmp_path / "data" / "etcd" / "etcd-0").write_text("objects")
    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: NO_ETCD)
    with pytest.raises(AlreadyRunning, match=r"a cluster is in .* already") as refused:
        await Cluster(ClusterSpec(nodes=2, data_dir=tmp_path / "data")).up()
    assert "`pinnace start --data-dir" in refused.value.hint
    assert (tmp_path / "data" / "etcd" / "etcd-0").read_text() == "objects"
    assert Cluster.load(spec.data_dir).spec.nodes == 1


async def test_stop_ends_its_containers_and_keeps_what_they_have_left(tmp_path: Path) -> None:
    """They outlive their kubelet to be found by the next one, which starts them again by their restart policy."""
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
