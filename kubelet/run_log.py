"""The run log: which pods this process runs, and when. For those who check afterwards that no pod ran on two nodes.

A `Witnessed` runtime is any runtime that is looked at whenever the kubelet looks at it: a pod runs while one of its containers
has been started and has not exited. Lines are pinnace.check.history.Ran, written together once an event loop's turn: a process
that is killed loses the last milliseconds, and no line is ever cut in two.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from io import FileIO
from pathlib import Path
from typing import Literal, Self

from kubelet.addresses import Addresses
from kubelet.runtime import Call, ContainerView, Instant, Runtime
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.check.files import encode
from pinnace.check.history import Ran
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock


class RunLog:
    """A file that is appended to, and closed by `with`. Used inside a running event loop."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = FileIO(path, "a")
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()

    def __call__(self, ran: Ran) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(encode(ran))

    def _flush(self) -> None:
        if self._lines:
            self._file.write("".join(self._lines).encode())
            self._lines.clear()


class _Pod:
    """What is known of one pod of the runtime."""

    __slots__ = ("key", "node", "running")

    def __init__(self, pod: Pod) -> None:
        self.key = PODS.key_of(pod)
        self.node = pod.spec.nodeName
        self.running = False


class Witnessed:
    """Implements kubelet.runtime.Runtime."""

    def __init__(self, runtime: Runtime, tell: Callable[[Ran], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._runtime = runtime
        self._tell = tell
        self._clock = clock
        self._pods: dict[str, _Pod] = {}

    def listen(self, notify: Callable[[str], None]) -> None:
        self._runtime.listen(notify)

    def prepare(self, pod: Pod, addresses: Addresses) -> None:
        self._runtime.prepare(pod, addresses)
        self._pods[pod.metadata.uid] = _Pod(pod)

    def adopt(self, pod: Pod, now: Instant) -> None:
        self._runtime.adopt(pod, now)
        self._pods[pod.metadata.uid] = _Pod(pod)

    def start(self, uid: str, container: str, attempt: int, now: Instant) -> None:
        self._runtime.start(uid, container, attempt, now)

    def stop(self, uid: str, container: str, grace: float, now: Instant) -> None:
        self._runtime.stop(uid, container, grace, now)

    def crash(self, uid: str, container: str, attempt: int, code: int, now: Instant) -> None:
        self._runtime.crash(uid, container, attempt, code, now)

    def call(self, uid: str, container: str, call: Call, now: Instant) -> None:
        self._runtime.call(uid, container, call, now)

    def observe(self, uid: str, now: Instant) -> Sequence[ContainerView]:
        containers = self._runtime.observe(uid, now)
        self._note(uid, any(view.exit is None for view in containers), now.monotonic)
        return containers

    def remove(self, uid: str) -> None:
        self._runtime.remove(uid)
        self._note(uid, False, self._clock.monotonic())
        self._pods.pop(uid, None)

    def retain(self, nodes: Collection[str], uids: Collection[str]) -> None:
        self._runtime.retain(nodes, uids)

    def _note(self, uid: str, running: bool, at: float) -> None:
        pod = self._pods.get(uid)
        if pod is not None and pod.running != running:
            pod.running = running
            what: Literal["started", "stopped"] = "started" if running else "stopped"
            self._tell(Ran(at, pod.node, uid, pod.key, what))
