"""Containers as local processes: implements kubelet.runtime.Runtime.

    <root>/lock                                    one kubelet at a time
    <root>/pods/<uid>/node                         which node the pod is on
    <root>/pods/<uid>/volumes/<volume>             emptyDirs
    <root>/pods/<uid>/containers/<name>/root       where the container is started (see volumes)
    <root>/pods/<uid>/containers/<name>/<attempt>  one run of it (see files); the last two are kept
    <root>/removed/<uid>.<number>                  pods that are being killed and removed

Everything that must be known of a container is in its folders, and its shim goes on writing there while no kubelet runs: a
kubelet that starts takes up what it finds, and starts nothing twice. A pod that is removed is moved out of the way at once, so
that another one with its uid would find nothing of it.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from kubelet.addresses import Addresses
from kubelet.process import files, volumes
from kubelet.process.attempt import LOST, Attempt
from kubelet.process.calls import Calls
from kubelet.process.plan import plan
from kubelet.process.root import NODE, Root, bury, end, kill
from kubelet.reported import reported_exit
from kubelet.runtime import Call, ContainerView, Exit, Instant, Unsupported, past, read
from pinnace.api.core_v1_pb2 import Container, ContainerStatus, Pod
from pinnace.api.scalars import to_seconds
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

KEPT = 2
"""Attempts whose folders are kept: the latest, and the one before, for `logs --previous`."""


class _Sandbox:
    """One pod."""

    def __init__(self, pod: Pod, addresses: Addresses, folder: Path) -> None:
        self.pod = pod
        self.addresses = addresses
        self.folder = folder
        self.containers: dict[str, _Ran] = {}

    def container(self, name: str) -> Container:
        return next(each for each in (*self.pod.spec.initContainers, *self.pod.spec.containers) if each.name == name)

    def home(self, container: str) -> Path:
        return self.folder / "containers" / container


class _Ran:
    """The latest attempt at one container."""

    def __init__(self, attempt: Attempt, last_exit: Exit | None, calls: Calls) -> None:
        self.attempt = attempt
        self.last_exit = last_exit
        self.calls = calls

    def view(self, name: str) -> ContainerView:
        attempt = self.attempt
        return ContainerView(
            name, attempt.number, attempt.state, attempt.started, attempt.exit, self.last_exit, attempt.stop_grace, None,
            self.calls.views,
        )  # fmt: skip


class ProcessRuntime:
    """Everything happens on the event loop; nothing waits."""

    def __init__(self, root: Root, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root
        self._clock = clock
        self._pods: dict[str, _Sandbox] = {}
        self._notify: Callable[[str], None] = lambda uid: None
        self._removals: set[asyncio.Task[None]] = set()
        self._removing = asyncio.Lock()

    def listen(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        for folder in self._root.removed():
            if folder not in self._root.burying:
                self._bury(folder)

    def prepare(self, pod: Pod, addresses: Addresses) -> None:
        sandbox = _Sandbox(pod, addresses, self._root.pod(pod.metadata.uid))
        where = volumes.places(pod, sandbox.folder / "volumes")
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            plan(pod, container, addresses, sandbox.home(container.name) / "root", where)
        try:
            _make(sandbox)
        except (OSError, Unsupported) as error:
            shutil.rmtree(sandbox.folder, ignore_errors=True)
            raise Unsupported(str(error)) from None
        self._take_up(sandbox, read(self._clock))  # a kubelet that was killed before it could report has started it already

    def adopt(self, pod: Pod, now: Instant) -> None:
        addresses = Addresses(pod.status.hostIP, pod.status.podIP)
        sandbox = _Sandbox(pod, addresses, self._root.pod(pod.metadata.uid))
        with suppress(OSError, Unsupported):  # then what is started says so
            _make(sandbox)
        self._take_up(sandbox, now)

    def resize(self, pod: Pod) -> None:
        """The memory limit of a process is set when it starts: one that runs keeps its own."""
        self._pods[pod.metadata.uid].pod = pod

    def start(self, uid: str, container: str, attempt: int, now: Instant) -> None:
        sandbox = self._pods[uid]
        before = sandbox.containers.get(container)
        home = sandbox.home(container)
        begun = self._attempt(sandbox, container, attempt)
        sandbox.containers[container] = self._ran(sandbox, begun, before.attempt.exit if before else None)
        try:
            where = volumes.places(sandbox.pod, sandbox.folder / "volumes")
            begun.begin(plan(sandbox.pod, sandbox.container(container), sandbox.addresses, home / "root", where), now)
        except Unsupported as error:  # of a pod that another runtime had accepted
            begun.fail(str(error), now)
        shutil.rmtree(home / str(attempt - KEPT), ignore_errors=True)

    def stop(self, uid: str, container: str, grace: float, now: Instant) -> None:
        self._pods[uid].containers[container].attempt.stop(grace, now)

    def crash(self, uid: str, container: str, attempt: int, code: int, now: Instant) -> None:
        """By SIGKILL, whatever the code."""
        sandbox = self._pods.get(uid)
        ran = sandbox.containers.get(container) if sandbox is not None else None
        if ran is not None and ran.attempt.number == attempt:
            ran.attempt.stop(0.0, now)

    def call(self, uid: str, container: str, call: Call, now: Instant) -> None:
        sandbox = self._pods[uid]
        ran = sandbox.containers[container]
        ran.calls.begin(call, files.read(str(ran.attempt.folder / files.PLAN)), sandbox.addresses.pod, now)

    def observe(self, uid: str, now: Instant) -> Sequence[ContainerView]:
        sandbox = self._pods.get(uid)
        return [ran.view(name) for name, ran in sandbox.containers.items()] if sandbox else ()

    def remove(self, uid: str) -> None:
        if (sandbox := self._pods.pop(uid, None)) is not None:
            for ran in sandbox.containers.values():
                ran.attempt.forget()
                ran.calls.end("the pod was removed")
        if (folder := self._root.pod(uid)).exists():
            self._bury(self._root.put_away(folder))

    def end(self, uid: str) -> None:
        if kill(folder := self._root.pod(uid)):
            log.warning("pod %s has ended while no kubelet looked: what runs of it is killed", uid)
            self._see_to(end(folder, self._clock))

    def retain(self, nodes: Collection[str], uids: Collection[str]) -> None:
        for folder in self._root.pods():
            if folder.name not in uids and folder.name not in self._pods and self._root.node(folder) in nodes:
                log.warning("pod %s was deleted while no kubelet looked: it is killed", folder.name)
                self._bury(self._root.put_away(folder))

    def close(self) -> None:
        """Pods that were removed are removed all the same."""
        for sandbox in self._pods.values():
            for ran in sandbox.containers.values():
                ran.attempt.forget()
                ran.calls.end("the kubelet begins anew")
        self._pods.clear()

    async def settled(self) -> None:
        """Waits until nothing is left of the pods that were removed, and nothing runs of those that were ended."""
        await asyncio.gather(*self._removals)

    def _bury(self, folder: Path) -> None:
        self._root.burying.add(folder)
        removal = self._see_to(bury(folder, self._clock, self._removing))
        removal.add_done_callback(lambda _: self._root.burying.discard(folder))

    def _see_to(self, removal: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(removal)
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
        return task

    def _attempt(self, sandbox: _Sandbox, container: str, number: int) -> Attempt:
        changed = partial(self._changed, sandbox)
        return Attempt(sandbox.home(container) / str(number), number, changed, self._clock)

    def _ran(self, sandbox: _Sandbox, attempt: Attempt, last_exit: Exit | None) -> _Ran:
        return _Ran(attempt, last_exit, Calls(partial(self._changed, sandbox), self._clock))

    def _changed(self, sandbox: _Sandbox) -> None:
        for ran in sandbox.containers.values():
            if ran.attempt.exit is not None:
                ran.calls.end("the container has ended")
        self._notify(sandbox.pod.metadata.uid)

    def _take_up(self, sandbox: _Sandbox, now: Instant) -> None:
        """What there is of a pod."""
        pod = sandbox.pod
        self._pods[pod.metadata.uid] = sandbox
        statuses = {status.name: status for status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)}
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            if ran := self._find(sandbox, container.name, statuses.get(container.name), now):
                sandbox.containers[container.name] = ran

    def _find(self, sandbox: _Sandbox, name: str, status: ContainerStatus | None, now: Instant) -> _Ran | None:
        """What is left of a container; where its folders are gone, what was reported of it. None when it never ran."""
        last_exit = reported_exit(status.lastState, now) if status is not None else None
        numbers = sorted(int(each.name) for each in sandbox.home(name).glob("[0-9]*"))
        if numbers:
            found = [self._attempt(sandbox, name, number) for number in numbers[-KEPT:]]
            for attempt in found:
                attempt.find(now)
            return self._ran(sandbox, found[-1], found[0].exit if len(found) > 1 else last_exit)
        if status is None:
            return None
        attempt = self._attempt(sandbox, name, status.restartCount)
        attempt.exit = reported_exit(status.state, now)
        if status.state.HasField("running"):
            started = past(to_seconds(status.state.running.startedAt), now)
            attempt.exit = Exit(LOST, started, now, "ContainerStatusUnknown", "the container's folder is gone")
        if attempt.exit is None:  # it waits, to be restarted, and how it ended is in its last state
            attempt.exit, last_exit = last_exit, None
        return self._ran(sandbox, attempt, last_exit) if attempt.exit is not None else None


def _make(sandbox: _Sandbox) -> None:
    """The pod's folder. Raises OSError and Unsupported."""
    pod, folder = sandbox.pod, sandbox.folder
    where = volumes.places(pod, folder / "volumes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NODE).write_text(pod.spec.nodeName)
    try:
        volumes.make(pod, where)
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            home = sandbox.home(container.name)
            home.mkdir(parents=True, exist_ok=True)
            volumes.link(container, home / "root", where)
    except ValueError as error:  # as of a null character, which the API refuses by now
        raise Unsupported(f"a path of its volumes cannot be one: {error}") from None
