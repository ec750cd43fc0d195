"""Implements Runtime with local processes.

    <root>/lock                                    one kubelet at a time
    <root>/pods/<uid>/node, address                the pod's node and address
    <root>/pods/<uid>/hosts, resolv.conf           /etc/hosts and /etc/resolv.conf of its containers
    <root>/pods/<uid>/volumes/<volume>             emptyDirs, and the files of ConfigMaps, Secrets and the downward API
    <root>/pods/<uid>/containers/<name>/root       the container's start directory (see plan)
    <root>/pods/<uid>/containers/<name>/<attempt>  one run of it (see files); the last two are kept
    <root>/removed/<uid>.<number>                  pods that are being killed and removed

The directories hold all state of a container, and its shim continues to write while no kubelet runs. A kubelet that starts
adopts what it finds, and starts nothing twice. A removed pod is moved away at once, so that another pod with its uid finds
nothing of it.

An attempt:

    begin --> created --the process runs--> running --it has ended--> exited
       '------- could not be started --------------------------------^
    find: whichever of these an earlier kubelet has left

If a shim ends without a record of the exit, its process is dead too: exit code 137.
"""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pinnace.api.core_v1_pb2 import Container, ContainerStatus, Pod
from pinnace.api.pods import all_containers
from pinnace.api.scalars import to_seconds
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import (
    ContainerCall,
    ContainerExit,
    ContainerState,
    ContainerView,
    Moment,
    UnsupportedPod,
    read_clocks,
    reported_exit,
    to_past_moment,
)
from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.files import BindMount, ExitRecord, ProcessPlan, RunningRecord
from pinnace.kubelet.runtime.process.handlers import AttemptCalls
from pinnace.kubelet.runtime.process.host_names import HOSTS, NO_DNS, RESOLVER, ClusterDns, host_name, hosts_file, resolver_file
from pinnace.kubelet.runtime.process.images import ImageTable
from pinnace.kubelet.runtime.process.objects import NO_OBJECTS, MissingObject, Objects
from pinnace.kubelet.runtime.process.plan import (
    CREDENTIALS_PATH,
    KUBECONFIG,
    NO_IMAGES,
    build_process_plan,
    credentials_kubeconfig,
    link_volumes,
    make_volumes,
    read_only_volumes,
    read_running_plan,
    volume_paths,
)
from pinnace.kubelet.runtime.process.root import (
    ADDRESS,
    NODE,
    RuntimeRoot,
    is_shim_alive,
    kill_pod_containers,
    kill_shim,
    reap_shim,
    remove_pod,
    request_pod_kill,
    shim_pidfd,
    start_shim,
    stop_shim,
)
from pinnace.kubelet.service_variables import VariableSource, no_services
from pinnace.runtime import procfs
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.procfs import ProcessIdentity

LOST = 137
START_ERROR = 128
POLL = 0.05
"""Seconds between checks of a shim that an earlier kubelet has just started."""
log = logging.getLogger(__name__)
KEPT = 2
"""The attempts whose directories are kept: the latest, and the previous one for `logs --previous`."""


def kill_session(running: RunningRecord) -> None:
    """Kill the session of the process. While a process is in the session, the kernel does not reuse its number. So if another
    process has this number, no process of the session remains.
    """
    leader = ProcessIdentity(running["pid"], running["started"], running["boot"])
    if leader.boot != procfs.read_boot_id() or procfs.identify_process(leader.pid) not in (None, leader):
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[3] == str(leader.pid):
                    os.kill(int(entry.name), signal.SIGKILL)


