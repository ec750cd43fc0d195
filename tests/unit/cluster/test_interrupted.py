"""Clean-up of a cluster that is interrupted by another Ctrl-C. Only this process knows the cluster, so nothing may be left.
The processes are real, and ignore SIGTERM.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinnace.cli.local import running
from pinnace.cli.local.running import Steps
from pinnace.cli.settings import Settings
from pinnace.cli.verbs import up
from pinnace.client import config
from pinnace.cluster import cluster as clusters
from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import StartFailed
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import APISERVER, KUBELET, ClusterSpec, ProcessPlan
from pinnace.cluster.view import ProcessStatus
from pinnace.runtime import procfs
from pinnace.verification.bench.calibration import scratch_cluster
from tests.unit.cluster.test_processes import READY, RESISTS

pytestmark = pytest.mark.processes

SPEC = ClusterSpec(nodes=1)
Then = Callable[[Cluster], None]


class Stubborn:
    """Starts two processes that end only on SIGKILL in place of a cluster. It calls `then` when they run."""

    def __init__(self) -> None:
        self.started: list[procfs.ProcessIdentity] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.then: Then = lambda cluster: None

    async def start(self, cluster: Cluster) -> None:
        for record in cluster.state.processes:
            cluster._spawn_process(record.name)
            self.children.append(cluster._children[record.name])
            process = cluster.state.find_process(record.name).process
            assert process
            self.started.append(process)
            async with asyncio.timeout(20):
                while "ready" not in cluster.folder.log_tail(record.name):  # noqa: ASYNC110 (there is no event to wait for)
                    await asyncio.sleep(0.01)
        self.then(cluster)

    @property
    def left(self) -> list[procfs.ProcessIdentity]:
        return list(filter(procfs.is_running, self.started))


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubborn]:
    def plans(*_: object, **__: object) -> list[ProcessPlan]:
        addresses = [f"127.0.0.1:{PortAllocator().next()}" for _ in range(2)]
        script = RESISTS.format(ready=READY)
        return [
            ProcessPlan(component, f"{component}-0", address, address, (sys.executable, "-c", script, str(tmp_path), component))
            for component, address in zip((APISERVER, KUBELET), addresses, strict=True)
        ]

    made = Stubborn()
    monkeypatch.setattr(clusters, "find_etcd", lambda: EtcdBinary(Path("/bin/false"), (3, 5, 21), False))
    monkeypatch.setattr(clusters, "plan_processes", plans)
    monkeypatch.setattr(Cluster, "_start_all", lambda cluster, *_: made.start(cluster))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield made
    for child in made.children:
        child.kill()
        child.wait()


def interrupt(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


class Impatient(Steps):
    """Interrupts when the clean-up begins to wait for the processes."""

    def waiting(self, what: str) -> None:
        if what == "the processes to end":
            interrupt()


def ends_as_an_interrupt(main: Coroutine[Any, Any, object]) -> None:
    """Run `main`: it ends with KeyboardInterrupt, and does not wait for the processes to end."""
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        running.run_coroutine(main)
    assert time.monotonic() - began < processes.GRACE


def test_interrupted_scratch_cluster_leaves_nothing(stubborn: Stubborn, tmp_path: Path) -> None:
    async def measure() -> None:
        async with scratch_cluster(SPEC, Impatient(Settings())):
            interrupt()
            await asyncio.sleep(60)

    ends_as_an_interrupt(measure())
    assert len(stubborn.started) == 2 and not stubborn.left
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_cleanup_of_a_failed_start_leaves_only_logs(
    stubborn: Stubborn, tmp_path: Path, number: signal.Signals
) -> None:
    def fail(cluster: Cluster) -> None:
        interrupt(number)  # the interrupt is handled at the next await
        raise StartFailed("no")

    stubborn.then = fail
    cluster = Cluster(replace(SPEC, data_dir=tmp_path / "made" / "cluster"))
    ends_as_an_interrupt(cluster.up())
    assert len(stubborn.started) == 2 and not stubborn.left
    left = [path.name for path in (tmp_path / "made" / "cluster").iterdir()]
    assert left == ["logs"], "the logs may contain the cause of the failure"


def test_interrupted_up_in_the_foreground_stops_the_cluster(
    stubborn: Stubborn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(cluster: Cluster) -> list[ProcessStatus]:
        return []

    async def look_on(*_: object) -> None:
        interrupt()
        await asyncio.sleep(60)

    monkeypatch.delenv("PINNACE_SERVER", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(Cluster, "status", nothing)
    data_dir = tmp_path / "made" / "cluster"
    monkeypatch.setattr(up, "follow_processes", look_on)
    monkeypatch.setattr(up, "Steps", Impatient)
    ends_as_an_interrupt(
        up._start_or_resume(Settings(), replace(SPEC, data_dir=data_dir), {}, fresh=False, opens=False, detach=False)
    )
    assert len(stubborn.started) == 2 and not stubborn.left
    assert Cluster.load(data_dir).state.stopped, "only `down` and --fresh remove a cluster"
    assert config.current_context() == "pinnace-cluster"


async def test_interrupted_down_keeps_the_cluster(stubborn: Stubborn, tmp_path: Path) -> None:
    """The ended processes can be started again."""
    cluster = Cluster(replace(SPEC, data_dir=tmp_path / "cluster"))
    await cluster.up()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cluster.down(), 0.05)
    assert stubborn.left
    assert Cluster.load(cluster.spec.data_dir).state.created == cluster.state.created
    await cluster.down(grace=0.1)
    assert not stubborn.left


async def test_container_cleanup_ignores_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ncut -d' ' -f6 /proc/self/stat > {tmp_path}/session\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    await processes.kill_pod_containers([tmp_path])
    assert int((tmp_path / "session").read_text()) != os.getsid(0)
