"""Logs, exec, attach and port-forward of simulated containers. Implements kubelet.runtime.interface.Streams.

    Logs, Attach  --> simulated_log: lines that are computed from the start of the container and the time of the request
    Exec          --> simulated_shell with simulated_programs; input and output in simulated_terminal
    PortForward   --> simulated_http: a page that names the pod, on every port

Nothing exists for a pod until a request names it, and a request needs a bounded amount of memory: a log is computed in chunks
when the client has read the chunk before, and commands wait for their client. Commands and connections beyond MAX_SESSIONS are
refused.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecExit,
    ExecResponse,
    ExecStart,
    LogOptions,
    LogsRequest,
    PortForwardRequest,
    PortForwardResponse,
    PortForwardStart,
)
from pinnace.api.status import Code
from pinnace.kubelet.runtime.interface import ContainerState, ContainerView, StreamError
from pinnace.kubelet.runtime.simulated_http import HttpPage
from pinnace.kubelet.runtime.simulated_log import SECOND, ContainerLog, default_lines, format_rfc3339
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot, SimulatedMachine
from pinnace.kubelet.runtime.simulated_programs import BUILTINS, PROGRAMS
from pinnace.kubelet.runtime.simulated_shell import Interrupted, Shell
from pinnace.kubelet.runtime.simulated_terminal import CommandIo, OutputLimit
from pinnace.kubelet.runtime.stages import Stages
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

CHUNK = 8 << 10
"""Bytes of log lines that are computed at once: about a millisecond, so that heartbeats are not late."""
POLL = 1.0
"""Maximum seconds between two checks whether the container of a followed log has ended."""
MAX_SESSIONS = 256
"""Commands and forwarded connections of a kubelet process."""
SESSION_SECONDS = 3600.0
"""Duration of a command, after which it is killed."""
IDLE_SECONDS = 300.0
"""Seconds without data, after which a forwarded connection is closed."""
KILLED, INTERRUPTED = 137, 130


class SimulatedStreams:
    def __init__(self, find_pod: Callable[[str], PodSnapshot | None], stages: Stages, clock: Clock = SYSTEM_CLOCK) -> None:
        """`find_pod`: returns the pod with this uid, or None if the kubelet does not run it."""
        self._find_pod = find_pod
        self._stages = stages
        self._clock = clock
        self._sessions = 0
        self._turn = asyncio.Lock()

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        options = request.options
        log, ended = self._open_log(self._get_pod_snapshot(request.uid, request.name), options.container, options.previous)
        now = round(self._clock.time() * SECOND)
        until = now if ended is None else ended
        after = log.start_time_of_tail(
            options.tailLines if options.HasField("tailLines") else None, _since_time(options, now), until
        )
        follow = self._follow_log(request.uid, options, log, ended, after)
        remaining = options.limitBytes if options.HasField("limitBytes") else None
        async with aclosing(follow) as chunks:
            async for chunk in chunks:
                yield chunk[:remaining]
                if remaining is not None and (remaining := remaining - len(chunk)) <= 0:
                    return

    async def _follow_log(
        self, uid: str, options: LogOptions, log: ContainerLog, ended: int | None, after: int
    ) -> AsyncGenerator[bytes, None]:
        """The lines after this time, in chunks. Without `options.follow`, those that exist now."""
        while True:
            now = round(self._clock.time() * SECOND)
            until = now if ended is None else ended
            lines = log.read(after, until, timestamps=options.timestamps)
            while chunk := await self._compute_chunk(lines):
                yield chunk
            after = max(after, until)
            if ended is not None or not options.follow:
                return
            following = log.next_time(after)
            pause = POLL if following is None else max(0.001, (following - now) / SECOND)
            await self._clock.sleep(min(POLL, pause))
            ended = self._end_of_attempt(uid, options.container, log)

    async def _compute_chunk(self, lines: Iterator[tuple[int, str]]) -> bytes:
        """The next lines; empty at the end. One chunk is computed in a turn of the event loop, for all readers together."""
        async with self._turn:
            await asyncio.sleep(0)
            chunk: list[str] = []
            size = 0
            for _, line in lines:
                chunk.append(line)
                size += len(line)
                if size >= CHUNK:
                    break
            return "".join(chunk).encode()

    def _end_of_attempt(self, uid: str, container: str, log: ContainerLog) -> int | None:
        """When the followed attempt has ended. None: it runs."""
        snapshot = self._find_pod(uid)
        view = snapshot.view(container) if snapshot is not None else None
        if view is not None and view.state is ContainerState.RUNNING and view.attempt == log.attempt:
            return None
        if view is not None and view.exit is not None and view.attempt == log.attempt:
            return _last_log_time(log, view.exit.finished.unix)
        return round(self._clock.time() * SECOND)

    def _open_log(self, snapshot: PodSnapshot, container: str, previous: bool) -> tuple[ContainerLog, int | None]:
        """The log of an attempt, and its last time; None while it runs. Raises StreamError."""
        view, name = snapshot.view(container), snapshot.pod.metadata.name
        finished: float | None
        waits = view is None or view.state is ContainerState.CREATED
        if view is not None and (previous or waits) and view.last_exit is not None:
            started, finished, attempt = view.last_exit.started.unix, view.last_exit.finished.unix, view.attempt - 1
        elif previous:
            raise _bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        elif view is None or waits:
            raise _bad_request(f'container "{container}" in pod "{name}" is waiting to start')
        else:
            started, finished, attempt = _attempt_times(view)
        log = self._log_of_attempt(snapshot, container, attempt, started)
        return log, None if finished is None else _last_log_time(log, finished)

    def _log_of_attempt(self, snapshot: PodSnapshot, container: str, attempt: int, started: float) -> ContainerLog:
        pod, image = snapshot.pod, snapshot.container(container).image
        lines = self._stages.log_lines(pod, container)
        values = {
            "container": container,
            "pod": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "image": image,
            "node": pod.spec.nodeName,
            "ip": snapshot.addresses.pod,
            "host": snapshot.addresses.host,
        }
        return ContainerLog(default_lines(image) if lines is None else lines, values, started, pod.metadata.uid, attempt)

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        snapshot = self._find_running_pod(start.uid, start.container, start.name)
        if start.check:
            return
        with self._count_session():
            machine = SimulatedMachine(snapshot, start.container, self._clock.time)
            io = CommandIo(self._clock, terminal=start.tty, has_input=start.stdin)
            shell = Shell(machine, io, PROGRAMS, BUILTINS)
            running = asyncio.ensure_future(self._run(shell, start, io))
            tasks: list[asyncio.Future[Any]] = [running]
            if start.stdin:
                tasks.append(asyncio.ensure_future(io.pump(stdin)))
            try:
                while (response := await io.responses.get()) is not None:
                    yield response
                yield ExecResponse(exit=ExecExit(code=await running))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, shell: Shell, start: ExecStart, io: CommandIo) -> int:
        """Run the command, and end the output."""
        command = asyncio.ensure_future(shell.run_program(start.command))
        deadline = asyncio.ensure_future(self._clock.sleep(SESSION_SECONDS))
        container = asyncio.ensure_future(self._until_stopped(start))
        try:
            await asyncio.wait((command, deadline, container), return_when=asyncio.FIRST_COMPLETED)
            code = command.result() if command.done() else KILLED
        except Interrupted:
            code = INTERRUPTED
        except OutputLimit:
            code = KILLED
        finally:
            for task in (command, deadline, container):
                task.cancel()
            await asyncio.gather(command, deadline, container, return_exceptions=True)
        await io.end_output()
        return code

    async def _until_stopped(self, start: ExecStart) -> None:
        """Wait for the end of the container."""
        attempt = self._running_attempt(start.uid, start.container)
        while attempt is not None and attempt == self._running_attempt(start.uid, start.container):
            await self._clock.sleep(POLL)

    def _running_attempt(self, uid: str, container: str) -> int | None:
        """The number of the running attempt. None: the container does not run."""
        snapshot = self._find_pod(uid)
        view = snapshot.view(container) if snapshot is not None else None
        return view.attempt if view is not None and view.state is ContainerState.RUNNING else None

    async def attach(self, request: AttachRequest) -> AsyncGenerator[ExecResponse, None]:
        snapshot = self._find_running_pod(request.uid, request.container, request.name)
        if request.check:
            return
        log, ended = self._open_log(snapshot, request.container, previous=False)
        options = LogOptions(container=request.container, follow=True)
        follow = self._follow_log(request.uid, options, log, ended, round(self._clock.time() * SECOND))
        async with aclosing(follow) as chunks:
            async for chunk in chunks:
                if request.stdout:
                    yield ExecResponse(stdout=chunk)

    async def port_forward(
        self, start: PortForwardStart, sent: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[PortForwardResponse, None]:
        snapshot = self._get_pod_snapshot(start.uid, start.name)
        if not start.port:
            return
        with self._count_session():
            page = HttpPage(lambda method, path: self._describe_request(snapshot, start.port, method, path), self._clock.time)
            yield PortForwardResponse()
            while not page.closed:
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        request = await anext(sent, None)
                except TimeoutError:
                    return
                if request is None or request.closeWrite or self._find_pod(start.uid) is None:
                    return
                if answers := page.feed(request.data):
                    yield PortForwardResponse(data=answers)

    def _describe_request(self, snapshot: PodSnapshot, port: int, method: str, path: str) -> str:
        pod, addresses = snapshot.pod, snapshot.addresses
        containers = pod.spec.containers
        owner = next(
            (container for container in containers if any(one.containerPort == port for one in container.ports)), containers[0]
        )
        rows = {
            "pod": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "container": owner.name,
            "image": owner.image,
            "node": pod.spec.nodeName,
            "address": f"{addresses.pod}:{port}",
            "time": format_rfc3339(round(self._clock.time() * SECOND)),
            "request": f"{method} {path}",
        }
        return "".join(f"{name + ':':<11}{value}\n" for name, value in {**rows, "note": "this container is simulated"}.items())

    def _get_pod_snapshot(self, uid: str, name: str) -> PodSnapshot:
        """Raises StreamError."""
        snapshot = self._find_pod(uid)
        if snapshot is None:
            raise StreamError(Code.NOT_FOUND, f'pod "{name}" is not on the nodes of this kubelet, or its node is off')
        return snapshot

    def _find_running_pod(self, uid: str, container: str, name: str) -> PodSnapshot:
        """Raises StreamError."""
        snapshot = self._get_pod_snapshot(uid, name)
        if self._running_attempt(uid, container) is None:
            raise _bad_request(f'container "{container}" in pod "{name}" is not running')
        return snapshot

    @contextmanager
    def _count_session(self) -> Iterator[None]:
        """Raises StreamError."""
        if self._sessions >= MAX_SESSIONS:
            message = f"this kubelet already runs {MAX_SESSIONS} commands and forwarded connections; close some, or try later"
            raise StreamError(Code.RESOURCE_EXHAUSTED, message)
        self._sessions += 1
        try:
            yield
        finally:
            self._sessions -= 1


def _attempt_times(view: ContainerView) -> tuple[float, float | None, int]:
    """Start and end in Unix seconds, and the attempt, of a container that runs or has ended."""
    if view.exit is not None:
        return view.exit.started.unix, view.exit.finished.unix, view.attempt
    assert view.started is not None
    return view.started.unix, None, view.attempt


def _last_log_time(log: ContainerLog, finished: float) -> int:
    """The last time of a log. The lines of the start are always part of it."""
    return max(log.start_written, int(finished) * SECOND)


def _since_time(options: LogOptions, now: int) -> int:
    if options.HasField("sinceSeconds"):
        return now - options.sinceSeconds * SECOND
    if options.HasField("sinceTime"):
        return options.sinceTime.seconds * SECOND + options.sinceTime.nanos
    return 0


def _bad_request(message: str) -> StreamError:
    return StreamError(Code.INVALID_ARGUMENT, message)
