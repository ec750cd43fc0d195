"""Volumes at their mountPath, for a kubelet that may make mount namespaces."""

from collections.abc import AsyncIterator
from pathlib import Path
from socket import gethostname

import pytest

from pinnace.kubelet.runtime.process.host_names import ClusterDns
from pinnace.kubelet.runtime.process.mounts import can_mount
from pinnace.kubelet.runtime.process.root import SHIM_ENVIRONMENT
from pinnace.kubelet.runtime.process.runtime import ProcessRuntime
from tests.unit.kubelet.process.scene import ADDRESSES, FOR_EVER, Scene, shell
from tests.unit.kubelet.process.test_streams import execute

pytestmark = pytest.mark.processes

HOME = Path("/pinnace-test")
"""A directory that the machine does not have."""


def of_machine() -> list[str]:
    """What mounts must not change."""
    return sorted(str(path) for folder in ("/", "/etc") for path in Path(folder).iterdir())


class Mounting(Scene):
    def _open_runtime(self) -> None:
        self.runtime = ProcessRuntime(self.root, mounts=True, dns=ClusterDns("127.255.0.10"))
        self.runtime.set_listener(lambda uid: self._changed.set())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Mounting]:
    if not can_mount(SHIM_ENVIRONMENT):
        pytest.skip("mount namespaces need root with CAP_SYS_ADMIN")
    scene = Mounting(tmp_path / "root")
    yield scene
    await scene.close()


async def test_volumes_are_at_their_paths_in_the_container_only(scene: Mounting, tmp_path: Path) -> None:
    (tmp_path / "disk/sub").mkdir(parents=True)
    (tmp_path / "disk/file").write_text("of the disk\n")
    pod = shell(
        f"cat {HOME}/a/data/file ../a/data/file; pwd; cat /etc/pinnace-test/one; echo new > {HOME}/sub/new; "
        f"touch {HOME}/a/data/x 2> /dev/null || echo read-only; echo ready; {FOR_EVER}"
    )
    pod.spec.volumes.add(name="disk").volumeSource.hostPath.path = str(tmp_path / "disk")
    container = pod.spec.containers[0]
    container.volumeMounts.add(name="disk", mountPath=f"{HOME}/a/data", readOnly=True)
    container.volumeMounts.add(name="disk", mountPath=f"{HOME}/sub", subPath="sub")
    container.volumeMounts.add(name="disk", mountPath="/etc/pinnace-test/one", subPath="file")
    container.workingDir = f"{HOME}/sub"
    before = of_machine()
    scene.run(pod)
    await scene.says("ready")
    lines = [line.removeprefix("stdout F ") for line in scene.log()]
    assert lines == ["of the disk"] * 2 + [f"{HOME}/sub", "of the disk", "read-only", "ready"]
    assert (tmp_path / "disk/sub/new").read_text() == "new\n"
    assert await execute(scene, "cat", f"{HOME}/a/data/file", "new") == (b"of the disk\nnew\n", b"", 0)
    assert of_machine() == before


async def test_mount_that_fails_has_a_reason(scene: Mounting, tmp_path: Path) -> None:
    pod = shell("exit 0")
    pod.spec.volumes.add(name="disk").volumeSource.hostPath.path = str(tmp_path / "absent")
    pod.spec.containers[0].volumeMounts.add(name="disk", mountPath=str(HOME))
    scene.run(pod)
    exit_ = (await scene.exited()).exit
    assert exit_ is not None and exit_.reason == "StartError"
    assert exit_.message == f"cannot start /bin/sh: mount {tmp_path}/absent at {HOME}: No such file or directory"


async def test_container_has_the_host_name_of_its_pod_also_for_exec(scene: Mounting) -> None:
    machine = gethostname()
    pod = shell(f"hostname; cat /etc/hosts; echo ready; {FOR_EVER}")
    pod.spec.hostname = "etcd-0"
    scene.run(pod)
    await scene.says("ready")
    lines = [line.removeprefix("stdout F ") for line in scene.log()]
    assert lines[0] == "etcd-0" and f"{ADDRESSES.pod}\tetcd-0" in lines
    assert await execute(scene, "hostname") == (b"etcd-0\n", b"", 0)
    assert gethostname() == machine


async def test_pod_finds_names_of_the_cluster(scene: Mounting) -> None:
    machine = of_machine()
    pod = shell(f"cat /etc/resolv.conf; echo ready; {FOR_EVER}")
    pod.spec.dnsPolicy = "ClusterFirst"
    scene.run(pod)
    await scene.says("ready")
    assert "stdout F nameserver 127.255.0.10" in scene.log()
    assert of_machine() == machine


async def test_mounts_of_the_pod_replace_its_name_files(scene: Mounting, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("192.0.2.1 own\n")
    pod = shell(f"cat /etc/hosts; echo ready; {FOR_EVER}")
    pod.spec.volumes.add(name="disk").volumeSource.hostPath.path = str(tmp_path)
    pod.spec.containers[0].volumeMounts.add(name="disk", mountPath="/etc/hosts", subPath="own")
    scene.run(pod)
    await scene.says("ready")
    assert [line.removeprefix("stdout F ") for line in scene.log()] == ["192.0.2.1 own", "ready"]
