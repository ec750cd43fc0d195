"""The process runtime with real processes: from the start of a container to its end, and across kubelet restarts."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.kubelet.runtime.interface import ContainerState, UnsupportedPod, read_clocks
from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.root import RuntimeRoot
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.unit.kubelet.process.scene import ADDRESSES, FOR_EVER, UID, Scene, eventually, exists, shell

pytestmark = pytest.mark.processes


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "root")
    yield scene
    await scene.close()


async def test_container_runs_and_reports_its_exit_code_and_output(scene: Scene) -> None:
    scene.run(shell("echo out; echo err >&2; read line; exit 3"))
    assert scene.view().state is ContainerState.CREATED
    view = await scene.exited()
    assert view.exit is not None
    assert (view.exit.code, view.started, view.exit.started) == (3, view.exit.started, view.started)
    assert view == scene.view()
    assert sorted(scene.log()) == ["stderr F err", "stdout F out"]


async def test_container_has_its_variables_and_volumes(scene: Scene) -> None:
    pod = shell('echo "$GREETING from $POD_IP"; cat data/page; exit 0')
    container = pod.spec.containers[0]
    container.env.add(name="WHO", value="you")
    container.env.add(name="GREETING", value="hello $(WHO), not $$(WHO) or $(NOBODY)")
    pod.spec.volumes.add(name="pages").volumeSource.emptyDir.SetInParent()
    container.volumeMounts.add(name="pages", mountPath="/data")
    scene.runtime.prepare_pod(pod, ADDRESSES)
    (scene.root.pod_directory(UID) / "volumes/pages/page").write_text("a page\n")
    scene.start("c0", 0)
    await scene.exited()
    assert scene.log() == ["stdout F hello you, not $(WHO) or $(NOBODY) from 127.0.1.2", "stdout F a page"]


async def test_container_has_the_variables_of_services_at_its_start(scene: Scene) -> None:
    scene.services = {"WEB_SERVICE_HOST": "10.96.0.7"}
    scene.run(shell('echo "$WEB_SERVICE_HOST $0"'))
    await scene.exited()
    scene.services = {"WEB_SERVICE_HOST": "10.96.0.8"}
    scene.start("c0", 1)
    await scene.exited()
    assert [scene.log(attempt=item) for item in (0, 1)] == [["stdout F 10.96.0.7 /bin/sh"], ["stdout F 10.96.0.8 /bin/sh"]]


async def test_failed_start_has_a_reason(scene: Scene) -> None:
    pod = shell("unused")
    pod.spec.containers[0].command[:] = ["/no/such/program"]
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit[0] == 128
    assert (view.exit.reason, view.exit.message) == ("StartError", "cannot start /no/such/program: No such file or directory")


async def test_container_without_a_command_is_rejected(scene: Scene) -> None:
    pod = shell("unused")
    del pod.spec.containers[0].command[:]
    with pytest.raises(UnsupportedPod, match='image "app:1" is not in the table of images'):
        scene.runtime.prepare_pod(pod, ADDRESSES)
    assert scene.root.pod_directories() == []


@pytest.mark.parametrize(
    ("where", "sub_path", "host_path"),
    [("/a\0b", "", ""), ("/a", "b\0", ""), ("/a", "", "/no/such\0")],
    ids=["mountPath", "subPath", "hostPath"],
)
async def test_invalid_volume_path_rejects_its_pod(scene: Scene, where: str, sub_path: str, host_path: str) -> None:
    """The API rejects such paths, but stored pods may have them."""
    pod = shell("echo here; exit 0")
    source = pod.spec.volumes.add(name="v").volumeSource
    if host_path:
        source.hostPath.path, source.hostPath.type = host_path, "DirectoryOrCreate"
    else:
        source.emptyDir.SetInParent()
    pod.spec.containers[0].volumeMounts.add(name="v", mountPath=where, subPath=sub_path)
    if sub_path:  # a part of a volume is looked for when the container starts
        scene.run(pod)
        exit_ = (await scene.exited()).exit
        assert exit_ is not None and exit_.reason == "StartError" and "embedded null" in exit_.message
        return
    with pytest.raises(UnsupportedPod, match=r"invalid path of a volume: .*embedded null"):
        scene.runtime.prepare_pod(pod, ADDRESSES)
    assert scene.root.pod_directories() == []
    scene.adopt(pod)  # an earlier kubelet had admitted the pod


@pytest.mark.parametrize("field", ["args", "env", "workingDir"])
async def test_impossible_arguments_have_a_reason(scene: Scene, field: str) -> None:
    pod = shell("exit 0")
    container = pod.spec.containers[0]
    if field == "args":
        container.args.append("a\0b")
    elif field == "env":
        container.env.add(name="A", value="a\0b")
    else:
        container.workingDir = "/a\0b"
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert (view.exit.code, view.exit.reason) == (128, "StartError")
    assert view.exit.message.startswith("cannot start /bin/sh: embedded null")


async def test_stop_sends_sigterm_and_kills_after_the_grace_period(scene: Scene) -> None:
    scene.run(shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", "trap '' TERM; echo ready; sleep 1000"))
    scene.start("c1", 0)
    for container in ("c0", "c1"):
        await scene.running(container)
        await scene.says("ready", container)
    scene.stop(30.0, "c0")
    scene.stop(30.0, "c1")
    graceful, stubborn = await scene.exited("c0"), scene.view("c1")
    assert graceful.exit is not None
    assert (graceful.exit.code, graceful.stop_grace, stubborn.exit) == (7, 30.0, None)
    scene.stop(0.05, "c1")
    stubborn = await scene.exited("c1")
    assert stubborn.exit is not None
    assert stubborn.exit.code == 128 + signal.SIGKILL


async def test_stop_that_failed_on_a_full_disk_can_be_repeated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the stop was recorded despite the error and never repeated, and the pod stayed Terminating."""

    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene.run(shell(FOR_EVER))
    await scene.running()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(files, "write_record", full)
        scene.stop(30.0)
    assert scene.view().stop_grace is None
    scene.stop(30.0)
    assert (await scene.exited()).stop_grace == 30.0


