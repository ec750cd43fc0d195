"""The process runtime, with real processes: from the start of a container to its end, and beyond the end of a kubelet."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubelet.runtime.interface import ContainerState, Unsupported, read
from kubelet.runtime.process import files
from kubelet.runtime.process.root import Root
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.unit.kubelet.process.scene import ADDRESSES, FOR_EVER, UID, Scene, eventually, exists, shell


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "root")
    yield scene
    await scene.close()


async def test_from_created_to_running_to_its_exit_code(scene: Scene) -> None:
    scene.run(shell("echo out; echo err >&2; read line; exit 3"))
    assert scene.view().state is ContainerState.CREATED
    view = await scene.exited()
    assert view.exit is not None
    assert (view.exit.code, view.started, view.exit.started) == (3, view.exit.started, view.started)
    assert view == scene.view()
    assert sorted(scene.log()) == ["stderr F err", "stdout F out"]


async def test_a_container_finds_its_variables_its_folder_and_its_volumes(scene: Scene) -> None:
    pod = shell('echo "$GREETING from $POD_IP"; cat data/page; exit 0')
    container = pod.spec.containers[0]
    container.env.add(name="WHO", value="you")
    container.env.add(name="GREETING", value="hello $(WHO), not $$(WHO) or $(NOBODY)")
    pod.spec.volumes.add(name="pages").volumeSource.emptyDir.SetInParent()
    container.volumeMounts.add(name="pages", mountPath="/data")
    scene.runtime.prepare(pod, ADDRESSES)
    (scene.root.pod(UID) / "volumes/pages/page").write_text("a page\n")
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
    assert [scene.log(attempt=each) for each in (0, 1)] == [["stdout F 10.96.0.7 /bin/sh"], ["stdout F 10.96.0.8 /bin/sh"]]


async def test_failed_start_has_a_reason(scene: Scene) -> None:
    pod = shell("unused")
    pod.spec.containers[0].command[:] = ["/no/such/program"]
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit[0] == 128
    assert (view.exit.reason, view.exit.message) == ("StartError", "cannot start /no/such/program: No such file or directory")


async def test_a_container_without_a_command_is_refused(scene: Scene) -> None:
    pod = shell("unused")
    del pod.spec.containers[0].command[:]
    with pytest.raises(Unsupported, match=r"spec.containers\[\].command is required"):
        scene.runtime.prepare(pod, ADDRESSES)
    assert scene.root.pods() == []


@pytest.mark.parametrize(
    ("where", "sub_path", "host_path"),
    [("/a\0b", "", ""), ("/a", "b\0", ""), ("/a", "", "/no/such\0")],
    ids=["mountPath", "subPath", "hostPath"],
)
async def test_a_path_that_cannot_be_one_refuses_its_pod_alone(scene: Scene, where: str, sub_path: str, host_path: str) -> None:
    """One that is stored: the API takes none any more."""
    pod = shell("echo here; exit 0")
    source = pod.spec.volumes.add(name="v").volumeSource
    if host_path:
        source.hostPath.path, source.hostPath.type = host_path, "DirectoryOrCreate"
    else:
        source.emptyDir.SetInParent()
    pod.spec.containers[0].volumeMounts.add(name="v", mountPath=where, subPath=sub_path)
    with pytest.raises(Unsupported, match=r"invalid path of a volume: .*embedded null"):
        scene.runtime.prepare(pod, ADDRESSES)
    assert scene.root.pods() == []
    scene.adopt(pod)  # by an earlier kubelet it had been taken


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


async def test_a_process_ends_when_it_is_asked_and_is_killed_when_it_does_not(scene: Scene) -> None:
    scene.run(shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", "trap '' TERM; echo ready; sleep 1000"))
    scene.start("c1", 0)
    for container in ("c0", "c1"):
        await scene.running(container)
        await scene.says("ready", container)
    scene.stop(30.0, "c0")
    scene.stop(30.0, "c1")
    polite, stubborn = await scene.exited("c0"), scene.view("c1")
    assert polite.exit is not None
    assert (polite.exit.code, polite.stop_grace, stubborn.exit) == (7, 30.0, None)
    scene.stop(0.05, "c1")
    stubborn = await scene.exited("c1")
    assert stubborn.exit is not None
    assert stubborn.exit.code == 128 + signal.SIGKILL


async def test_a_stop_that_the_disk_had_no_room_for_is_asked_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was remembered all the same: nobody asked again, and the pod was Terminating for good."""

    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene.run(shell(FOR_EVER))
    await scene.running()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(files, "write", full)
        scene.stop(30.0)
    assert scene.view().stop_grace is None
    scene.stop(30.0)
    assert (await scene.exited()).stop_grace == 30.0