class ContainerAttempt:
    """Call `start_attempt` or `adopt_from_directory` first. `stop_grace`: the grace period of the last stop request."""

    def __init__(self, folder: Path, number: int, changed: Callable[[], None], clock: Clock) -> None:
        self.folder = folder
        self.number = number
        self.started: Moment | None = None
        self.exit: ContainerExit | None = None
        self.stop_grace: float | None = None
        self._notify_change = changed
        self._clock = clock
        self._deadline: float | None = None
        self._pid = 0  # of a shim that is a child of this process
        self._pidfd: int | None = None
        self._ready: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> ContainerState:
        if self.exit is not None:
            return ContainerState.EXITED
        return ContainerState.RUNNING if self.started is not None else ContainerState.CREATED

    @property
    def log(self) -> Path:
        return self.folder / files.LOG

    def start_attempt(self, plan: ProcessPlan, now: Moment) -> None:
        """Start the attempt. If this fails, it has exited with the reason."""
        try:
            self.folder.mkdir(parents=True)
            files.write_record(str(self.folder / files.PLAN), plan)
            self._pid, self._ready = start_shim(self.folder)
            self._pidfd = os.pidfd_open(self._pid)
        except OSError as error:
            self.fail_start(str(error), now)
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ready, self._handle_process_start)
        loop.add_reader(self._pidfd, self._handle_shim_exit)

    def fail_start(self, why: str, now: Moment) -> None:
        """The attempt could not be started."""
        self.exit = ContainerExit(START_ERROR, now, now, "StartError", why)

    def adopt_from_directory(self, now: Moment) -> None:
        """Adopt the attempt in the directory."""
        if (stop := files.read_record(str(self.folder / files.STOP))) is not None:
            self.stop_grace, self._deadline = stop["grace"], stop["deadline"]
        self._adopt_shim(now)

    def stop(self, grace: float, now: Moment) -> None:
        """Implement Runtime.stop. Raises OSError if the disk is full; the caller calls it again. When the grace period is
        over, the process is killed, which needs no disk space.
        """
        if self.exit is None:
            deadline = now.after(grace).monotonic
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
            try:
                stop_shim(self.folder, grace, self._deadline)
            except OSError:
                if now.monotonic < self._deadline:
                    raise
                kill_shim(self.folder)
            self.stop_grace = grace

    def stop_observing(self) -> None:
        """Stop observing; the attempt continues."""
        loop = asyncio.get_running_loop()
        for descriptor in (self._ready, self._pidfd):
            if descriptor is not None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._ready = self._pidfd = None
        if self._timer is not None:
            self._timer.cancel()

    def _adopt_shim(self, now: Moment) -> None:
        """Wait for an attempt of an earlier kubelet, in any state."""
        self._timer = None
        alive = is_shim_alive(self.folder)
        if alive and self._pidfd is None and (descriptor := shim_pidfd(self.folder)) is not None:
            self._pidfd = descriptor
            self._pid = int((self.folder / files.LOCK).read_text())
            asyncio.get_running_loop().add_reader(descriptor, self._handle_shim_exit)
        self._read_running(now)
        if not alive:
            self._read_exit(now)
        elif self._pidfd is None or self.started is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._adopt_shim_again)

    def _adopt_shim_again(self) -> None:
        before = self.state
        self._adopt_shim(read_clocks(self._clock))
        if self.state is not before:
            self._notify_change()

    def _handle_process_start(self) -> None:
        """The shim has closed its descriptor: the process runs, or the shim has exited."""
        assert self._ready is not None
        asyncio.get_running_loop().remove_reader(self._ready)
        os.close(self._ready)
        self._ready = None
        if self.exit is None and self.started is None:
            self._read_running(read_clocks(self._clock))
            if self.started is not None:
                self._notify_change()

    def _handle_shim_exit(self) -> None:
        """The shim has exited."""
        now = read_clocks(self._clock)
        reap_shim(self._pid)
        self.stop_observing()
        self._read_running(now)
        self._read_exit(now)
        self._notify_change()

    def _read_running(self, now: Moment) -> None:
        running: RunningRecord | None = files.read_record(str(self.folder / files.RUNNING))
        if running is not None and self.started is None:
            self.started = to_past_moment(running["at"], now)

    def _read_exit(self, now: Moment) -> None:
        ended: ExitRecord | None = files.read_record(str(self.folder / files.EXIT))
        if ended is not None:
            started = self.started or to_past_moment(ended["started"], now)
            finished = max(started, to_past_moment(ended["finished"], now))
            self.exit = ContainerExit(ended["code"], started, finished, ended["reason"], ended["message"])
            return
        if (running := files.read_record(str(self.folder / files.RUNNING))) is not None:
            kill_session(running)
        message = "the shim exited without a record of the exit: it was killed, or the machine was rebooted"
        self.exit = ContainerExit(LOST, self.started or now, now, "ContainerStatusUnknown", message)


