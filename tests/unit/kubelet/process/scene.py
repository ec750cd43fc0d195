"""A process runtime in a separate folder, with helpers for tests."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from pinnace.api.core_v1_pb2 import Pod
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import ContainerState, ContainerView, read_clocks
from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.root import RuntimeRoot
from pinnace.kubelet.runtime.process.runtime import ProcessRuntime
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_pod

TIMEOUT = 10.0
UID = "uid-default-a"
ADDRESSES = PodAddresses("127.0.1.1", "127.0.1.2")
FOR_EVER = "exec sleep 1000"


def shell(*scripts: str) -> Pod:
    """Pod "a" on node "n", whose containers c0, c1, ... run these scripts."""
    builder = make_pod("a").node("n")
    for _ in scripts:
        builder.container()
    pod = builder.build()
    for container, script in zip(pod.spec.containers, scripts, strict=True):
        container.command[:] = ["/bin/sh", "-c", script]
    return pod


class Scene:
    """A process runtime with at most one pod. `close` ends all its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changed = asyncio.Event()
        self.services: dict[str, str] = {}
        """The environment variables of services."""
        self.reopen()

    def reopen(self) -> None:
        self.root = RuntimeRoot(self.folder)
        self._open_runtime()

    def replace_runtime(self) -> None:
        """Replace the runtime within the same kubelet process."""
        self.runtime.close()
        self._open_runtime()

    def _open_runtime(self) -> None:
        self.runtime = ProcessRuntime(self.root, services=lambda pod: self.services)
        self.runtime.set_listener(lambda uid: self._changed.set())

    def run(self, pod: Pod) -> None:
        """Prepare the pod and start its first container."""
        self.runtime.prepare_pod(pod, ADDRESSES)
        self.start(pod.spec.containers[0].name, 0)

    def start(self, container: str, attempt: int) -> None:
        self.runtime.start(UID, container, attempt, read_clocks(SYSTEM_CLOCK))

    def stop(self, grace: float, container: str = "c0") -> None:
        self.runtime.stop(UID, container, grace, read_clocks(SYSTEM_CLOCK))

    def view(self, container: str = "c0") -> ContainerView:
        (result,) = (view for view in self.runtime.observe_containers(UID, read_clocks(SYSTEM_CLOCK)) if view.name == container)
        return result

    async def until(self, wanted: Callable[[ContainerView], bool], container: str = "c0") -> ContainerView:
        """Wait until the container satisfies `wanted`. The runtime must announce the change."""
        async with asyncio.timeout(TIMEOUT):
            while not wanted(view := self.view(container)):
                self._changed.clear()
                await self._changed.wait()
        return view

    async def running(self, container: str = "c0") -> ContainerView:
        return await self.until(lambda view: view.state is ContainerState.RUNNING, container)

    async def exited(self, container: str = "c0") -> ContainerView:
        return await self.until(lambda view: view.exit is not None, container)

    def pid(self, container: str = "c0", attempt: int = 0) -> int:
        """The pid of the container's process."""
        pid: int = files.read_record(str(self.home(container, attempt) / files.RUNNING))["pid"]
        return pid

    def shim(self, container: str = "c0", attempt: int = 0) -> int:
        return int((self.home(container, attempt) / "lock").read_text())

    def home(self, container: str = "c0", attempt: int = 0) -> Path:
        return self.root.pod_directory(UID) / "containers" / container / str(attempt)

    def log(self, container: str = "c0", attempt: int = 0) -> list[str]:
        """The output of the container, without times."""
        log = self.home(container, attempt) / "log"
        return [line.split(" ", 1)[1] for line in log.read_text().splitlines()] if log.exists() else []

    async def says(self, text: str, container: str = "c0") -> None:
        """Wait until the container has written a line."""
        await eventually(lambda: f"stdout F {text}" in self.log(container))

    def restart(self) -> None:
        """Replace the runtime as a new kubelet process would."""
        self.root.close()
        self.reopen()

    def adopt(self, pod: Pod) -> None:
        self.runtime.adopt_pod(pod, read_clocks(SYSTEM_CLOCK))

    async def close(self) -> None:
        for folder in self.root.pod_directories():
            self.runtime.remove(folder.name)
        await self.runtime.settled()
        self.root.close()


async def eventually(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            if look():
                return
            await asyncio.sleep(0.01)


def exists(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
