"""A cluster that is started where another one has died."""

import os
import signal
import time
from pathlib import Path

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import ClusterSpec, plan, pods_folder
from pinnace.cluster.state import planned
from pinnace.runtime.procfs import Identity
from tests.unit.kubelet.process.scene import FOR_EVER, Scene, exists, shell

NO_ETCD = EtcdBinary(Path("/bin/false"), (3, 5, 21), False)


def died(spec: ClusterSpec) -> None:
    """Leaves the state of a cluster all of whose processes were killed."""
    cluster = Cluster(spec)
    state = planned(spec, plan(spec, NO_ETCD, iter(range(1, 100)).__next__), cluster.folder.create(), time.time())
    for record in state.processes:
        state = state.with_process(record.name, Identity(1, 1, "another boot"))
    cluster.folder.claim(state)


async def test_its_containers_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They outlive their kubelet to be found by the next one; but the new cluster knows none of them."""

    async def start_nothing(cluster: Cluster, *others: object) -> None:
        pass

    spec = ClusterSpec(nodes=1, data_dir=tmp_path / "data", runtime="process")
    died(spec)
    scene = Scene(pods_folder(spec.data_dir) / "kubelet-0")
    scene.run(shell(FOR_EVER))
    await scene.running()
    pid, shim = scene.pid(), scene.shim()
    scene.root.close()

    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: NO_ETCD)
    monkeypatch.setattr(Cluster, "_start_all", start_nothing)
    cluster = Cluster(spec)
    try:
        await cluster.up()
        assert not exists(pid)
        assert cluster.folder.pods() == []
    finally:
        if exists(shim):
            os.kill(shim, signal.SIGKILL)
        await scene.exited()
        await cluster.down()