class _Sandbox:
    """One pod."""

    def __init__(self, pod: Pod, addresses: PodAddresses, folder: Path) -> None:
        self.pod = pod
        self.addresses = addresses
        self.folder = folder
        self.containers: dict[str, _LatestAttempt] = {}

    def container(self, name: str) -> Container:
        return next(item for item in all_containers(self.pod.spec) if item.name == name)

    def home(self, container: str) -> Path:
        return self.folder / "containers" / container


class _LatestAttempt:
    """The latest attempt of one container."""

    def __init__(self, attempt: ContainerAttempt, last_exit: ContainerExit | None, calls: AttemptCalls) -> None:
        self.attempt = attempt
        self.last_exit = last_exit
        self.calls = calls

    def view(self, name: str) -> ContainerView:
        attempt = self.attempt
        return ContainerView(
            name, attempt.number, attempt.state, attempt.started, attempt.exit, self.last_exit, attempt.stop_grace, None,
            self.calls.call_views,
        )  # fmt: skip


class ProcessRuntime:
    """All methods run on the event loop and do not block."""

    def __init__(
        self,
        root: RuntimeRoot,
        clock: Clock = SYSTEM_CLOCK,
        services: VariableSource = no_services,
        *,
        objects: Callable[[str], Objects] = lambda uid: NO_OBJECTS,
        images: ImageTable = NO_IMAGES,
        mounts: bool = False,
        dns: ClusterDns = NO_DNS,
    ) -> None:
        """`services`: the variables of services, which a container gets when it starts. `objects`: the objects to which a pod
        refers, by uid. `mounts`: whether containers get a mount namespace. `dns`: the DNS server of the cluster.
        """
        self._root = root
        self._clock = clock
        self._services = services
        self._objects = objects
        self._images = images
        self._mounts = mounts
        self._dns = dns
        self._pods: dict[str, _Sandbox] = {}
        self._notify: Callable[[str], None] = lambda uid: None
        self._removals: set[asyncio.Task[None]] = set()
        self._removing = asyncio.Lock()

    def set_listener(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        for folder in self._root.removed_pod_directories():
            if folder not in self._root.removing:
                self._start_removal(folder)

    def prepare_pod(self, pod: Pod, addresses: PodAddresses) -> None:
        sandbox = _Sandbox(pod, addresses, self._root.pod_directory(pod.metadata.uid))
        where = volume_paths(pod, sandbox.folder / "volumes")
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            home = sandbox.home(container.name) / "root"
            build_process_plan(pod, container, addresses, home, where, objects=None, images=self._images)
        try:
            _make_pod_folder(sandbox)
        except (OSError, UnsupportedPod) as error:
            shutil.rmtree(sandbox.folder, ignore_errors=True)
            raise UnsupportedPod(str(error)) from None
        self._adopt_containers(
            sandbox, read_clocks(self._clock)
        )  # a kubelet that was killed before it could report has already started it

    def adopt_pod(self, pod: Pod, now: Moment) -> None:
        addresses = PodAddresses(pod.status.hostIP, pod.status.podIP)
        sandbox = _Sandbox(pod, addresses, self._root.pod_directory(pod.metadata.uid))
        with suppress(OSError, UnsupportedPod):  # then the started attempt is the status
            _make_pod_folder(sandbox)
        self._adopt_containers(sandbox, now)

    def resize_pod(self, pod: Pod) -> None:
        """Memory limits and images count when a process starts. Running processes keep theirs."""
        self._pods[pod.metadata.uid].pod = pod

    def start(self, uid: str, container: str, attempt: int, now: Moment) -> None:
        sandbox = self._pods[uid]
        before = sandbox.containers.get(container)
        home = sandbox.home(container)
        begun = self._new_attempt(sandbox, container, attempt)
        sandbox.containers[container] = self._new_latest_attempt(sandbox, begun, before.attempt.exit if before else None)
        try:
            plan = self._plan_process(sandbox, sandbox.container(container), home / "root")
        except (OSError, ValueError, UnsupportedPod, MissingObject) as error:  # ValueError: a null character in a path
            begun.fail_start(str(error), now)
        else:
            begun.start_attempt(plan, now)
        shutil.rmtree(home / str(attempt - KEPT), ignore_errors=True)

    def _plan_process(self, sandbox: _Sandbox, container: Container, root: Path) -> ProcessPlan:
        """Raises OSError, ValueError, Unsupported and MissingObject."""
        pod, objects = sandbox.pod, self._objects(sandbox.pod.metadata.uid)
        where = volume_paths(pod, sandbox.folder / "volumes", objects)
        make_volumes(pod, where, objects)
        plan = build_process_plan(
            pod, container, sandbox.addresses, root, where, self._services(pod), objects=objects, images=self._images
        )
        mounts = link_volumes(container, root, where, plan["env"])
        hidden = any(root.is_relative_to(os.path.realpath(mount["target"])) for mount in mounts)
        if self._mounts and not hidden:
            read_only = read_only_volumes(pod)
            names = {mount.mountPath: mount.name for mount in container.volumeMounts}
            plan["mounts"] = [
                {**mount, "read_only": mount["read_only"] or names[mount["target"]] in read_only} for mount in mounts
            ]
            plan["mounts"] += [mount for mount in self._write_name_files(sandbox) if mount["target"] not in names]
            plan["hostname"] = host_name(pod, self._dns.domain)
            if (wanted := container.workingDir).startswith("/"):
                plan["cwd"] = wanted
        else:
            self._provide_kubeconfig(sandbox, container, where, plan["env"])
        return plan

    def _write_name_files(self, sandbox: _Sandbox) -> list[BindMount]:
        """Write /etc/hosts and /etc/resolv.conf of the pod, and return their mounts. Raises OSError."""
        pod, machine = sandbox.pod, Path(RESOLVER)
        contents = {
            HOSTS: hosts_file(pod, sandbox.addresses.pod, self._dns.domain),
            RESOLVER: resolver_file(pod, self._dns, machine.read_text() if machine.is_file() else ""),
        }
        mounts = []
        for target, text in contents.items():
            if text is not None:
                source = sandbox.folder / Path(target).name
                if not source.exists() or target == RESOLVER:  # a container may have changed its /etc/hosts
                    source.write_text(text)
                mounts.append(BindMount(source=str(source), target=target, read_only=False))
        return mounts

    def _provide_kubeconfig(
        self, sandbox: _Sandbox, container: Container, where: Mapping[str, str], environment: dict[str, str]
    ) -> None:
        """Set KUBECONFIG in a container whose credentials are not at their path, because it has no mount namespace."""
        name = next((mount.name for mount in container.volumeMounts if mount.mountPath == CREDENTIALS_PATH), "")
        text = credentials_kubeconfig(where.get(name, ""), environment, sandbox.pod.metadata.namespace)
        if text and KUBECONFIG not in environment:
            path = sandbox.home(container.name) / "kubeconfig"
            path.write_text(text)
            environment[KUBECONFIG] = str(path)

    def stop(self, uid: str, container: str, grace: float, now: Moment) -> None:
        self._pods[uid].containers[container].attempt.stop(grace, now)

    def crash_container(self, uid: str, container: str, attempt: int, code: int, now: Moment) -> None:
        """With SIGKILL, regardless of the code."""
        sandbox = self._pods.get(uid)
        ran = sandbox.containers.get(container) if sandbox is not None else None
        if ran is not None and ran.attempt.number == attempt:
            ran.attempt.stop(0.0, now)

    def call(self, uid: str, container: str, call: ContainerCall, now: Moment) -> None:
        sandbox = self._pods[uid]
        ran = sandbox.containers[container]
        ran.calls.begin_call(call, read_running_plan(ran.attempt.folder), sandbox.addresses.pod, now)

    def observe_containers(self, uid: str, now: Moment) -> Sequence[ContainerView]:
        sandbox = self._pods.get(uid)
        return [ran.view(name) for name, ran in sandbox.containers.items()] if sandbox else ()

    def remove(self, uid: str) -> None:
        if (sandbox := self._pods.pop(uid, None)) is not None:
            for ran in sandbox.containers.values():
                ran.attempt.stop_observing()
                ran.calls.cancel_calls("the pod was deleted")
        if (folder := self._root.pod_directory(uid)).exists():
            self._start_removal(self._root.move_to_removed(folder))

    def kill_leftovers(self, uid: str) -> None:
        if request_pod_kill(folder := self._root.pod_directory(uid)):
            log.warning("pod %s finished while no kubelet ran: killing its processes", uid)
            self._track_removal(kill_pod_containers(folder, self._clock))

    def retain_pods(self, nodes: Collection[str], uids: Collection[str]) -> None:
        for folder in self._root.pod_directories():
            if folder.name not in uids and folder.name not in self._pods and self._root.read_pod_node(folder) in nodes:
                log.warning("pod %s was deleted while no kubelet ran: killing its processes", folder.name)
                self._start_removal(self._root.move_to_removed(folder))

    def close(self) -> None:
        """The removal of deleted pods continues."""
        for sandbox in self._pods.values():
            for ran in sandbox.containers.values():
                ran.attempt.stop_observing()
                ran.calls.cancel_calls("the kubelet restarts")
        self._pods.clear()

    async def settled(self) -> None:
        """Wait until removed pods are deleted, and the processes of finished pods have exited."""
        await asyncio.gather(*self._removals)

    def _start_removal(self, folder: Path) -> None:
        self._root.removing.add(folder)
        removal = self._track_removal(remove_pod(folder, self._clock, self._removing))
        removal.add_done_callback(lambda _: self._root.removing.discard(folder))

    def _track_removal(self, removal: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(removal)
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
        return task

    def _new_attempt(self, sandbox: _Sandbox, container: str, number: int) -> ContainerAttempt:
        changed = partial(self._notify_change, sandbox)
        return ContainerAttempt(sandbox.home(container) / str(number), number, changed, self._clock)

    def _new_latest_attempt(
        self, sandbox: _Sandbox, attempt: ContainerAttempt, last_exit: ContainerExit | None
    ) -> _LatestAttempt:
        return _LatestAttempt(attempt, last_exit, AttemptCalls(partial(self._notify_change, sandbox), self._clock))

    def _notify_change(self, sandbox: _Sandbox) -> None:
        for ran in sandbox.containers.values():
            if ran.attempt.exit is not None:
                ran.calls.cancel_calls("the container has exited")
        self._notify(sandbox.pod.metadata.uid)

    def _adopt_containers(self, sandbox: _Sandbox, now: Moment) -> None:
        """Adopt the containers of a pod."""
        pod = sandbox.pod
        self._pods[pod.metadata.uid] = sandbox
        reported = pod.status
        groups = (reported.initContainerStatuses, reported.containerStatuses, reported.ephemeralContainerStatuses)
        statuses = {status.name: status for group in groups for status in group}
        for container in all_containers(pod.spec):
            if ran := self._adopt_container(sandbox, container.name, statuses.get(container.name), now):
                sandbox.containers[container.name] = ran

    def _adopt_container(
        self, sandbox: _Sandbox, name: str, status: ContainerStatus | None, now: Moment
    ) -> _LatestAttempt | None:
        """Adopt a container. If its directories are missing, its reported status is used. None: it never ran."""
        last_exit = reported_exit(status.lastState, now) if status is not None else None
        numbers = sorted(int(path.name) for path in sandbox.home(name).glob("[0-9]*"))
        if numbers:
            attempts = [self._new_attempt(sandbox, name, number) for number in numbers[-KEPT:]]
            for attempt in attempts:
                attempt.adopt_from_directory(now)
            return self._new_latest_attempt(sandbox, attempts[-1], attempts[0].exit if len(attempts) > 1 else last_exit)
        if status is None:
            return None
        attempt = self._new_attempt(sandbox, name, status.restartCount)
        attempt.exit = reported_exit(status.state, now)
        if status.state.HasField("running"):
            started = to_past_moment(to_seconds(status.state.running.startedAt), now)
            attempt.exit = ContainerExit(
                LOST, started, now, "ContainerStatusUnknown", "the directory of the container does not exist"
            )
        if attempt.exit is None:  # it waits for a restart, and the last state has its end
            attempt.exit, last_exit = last_exit, None
        return self._new_latest_attempt(sandbox, attempt, last_exit) if attempt.exit is not None else None


def _make_pod_folder(sandbox: _Sandbox) -> None:
    """The pod's directory. Raises OSError and Unsupported."""
    pod, folder = sandbox.pod, sandbox.folder
    where = volume_paths(pod, folder / "volumes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NODE).write_text(pod.spec.nodeName)
    (folder / ADDRESS).write_text(sandbox.addresses.pod)
    try:
        make_volumes(pod, where)
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            home = sandbox.home(container.name)
            home.mkdir(parents=True, exist_ok=True)
            link_volumes(container, home / "root", where)
    except ValueError as error:  # such as a null character, which the API rejects now
        raise UnsupportedPod(f"invalid path of a volume: {error}") from None