async def test_expired_container_is_killed_on_a_full_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene.run(shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await scene.says("ready")
    monkeypatch.setattr(files, "write_record", full)
    scene.stop(0.0)
    assert (await scene.exited()).exit is not None


async def test_stop_with_a_grace_period_of_a_month_sends_sigterm(scene: Scene) -> None:
    """Regression: the wait exceeded the limit of `poll`. The shim failed, and its process ended."""
    scene.run(shell("trap 'sleep 0.1; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    await scene.says("ready")
    scene.stop(30 * 24 * 3600.0)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 7


async def test_exit_code_of_a_signal_is_128_plus_its_number(scene: Scene) -> None:
    """In a command, $$ stands for one $."""
    scene.run(shell("kill -SEGV $$$$"))
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 128 + signal.SIGSEGV


async def test_processes_of_a_container_end_with_it(scene: Scene) -> None:
    """This includes a daemon in a separate session."""
    scene.run(shell("setsid sh -c 'echo daemon $$$$; exec sleep 1000' & while ! [ -e go ]; do sleep 0.02; done; exit 0"))
    await eventually(lambda: bool(scene.log()))
    daemon = int(scene.log()[0].split()[-1])
    assert exists(daemon)
    (scene.root.pod_directory(UID) / "containers/c0/root/go").touch()
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 0
    assert not exists(daemon)


async def test_killed_shim_ends_its_process(scene: Scene) -> None:
    scene.run(shell(f"sleep 1000 & {FOR_EVER}"))
    await scene.running()
    pid = scene.pid()
    os.kill(scene.shim(), signal.SIGKILL)
    view = await scene.exited()
    assert view.exit is not None
    assert (view.exit.code, view.exit.reason) == (137, "ContainerStatusUnknown")
    await eventually(lambda: not exists(pid))


async def test_next_attempt_has_the_last_exit_and_two_attempts_are_kept(scene: Scene) -> None:
    scene.run(shell("exit 4"))
    first = (await scene.exited()).exit
    scene.start("c0", 1)
    view = await scene.exited()
    assert (view.attempt, view.last_exit) == (1, first)
    scene.start("c0", 2)
    await scene.exited()
    assert [scene.home(attempt=number).exists() for number in range(3)] == [False, True, True]


async def test_removed_pod_is_killed_and_leaves_no_files(scene: Scene) -> None:
    scene.run(shell("trap '' TERM; echo ready; sleep 1000"))
    await scene.says("ready")
    pid = scene.pid()
    scene.runtime.remove(UID)
    assert scene.root.pod_directories() == []
    await scene.runtime.settled()
    assert not exists(pid)
    assert scene.root.removed_pod_directories() == []


async def test_removal_of_files_does_not_block_the_event_loop(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume may have 100,000 files, and the nodes of a fleet are lost after three seconds without a heartbeat."""
    loop, alive, seen = asyncio.get_running_loop(), threading.Event(), []

    def remove_tree(folder: Path) -> None:
        loop.call_soon_threadsafe(alive.set)
        seen.append(alive.wait(10.0))
        folder.rename(folder.with_name("done"))

    scene.run(shell("exit 0"))
    await scene.exited()
    monkeypatch.setattr("pinnace.kubelet.runtime.process.root.remove_tree", remove_tree)
    scene.runtime.remove(UID)
    await scene.runtime.settled()
    assert seen == [True]
    assert [folder.name for folder in scene.root.removed_pod_directories()] == ["done"]


async def test_memory_limit_applies_to_each_process(scene: Scene) -> None:
    pod = shell("unused")
    pod.spec.containers[0].command[:] = ["python3", "-S", "-c", "bytearray(1 << 29)"]
    pod.spec.containers[0].resources.limits["memory"].CopyFrom(Quantity(string="256Mi"))
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 1
    assert scene.log()[-1].endswith("MemoryError")


class TestRestartedKubelet:
    async def test_adopts_running_containers(self, scene: Scene) -> None:
        pod = shell(FOR_EVER)
        scene.run(pod)
        before = await scene.running()
        pid = scene.pid()
        scene.restart()
        scene.adopt(pod)
        assert scene.view()._replace(started=None) == before._replace(started=None)
        assert exists(pid)
        scene.stop(30.0)
        view = await scene.exited()
        assert view.exit is not None
        assert view.exit.code == 128 + signal.SIGTERM

    async def test_finds_the_exit_code_of_a_container_that_ended_meanwhile(self, scene: Scene) -> None:
        pod = shell("while ! [ -e go ]; do sleep 0.02; done; exit 5")
        scene.run(pod)
        await scene.running()
        scene.root.close()
        (scene.root.pod_directory(UID) / "containers/c0/root/go").touch()
        await eventually((scene.home() / "exit.json").exists)
        scene.reopen()
        scene.adopt(pod)
        view = await scene.exited()
        assert view.exit is not None
        assert view.exit.code == 5

    async def test_adopts_a_container_that_is_starting(self, scene: Scene) -> None:
        pod = shell(FOR_EVER)
        scene.run(pod)
        scene.restart()
        scene.adopt(pod)
        assert (await scene.running()).attempt == 0

    async def test_adopts_a_running_container_that_was_never_reported(self, scene: Scene) -> None:
        """The pod is new to the API, but its container already runs."""
        pod = shell(FOR_EVER)
        scene.run(pod)
        await scene.running()
        scene.restart()
        scene.runtime.prepare_pod(pod, ADDRESSES)
        assert scene.view().state is ContainerState.RUNNING

    async def test_reports_a_lost_container_as_exited(self, scene: Scene) -> None:
        pod = shell(FOR_EVER)
        status = pod.status.containerStatuses.add(name="c0", restartCount=3)
        status.state.running.startedAt.seconds = 5
        scene.adopt(pod)
        view = scene.view()
        assert view.exit is not None
        assert (view.attempt, view.exit.code, view.exit.reason) == (3, 137, "ContainerStatusUnknown")

    async def test_kills_deleted_pods_of_its_own_nodes(self, scene: Scene) -> None:
        scene.run(shell(FOR_EVER))
        await scene.running()
        pid = scene.pid()
        scene.restart()
        scene.runtime.retain_pods({"another"}, set())
        scene.runtime.retain_pods({"n"}, {UID})
        assert exists(pid)
        scene.runtime.retain_pods({"n"}, set())
        await scene.runtime.settled()
        assert not exists(pid)

    async def test_kills_containers_of_an_ended_pod_and_keeps_its_logs(self, scene: Scene) -> None:
        scene.run(shell(f"echo hello; {FOR_EVER}"))
        await scene.says("hello")
        pid = scene.pid()
        scene.restart()
        scene.runtime.kill_leftovers(UID)
        scene.runtime.kill_leftovers("another")
        await scene.runtime.settled()
        assert not exists(pid)
        assert scene.log() == ["stdout F hello"]

    async def test_second_kubelet_cannot_use_the_root(self, scene: Scene) -> None:
        with pytest.raises(OSError, match="is in use by another kubelet"):
            RuntimeRoot(scene.folder)


async def test_closed_runtime_leaves_containers_to_the_next_one(scene: Scene) -> None:
    """The fleet starts again in the same process."""
    pod = shell(FOR_EVER)
    scene.run(pod)
    await scene.running()
    pid, before = scene.pid(), scene.runtime
    scene.replace_runtime()
    assert not before.observe_containers(UID, read_clocks(SYSTEM_CLOCK))
    scene.adopt(pod)
    await scene.running()
    assert scene.pid() == pid and exists(pid)
    scene.stop(0.0)
    view = await scene.exited()
    assert view.exit is not None and view.exit.code == 137