async def test_expired_container_is_killed_on_a_full_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene.run(shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await scene.says("ready")
    monkeypatch.setattr(files, "write", full)
    scene.stop(0.0)
    assert (await scene.exited()).exit is not None


async def test_a_process_that_has_a_month_to_end_is_asked_too(scene: Scene) -> None:
    """No poll waits that long: the shim died of it, and with it the process."""
    scene.run(shell("trap 'sleep 0.1; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    await scene.says("ready")
    scene.stop(30 * 24 * 3600.0)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 7


async def test_signals_give_the_code_that_a_shell_would(scene: Scene) -> None:
    """(In a command $$ stands for one $: see expansion.)"""
    scene.run(shell("kill -SEGV $$$$"))
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 128 + signal.SIGSEGV


async def test_no_process_of_a_container_survives_it(scene: Scene) -> None:
    """Not even a daemon in a session of its own."""
    scene.run(shell("setsid sh -c 'echo daemon $$$$; exec sleep 1000' & while ! [ -e go ]; do sleep 0.02; done; exit 0"))
    await eventually(lambda: bool(scene.log()))
    daemon = int(scene.log()[0].split()[-1])
    assert exists(daemon)
    (scene.root.pod(UID) / "containers/c0/root/go").touch()
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 0
    assert not exists(daemon)


async def test_when_the_shim_is_killed_so_is_the_process(scene: Scene) -> None:
    scene.run(shell(f"sleep 1000 & {FOR_EVER}"))
    await scene.running()
    pid = scene.pid()
    os.kill(scene.shim(), signal.SIGKILL)
    view = await scene.exited()
    assert view.exit is not None
    assert (view.exit.code, view.exit.reason) == (137, "ContainerStatusUnknown")
    await eventually(lambda: not exists(pid))


async def test_the_next_attempt_remembers_the_last_and_only_two_are_kept(scene: Scene) -> None:
    scene.run(shell("exit 4"))
    first = (await scene.exited()).exit
    scene.start("c0", 1)
    view = await scene.exited()
    assert (view.attempt, view.last_exit) == (1, first)
    scene.start("c0", 2)
    await scene.exited()
    assert [scene.home(attempt=number).exists() for number in range(3)] == [False, True, True]


async def test_a_removed_pod_is_killed_and_leaves_nothing(scene: Scene) -> None:
    scene.run(shell("trap '' TERM; echo ready; sleep 1000"))
    await scene.says("ready")
    pid = scene.pid()
    scene.runtime.remove(UID)
    assert scene.root.pods() == []
    await scene.runtime.settled()
    assert not exists(pid)
    assert scene.root.removed() == []


async def test_the_event_loop_goes_on_while_a_pods_files_are_removed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume may have a hundred thousand; the fleet's nodes are lost when they are silent for three seconds."""
    loop, alive, seen = asyncio.get_running_loop(), threading.Event(), []

    def remove_tree(folder: Path) -> None:
        loop.call_soon_threadsafe(alive.set)
        seen.append(alive.wait(10.0))
        folder.rename(folder.with_name("done"))

    scene.run(shell("exit 0"))
    await scene.exited()
    monkeypatch.setattr("kubelet.runtime.process.root.remove_tree", remove_tree)
    scene.runtime.remove(UID)
    await scene.runtime.settled()
    assert seen == [True]
    assert [folder.name for folder in scene.root.removed()] == ["done"]


async def test_a_limit_of_memory_binds_each_process(scene: Scene) -> None:
    pod = shell("unused")
    pod.spec.containers[0].command[:] = ["python3", "-S", "-c", "bytearray(1 << 29)"]
    pod.spec.containers[0].resources.limits["memory"].CopyFrom(Quantity(string="256Mi"))
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.code == 1
    assert scene.log()[-1].endswith("MemoryError")


class TestAnotherKubelet:
    async def test_finds_what_runs_and_starts_nothing(self, scene: Scene) -> None:
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

    async def test_finds_how_what_ended_meanwhile_did(self, scene: Scene) -> None:
        pod = shell("while ! [ -e go ]; do sleep 0.02; done; exit 5")
        scene.run(pod)
        await scene.running()
        scene.root.close()
        (scene.root.pod(UID) / "containers/c0/root/go").touch()
        await eventually((scene.home() / "exit.json").exists)
        scene.reopen()
        scene.adopt(pod)
        view = await scene.exited()
        assert view.exit is not None
        assert view.exit.code == 5

    async def test_finds_what_was_only_just_begun(self, scene: Scene) -> None:
        pod = shell(FOR_EVER)
        scene.run(pod)
        scene.restart()
        scene.adopt(pod)
        assert (await scene.running()).attempt == 0

    async def test_takes_up_what_was_started_and_never_reported(self, scene: Scene) -> None:
        """To the API the pod is new; on this machine it is not."""
        pod = shell(FOR_EVER)
        scene.run(pod)
        await scene.running()
        scene.restart()
        scene.runtime.prepare(pod, ADDRESSES)
        assert scene.view().state is ContainerState.RUNNING

    async def test_knows_that_a_container_is_gone_that_was_reported_to_run(self, scene: Scene) -> None:
        pod = shell(FOR_EVER)
        status = pod.status.containerStatuses.add(name="c0", restartCount=3)
        status.state.running.startedAt.seconds = 5
        scene.adopt(pod)
        view = scene.view()
        assert view.exit is not None
        assert (view.attempt, view.exit.code, view.exit.reason) == (3, 137, "ContainerStatusUnknown")

    async def test_kills_what_was_deleted_meanwhile_on_its_own_nodes(self, scene: Scene) -> None:
        scene.run(shell(FOR_EVER))
        await scene.running()
        pid = scene.pid()
        scene.restart()
        scene.runtime.retain({"another"}, set())
        scene.runtime.retain({"n"}, {UID})
        assert exists(pid)
        scene.runtime.retain({"n"}, set())
        await scene.runtime.settled()
        assert not exists(pid)

    async def test_kills_what_runs_of_a_pod_that_has_ended_and_keeps_its_logs(self, scene: Scene) -> None:
        scene.run(shell(f"echo hello; {FOR_EVER}"))
        await scene.says("hello")
        pid = scene.pid()
        scene.restart()
        scene.runtime.end(UID)
        scene.runtime.end("another")
        await scene.runtime.settled()
        assert not exists(pid)
        assert scene.log() == ["stdout F hello"]

    async def test_waits_for_the_first_to_end(self, scene: Scene) -> None:
        with pytest.raises(OSError, match="is in use by another kubelet"):
            Root(scene.folder)


async def test_a_runtime_that_is_closed_lets_everything_run_on_for_the_next(scene: Scene) -> None:
    """Of the same process: its fleet begins anew."""
    pod = shell(FOR_EVER)
    scene.run(pod)
    await scene.running()
    pid, before = scene.pid(), scene.runtime
    scene.begin_anew()
    assert not before.observe(UID, read(SYSTEM_CLOCK))
    scene.adopt(pod)
    await scene.running()
    assert scene.pid() == pid and exists(pid)
    scene.stop(0.0)
    view = await scene.exited()
    assert view.exit is not None and view.exit.code == 137
