"""The run log: which pods this process runs, and when. A checker reads it to verify that no pod ran on two nodes.

A `LoggedRuntime` wraps any runtime and observes each pod whenever the kubelet does. A pod runs while one of its containers has
been started and has not exited. Lines are pinnace.history.records.Ran, written together once per iteration of the event loop: a
process that is killed loses the last milliseconds, and a line is never cut. Once a pod has run, the log also records every
second that the process is alive, because a killed process cannot record that its pods have ended.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Literal, Self

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.history.records import ContainerRun, encode_record
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import ContainerCall, ContainerView, Moment, Runtime
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

BEAT = 1.0
"""Seconds between two records that the process is alive."""


class RunLog:
    """A file that is appended to, and closed by `with`. Use it inside a running event loop. The file outlives processes. Each
    process that writes to it has a unique name, and so has each restart of the fleet within a process.
    """

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError."""
        self._file = FileIO(path, "a")
        self._clock = clock
        self._name = f"{path.name.partition('.')[0]}/{os.getpid()}"
        self._process = ""
        self._lines: list[str] = []
        self._beating: asyncio.TimerHandle | None = None
        self.begin_process()

    def begin_process(self) -> None:
        """Later records use another process name."""
        self._process = f"{self._name}@{self._clock.monotonic():.3f}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self._write_runs()
        self._file.close()

    def __call__(self, ran: ContainerRun) -> None:
        loop = asyncio.get_running_loop()
        if not self._lines:
            loop.call_soon(self._write_runs)
        self._lines.append(encode_record(replace(ran, process=self._process)))
        if self._beating is None:
            self._beating = loop.call_later(BEAT, self._write_heartbeat)

    def _write_heartbeat(self) -> None:
        self._beating = None
        self(ContainerRun(self._clock.monotonic(), "", "", "", "alive"))

    def _write_runs(self) -> None:
        if self._lines:
            self._file.write("".join(self._lines).encode())
            self._lines.clear()


class _Pod:
    """The observed state of one pod."""

    __slots__ = ("key", "node", "running")

    def __init__(self, pod: Pod) -> None:
        self.key = PODS.key_of(pod)
        self.node = pod.spec.nodeName
        self.running = False


class LoggedRuntime:
    """Implements pinnace.kubelet.runtime.interface.Runtime."""

    def __init__(self, runtime: Runtime, tell: Callable[[ContainerRun], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._runtime = runtime
        self._tell = tell
        self._clock = clock
        self._pods: dict[str, _Pod] = {}

    def set_listener(self, notify: Callable[[str], None]) -> None:
        self._runtime.set_listener(notify)

    def prepare_pod(self, pod: Pod, addresses: PodAddresses) -> str | None:
        remark = self._runtime.prepare_pod(pod, addresses)
        self._pods[pod.metadata.uid] = _Pod(pod)
        return remark

    def adopt_pod(self, pod: Pod, now: Moment) -> None:
        self._runtime.adopt_pod(pod, now)
        self._pods[pod.metadata.uid] = _Pod(pod)

    def resize_pod(self, pod: Pod) -> None:
        self._runtime.resize_pod(pod)

    def start(self, uid: str, container: str, attempt: int, now: Moment) -> None:
        self._runtime.start(uid, container, attempt, now)

    def stop(self, uid: str, container: str, grace: float, now: Moment) -> None:
        self._runtime.stop(uid, container, grace, now)

    def crash_container(self, uid: str, container: str, attempt: int, code: int, now: Moment) -> None:
        self._runtime.crash_container(uid, container, attempt, code, now)

    def call(self, uid: str, container: str, call: ContainerCall, now: Moment) -> None:
        self._runtime.call(uid, container, call, now)

    def observe_containers(self, uid: str, now: Moment) -> Sequence[ContainerView]:
        containers = self._runtime.observe_containers(uid, now)
        self._log_run(uid, any(view.exit is None for view in containers), now.monotonic)
        return containers

    def remove(self, uid: str) -> None:
        self._runtime.remove(uid)
        self._log_run(uid, False, self._clock.monotonic())
        self._pods.pop(uid, None)

    def kill_leftovers(self, uid: str) -> None:
        self._runtime.kill_leftovers(uid)

    def retain_pods(self, nodes: Collection[str], uids: Collection[str]) -> None:
        self._runtime.retain_pods(nodes, uids)

    def close(self) -> None:
        self._runtime.close()

    def _log_run(self, uid: str, running: bool, at: float) -> None:
        pod = self._pods.get(uid)
        if pod is not None and pod.running != running:
            pod.running = running
            what: Literal["started", "stopped"] = "started" if running else "stopped"
            self._tell(ContainerRun(at, pod.node, uid, pod.key, what))
