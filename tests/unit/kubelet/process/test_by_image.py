"""Pods whose image is unknown are simulated, beside pods that are processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PortForwardRequest, PortForwardStart
from pinnace.kubelet.runtime.by_image import MeterByImage, RuntimeByImage, RuntimeChooser, StreamsByImage
from pinnace.kubelet.runtime.interface import ContainerState, StreamError, read_clocks
from pinnace.kubelet.runtime.process.images import ImageProgram, ImageTable
from pinnace.kubelet.runtime.process.meter import ProcessMeter
from pinnace.kubelet.runtime.process.streams import ProcessStreams
from pinnace.kubelet.runtime.simulated import SimulatedStreams
from pinnace.kubelet.runtime.simulated_runtime import NO_STAGES, SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from pinnace.kubelet.stats import DeclaredUsageMeter, RunningPod
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_pod
from tests.unit.kubelet.process.scene import ADDRESSES, FOR_EVER, UID, Scene, shell

OTHER = "uid-default-b"


class Both(Scene):
    """Both runtimes, with the built-in images and those in `images`."""

    images = ImageTable()

    def _open_runtime(self) -> None:
        super()._open_runtime()
        self.chooser = RuntimeChooser(self.root, self.images)
        self.both = RuntimeByImage(self.runtime, SimulatedRuntime(Behaviour()), self.chooser)
        self.streams = StreamsByImage(ProcessStreams(self.root), SimulatedStreams(lambda uid: None, NO_STAGES), self.chooser)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Both]:
    scene = Both(tmp_path / "root")
    yield scene
    await scene.close()


def unknown() -> Pod:
    return make_pod("b").container().node("n").build()


@pytest.mark.processes
async def test_unknown_image_is_simulated_and_users_are_told(scene: Both) -> None:
    assert scene.both.prepare_pod(shell(FOR_EVER), ADDRESSES) is None
    remark = scene.both.prepare_pod(unknown(), ADDRESSES)
    assert remark is not None and remark.startswith('image "app:1" is not in the table of images')
    now = read_clocks(SYSTEM_CLOCK)
    for uid in (UID, OTHER):
        scene.both.start(uid, "c0", 0, now)
    await scene.running()
    (simulated,) = scene.both.observe_containers(OTHER, now)
    assert simulated.state is ContainerState.RUNNING
    assert [pod.name for pod in scene.root.pod_directories()] == [UID]
    running = [RunningPod(unknown(), ["c0"]), RunningPod(shell(FOR_EVER), ["c0"])]
    meter = MeterByImage(ProcessMeter(scene.root), DeclaredUsageMeter(SYSTEM_CLOCK), scene.chooser)
    declared, measured = await meter.measure(running)
    assert declared["c0"].window == 0 and measured["c0"].window > 0
    scene.both.remove(OTHER)
    assert scene.both.observe_containers(OTHER, now) == ()


@pytest.mark.processes
async def test_pod_stays_where_it_was_prepared(scene: Both) -> None:
    """A process whose image is no longer known is adopted as a process."""
    scene.chooser._images = ImageTable({"app": ImageProgram(("/bin/sh", "-c", FOR_EVER))})
    pod = shell("unused")
    del pod.spec.containers[0].command[:]
    scene.runtime._images = scene.chooser._images
    scene.both.prepare_pod(pod, ADDRESSES)
    scene.both.start(UID, "c0", 0, read_clocks(SYSTEM_CLOCK))
    await scene.running()
    scene.restart()
    scene.both.adopt_pod(pod, read_clocks(SYSTEM_CLOCK))
    assert (await scene.running()).attempt == 0
    assert scene.both.observe_containers(UID, read_clocks(SYSTEM_CLOCK)) == [scene.view()]


async def test_port_forward_reaches_only_the_address_of_the_pod(scene: Both) -> None:
    """A server of the machine on 127.0.0.1 is none of the pod's."""
    other = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    scene.both.prepare_pod(shell(FOR_EVER), ADDRESSES)

    async def sent() -> AsyncIterator[PortForwardRequest]:
        yield PortForwardRequest(closeWrite=True)

    start = PortForwardStart(name="a", uid=UID, port=port)
    with pytest.raises(StreamError, match=f'to pod "a": failed to connect to 127.0.1.2:{port}: connection refused'):
        assert [response async for response in scene.streams.port_forward(start, sent())]
    other.close()
    await other.wait_closed()

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"mine")
        writer.close()

    mine = await asyncio.start_server(answer, "127.0.1.2", 0)
    start.port = mine.sockets[0].getsockname()[1]
    assert b"".join([item.data async for item in scene.streams.port_forward(start, sent())]) == b"mine"
    mine.close()
    await mine.wait_closed()
