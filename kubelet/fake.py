"""A runtime without processes: containers that only pass through their states, as fast as they are told to.

What a container does is declared by annotations of its pod, in seconds and numbers; all of its containers do the same.

    pinnace.io/start-seconds   from being created to running                    (default: that of the process)
    pinnace.io/run-seconds     from running to exiting by itself                (default: it runs for ever)
    pinnace.io/exit-code       the code of that exit                            (default: 0)
    pinnace.io/stop-seconds    from being asked to stop to exiting, with code 0 (default: 0)

A container that is still there when its grace ends is killed: exit code 137 (128 + SIGKILL).
Thousands of containers cost nothing while nothing happens: state is computed when it is looked at.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kubelet.addresses import Addresses
from kubelet.reported import reported_exit
from kubelet.runtime import Call, CallView, ContainerState, ContainerView, Exit, Instant, Unsupported, past
from pinnace.api.core_v1_pb2 import ContainerStatus, Pod, SleepAction
from pinnace.api.times import to_seconds

KILLED = 137


@dataclass(frozen=True, slots=True)
class Behaviour:
    start_seconds: float = 0.0
    run_seconds: float | None = None
    exit_code: int = 0
    stop_seconds: float = 0.0


_ANNOTATIONS = {
    "pinnace.io/start-seconds": ("start_seconds", float, math.inf, "seconds, such as 1.5"),
    "pinnace.io/run-seconds": ("run_seconds", float, math.inf, "seconds, such as 1.5"),
    "pinnace.io/exit-code": ("exit_code", int, 256, "a number from 0 to 255"),
    "pinnace.io/stop-seconds": ("stop_seconds", float, math.inf, "seconds, such as 1.5"),
}
"""Annotation -> field of Behaviour, type, what the value must be below, and that in words."""


def behaviour(pod: Pod, default: Behaviour) -> Behaviour:
    """What the annotations of a pod say. Raises Unsupported for a value that makes no sense."""
    annotations = pod.metadata.annotations
    declared: dict[str, Any] = {}
    for name, (field, kind, limit, words) in _ANNOTATIONS.items():
        if name in annotations:
            try:
                value = kind(annotations[name])
            except ValueError:
                value = -1
            if not 0 <= value < limit:
                raise Unsupported(f'annotation {name}: "{annotations[name]}" is not {words}')
            declared[field] = value
    return replace(default, **declared) if declared else default


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

    def view(self, now: Instant) -> ContainerView:
        if self.ends is not None and now.monotonic >= self.ends.monotonic:
            exit_ = Exit(self.code, min(self.starts, self.ends), self.ends)
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
    __slots__ = ("attempts", "behaviour")

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.attempts: dict[str, _Attempt] = {}


class FakeRuntime:
    """Implements kubelet.runtime.Runtime."""

    def __init__(self, default: Behaviour) -> None:
        self._default = default
        self._pods: dict[str, _PodSandbox] = {}

    def listen(self, notify: Callable[[str], None]) -> None:
        """Whatever happens is foreseen."""

    def prepare(self, pod: Pod, addresses: Addresses) -> None:
        self._pods[pod.metadata.uid] = _PodSandbox(behaviour(pod, self._default))

    def adopt(self, pod: Pod, now: Instant) -> None:
        """A fake container lives on in the status that was reported of it: one that ran keeps its start and its end."""
        try:
            sandbox = _PodSandbox(behaviour(pod, self._default))
        except Unsupported:  # annotations were edited after the pod was accepted
            sandbox = _PodSandbox(self._default)
        self._pods[pod.metadata.uid] = sandbox
        for status in pod.status.containerStatuses:
            if attempt := _resume(status, sandbox.behaviour, now):
                sandbox.attempts[status.name] = attempt

    def start(self, uid: str, container: str, attempt: int, now: Instant) -> None:
        sandbox = self._pods[uid]
        before = sandbox.attempts.get(container)
        starts = now.after(sandbox.behaviour.start_seconds)
        last_exit = before.view(now).exit if before else None
        sandbox.attempts[container] = _plan(container, attempt, starts, sandbox.behaviour, last_exit)

    def stop(self, uid: str, container: str, grace: float, now: Instant) -> None:
        sandbox = self._pods[uid]
        attempt = sandbox.attempts[container]
        if now.monotonic < attempt.starts.monotonic:
            ends, code = now, KILLED
        elif attempt.stop_grace is None and sandbox.behaviour.stop_seconds <= grace and grace > 0:
            ends, code = now.after(sandbox.behaviour.stop_seconds), 0
        else:
            ends, code = now.after(grace), KILLED
        if attempt.ends is not None and attempt.ends <= ends:
            ends, code = attempt.ends, attempt.code
        sandbox.attempts[container] = attempt._replace(ends=ends, code=code, stop_grace=grace)

    def call(self, uid: str, container: str, call: Call, now: Instant) -> None:
        sandbox = self._pods[uid]
        attempt = sandbox.attempts[container]
        takes = float(call.handler.seconds) if isinstance(call.handler, SleepAction) else 0.0
        failure = "" if takes <= call.timeout else "timed out"
        ended = now.after(min(takes, call.timeout))
        others = tuple(each for each in attempt.calls if each.kind is not call.kind)
        planned = CallView(call.kind, call.number, now, ended, failure, None)
        sandbox.attempts[container] = attempt._replace(calls=(*others, planned))

    def observe(self, uid: str, now: Instant) -> Sequence[ContainerView]:
        sandbox = self._pods.get(uid)
        return [attempt.view(now) for attempt in sandbox.attempts.values()] if sandbox else ()

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def retain(self, nodes: Collection[str], uids: Collection[str]) -> None:
        """An earlier process leaves nothing."""


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
    return (
        _Attempt(status.name, status.restartCount, ended.started, ended.finished, ended.code, None, before) if ended else None
    )
