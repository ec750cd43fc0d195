"""A runtime without processes: containers that only pass through their states, as fast as they are told to.

What a container does is said by stages (kubelet.stages), and by annotations of its pod (kubelet.behaviour). A container that is
still there when its grace ends is killed: exit code 137 (128 + SIGKILL). Hooks and probes end as declared, whatever they would
call; only `sleep` sleeps.
Thousands of containers cost nothing while nothing happens: state is computed when it is looked at.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kubelet.addresses import Addresses
from kubelet.behaviour import Behaviour, Script, script
from kubelet.reported import reported_exit
from kubelet.runtime import Call, CallKind, CallView, ContainerState, ContainerView, Exit, Instant, Unsupported, past
from kubelet.stages import Stages
from pinnace.api.core_v1_pb2 import ContainerStatus, Pod, SleepAction
from pinnace.api.scalars import to_seconds

KILLED = 137
NO_STAGES = Stages(())


class _Attempt(NamedTuple):
    """What is going to happen to a container, unless somebody stops it."""

    name: str
    number: int
    starts: Instant
    ends: Instant | None
    code: int
    stop_grace: float | None
    last_exit: Exit | None
    calls: tuple[CallView, ...] = ()
    """As they are going to end."""
    reason: str = ""
    """That was reported of its end; see Exit."""

    def view(self, now: Instant) -> ContainerView:
        if self.ends is not None and now.monotonic >= self.ends.monotonic:
            exit_ = Exit(self.code, min(self.starts, self.ends), self.ends, self.reason)
            return self._view(ContainerState.EXITED, exit_.started, exit_, None, now)
        if now.monotonic < self.starts.monotonic:
            return self._view(ContainerState.CREATED, None, None, self.starts.monotonic, now)
        return self._view(ContainerState.RUNNING, self.starts, None, self.ends.monotonic if self.ends else None, now)

    def _view(
        self, state: ContainerState, started: Instant | None, exit_: Exit | None, changes_at: float | None, now: Instant
    ) -> ContainerView:
        calls = tuple(_seen(call, now) for call in self.calls) if self.calls else ()
        return ContainerView(self.name, self.number, state, started, exit_, self.last_exit, self.stop_grace, changes_at, calls)


def _seen(planned: CallView, now: Instant) -> CallView:
    if planned.ended is None or now.monotonic >= planned.ended.monotonic:
        return planned
    return planned._replace(ended=None, failure="", changes_at=planned.ended.monotonic)


class _PodSandbox:
    __slots__ = ("attempts", "script")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.attempts: dict[str, _Attempt] = {}


class FakeRuntime:
    """Implements kubelet.runtime.Runtime."""

    def __init__(self, default: Behaviour, stages: Stages = NO_STAGES) -> None:
        """`default`: of containers of which neither a stage nor an annotation says something."""
        self._default = default
        self._stages = stages
        self._unscripted = Script(default, {})
        self._pods: dict[str, _PodSandbox] = {}

    def listen(self, notify: Callable[[str], None]) -> None:
        """Whatever happens is foreseen."""

    def prepare(self, pod: Pod, addresses: Addresses) -> None:
        self._pods[pod.metadata.uid] = _PodSandbox(self._script(pod))

    def _script(self, pod: Pod) -> Script:
        """Raises Unsupported."""
        behaviour = self._stages.behaviour(pod, self._default)
        if (declared := script(pod, behaviour)) is not None:
            return declared
        return self._unscripted if behaviour is self._default else Script(behaviour, {})

    def adopt(self, pod: Pod, now: Instant) -> None:
        """A fake container lives on in the status that was reported of it: one that ran keeps its start and its end."""
        try:
            sandbox = _PodSandbox(self._script(pod))
        except Unsupported:  # annotations were edited after the pod was accepted
            sandbox = _PodSandbox(self._unscripted)
        self._pods[pod.metadata.uid] = sandbox
        for status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses):
            if attempt := _resume(status, sandbox.script.of(status.name), now):
                sandbox.attempts[status.name] = attempt

    def resize(self, pod: Pod) -> None:
        """Fake containers use nothing."""

    def start(self, uid: str, container: str, attempt: int, now: Instant) -> None:
        sandbox = self._pods[uid]
        before = sandbox.attempts.get(container)
        declared = sandbox.script.of(container)
        starts = now.after(declared.start_seconds)
        last_exit = before.view(now).exit if before else None
        sandbox.attempts[container] = _plan(container, attempt, starts, declared, last_exit)

    def stop(self, uid: str, container: str, grace: float, now: Instant) -> None:
        sandbox = self._pods[uid]
        attempt, stop_seconds = sandbox.attempts[container], sandbox.script.of(container).stop_seconds
        if now.monotonic < attempt.starts.monotonic:
            ends, code = now, KILLED
        elif attempt.stop_grace is None and stop_seconds <= grace and grace > 0:
            ends, code = now.after(stop_seconds), 0
        else:
            ends, code = now.after(grace), KILLED
        if attempt.ends is not None and attempt.ends <= ends:
            ends, code = attempt.ends, attempt.code
        sandbox.attempts[container] = attempt._replace(ends=ends, code=code, stop_grace=grace)

    def crash(self, uid: str, container: str, attempt: int, code: int, now: Instant) -> None:
        sandbox = self._pods.get(uid)
        found = sandbox.attempts.get(container) if sandbox is not None else None
        if sandbox is None or found is None or found.number != attempt:
            return
        if found.view(now).state is ContainerState.RUNNING:
            sandbox.attempts[container] = found._replace(ends=now, code=code)

    def call(self, uid: str, container: str, call: Call, now: Instant) -> None:
        sandbox = self._pods[uid]
        attempt = sandbox.attempts[container]
        takes, failure = _outcome(call, sandbox.script.of(container), now.monotonic - attempt.starts.monotonic)
        if takes > call.timeout:
            takes, failure = call.timeout, f"timed out after {call.timeout:g} s"
        others = tuple(each for each in attempt.calls if each.kind is not call.kind)
        planned = CallView(call.kind, call.number, now, now.after(takes), failure, None)
        sandbox.attempts[container] = attempt._replace(calls=(*others, planned))

    def observe(self, uid: str, now: Instant) -> Sequence[ContainerView]:
        sandbox = self._pods.get(uid)
        return [attempt.view(now) for attempt in sandbox.attempts.values()] if sandbox else ()

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def end(self, uid: str) -> None:
        """An earlier process leaves nothing."""

    def retain(self, nodes: Collection[str], uids: Collection[str]) -> None:
        """An earlier process leaves nothing."""

    def close(self) -> None:
        """There is nothing that could run on."""


def _outcome(call: Call, declared: Behaviour, age: float) -> tuple[float, str]:
    """How long the call takes, and why it fails, if it does. `age`: seconds that the container has run."""
    match call.kind:
        case CallKind.POST_START:
            takes, code = declared.post_start_seconds, declared.post_start_exit_code
        case CallKind.PRE_STOP:
            takes, code = declared.pre_stop_seconds, declared.pre_stop_exit_code
        case CallKind.STARTUP:
            takes, code = declared.probe_seconds, int(age < declared.started_after_seconds)
        case CallKind.READINESS:
            ready = declared.ready_after_seconds <= age < declared.unready_after_seconds
            takes, code = declared.probe_seconds, int(not ready)
        case CallKind.LIVENESS:
            takes, code = declared.probe_seconds, int(age >= declared.unhealthy_after_seconds)
    if isinstance(call.handler, SleepAction):
        takes = float(call.handler.seconds)
    return takes, f"exit code {code}" if code else ""


def _plan(name: str, number: int, starts: Instant, declared: Behaviour, last_exit: Exit | None) -> _Attempt:
    ends = None if declared.run_seconds is None else starts.after(declared.run_seconds)
    return _Attempt(name, number, starts, ends, declared.exit_code, None, last_exit)


def _resume(status: ContainerStatus, declared: Behaviour, now: Instant) -> _Attempt | None:
    """The attempt that a reported status speaks of; None when it never ran."""
    last_exit = reported_exit(status.lastState, now)
    if status.state.HasField("running"):
        started = past(to_seconds(status.state.running.startedAt), now)
        return _plan(status.name, status.restartCount, started, declared, last_exit)
    ended, before = reported_exit(status.state, now), last_exit
    if ended is None:  # waiting: for its first start, or to be restarted, and then its last state is how it ended
        ended, before = last_exit, None
    if ended is None:
        return None
    number, code = status.restartCount, ended.code
    return _Attempt(status.name, number, ended.started, ended.finished, code, None, before, reason=ended.reason)
