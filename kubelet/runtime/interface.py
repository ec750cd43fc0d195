"""The runtime interface: what the kubelet needs of a container runtime, and its log and exec streams.

No method of `Runtime` blocks; a runtime notifies the kubelet of changes. The methods of `Streams` wait for output, for a
command, or for their reader.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from pinnace.api.core_v1_pb2 import ContainerState as ContainerStateMessage
from pinnace.api.core_v1_pb2 import ExecAction, GRPCAction, HTTPGetAction, Pod, SleepAction, TCPSocketAction
from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecResponse,
    ExecStart,
    LogsRequest,
    PortForwardRequest,
    PortForwardResponse,
    PortForwardStart,
)
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Code
from pinnace.kubelet.addresses import PodAddresses
from pinnace.runtime.clock import Clock

Handler: TypeAlias = ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | SleepAction
BY_CODE = ("Completed", "Error")
"""Reasons that follow from exit codes."""


class Moment(NamedTuple):
    """One moment on two clocks, in seconds. Decisions use `monotonic`; `unix` is for display."""

    monotonic: float
    unix: float

    def after(self, seconds: float) -> "Moment":
        return Moment(self.monotonic + seconds, self.unix + seconds) if seconds else self


def read_clocks(clock: Clock) -> Moment:
    return Moment(clock.monotonic(), clock.time())


def to_past_moment(unix: float, now: Moment) -> Moment:
    """Convert a stored Unix time. Clocks may have been set since; the result is never later than now."""
    return Moment(now.monotonic - max(0.0, now.unix - unix), unix)


class ContainerState(Enum):
    CREATED = "created"
    """Created; not running yet."""
    RUNNING = "running"
    EXITED = "exited"


class ContainerExit(NamedTuple):
    """The end of an attempt. `code`: 128 + the signal number after a signal, as in a shell."""

    code: int
    started: Moment
    finished: Moment
    reason: str = ""
    """A reason that does not follow from the code, such as OOMKilled or StartError; otherwise empty."""
    message: str = ""


class CallKind(Enum):
    """The values appear in events."""

    POST_START = "PostStartHook"
    PRE_STOP = "PreStopHook"
    STARTUP = "Startup probe"
    READINESS = "Readiness probe"
    LIVENESS = "Liveness probe"


class ContainerCall(NamedTuple):
    """A call of a hook or a probe in a running container."""

    kind: CallKind
    number: int
    """Counted from 0 for each kind and attempt."""
    handler: Handler
    """Named ports are resolved to numbers. An empty host is the pod's address."""
    timeout: float
    """Timeout in seconds, after which the call has failed. Infinite for postStart hooks."""


class CallView(NamedTuple):
    """The state of a call. It has succeeded when it has ended without a failure."""

    kind: CallKind
    number: int
    begun: Moment
    ended: Moment | None
    failure: str
    """The failure, such as "HTTP probe failed with statuscode: 500"; otherwise empty."""
    changes_at: float | None
    """Monotonic time of the end. None: not known in advance."""


class ContainerView(NamedTuple):
    """The latest attempt of a container: observed state, then expected changes. Equal for an unchanged container."""

    name: str
    attempt: int
    state: ContainerState
    started: Moment | None
    """The time at which this attempt began to run."""
    exit: ContainerExit | None
    """The end of this attempt."""
    last_exit: ContainerExit | None
    """The end of the previous attempt."""
    stop_grace: float | None
    """The grace period in seconds of the last stop request. None: there was none."""
    changes_at: float | None
    """Monotonic time of the next change of state. None: not known in advance."""
    calls: tuple[CallView, ...] = ()
    """The latest call of each kind in this attempt."""

    @property
    def observed_state(self) -> tuple[object, ...]:
        """A copy with the observed state only, which is reported."""
        return self[:6]


class VolumeProgress(NamedTuple):
    """What the volumes and variables of a pod allow."""

    mounted: bool
    """Containers can start."""
    held: Mapping[str, str]
    """Containers that cannot be created yet, by name, with the message of CreateContainerConfigError."""


class UnsupportedPod(Exception):
    """The runtime can never run this pod. The message says why."""


class Runtime(Protocol):
    def set_listener(self, notify: Callable[[str], None]) -> None:
        """Set the callback `notify(uid)`, which is called on the event loop for changes of a pod that no `changes_at`
        announced. Called once, before all other methods.
        """
        ...

    def prepare_pod(self, pod: Pod, addresses: PodAddresses) -> str | None:
        """Prepare the pod's environment. `addresses` are those that the node has allocated. Return what users must know, for
        an event. Raises UnsupportedPod; then there is nothing to remove.
        """
        ...

    def adopt_pod(self, pod: Pod, now: Moment) -> None:
        """Adopt a pod that an earlier kubelet process started, and observe its remaining containers."""
        ...

    def resize_pod(self, pod: Pod) -> None:
        """The spec of a prepared or adopted pod has other resources or images. Running containers continue."""
        ...

    def start(self, uid: str, container: str, attempt: int, now: Moment) -> None:
        """Start a container of a prepared or adopted pod."""
        ...

    def stop(self, uid: str, container: str, grace: float, now: Moment) -> None:
        """Stop the container, and kill it `grace` seconds from now. After repeated calls, the earliest kill time is used. No
        effect after the exit. Raises OSError if the stop could not be requested; call it again.
        """
        ...

    def crash_container(self, uid: str, container: str, attempt: int, code: int, now: Moment) -> None:
        """End this attempt, if it runs, as if it had exited by itself. The runtime uses the exit code if it can."""
        ...

    def call(self, uid: str, container: str, call: ContainerCall, now: Moment) -> None:
        """Start a hook or a probe in the latest attempt, which is running. It ends at the latest with the attempt, and
        replaces an earlier call of its kind.
        """
        ...

    def observe_containers(self, uid: str, now: Moment) -> Sequence[ContainerView]:
        """The containers of a pod that have been started, in the order of their first start."""
        ...

    def remove(self, uid: str) -> None:
        """Kill and forget a pod. No effect for an unknown pod."""
        ...

    def kill_leftovers(self, uid: str) -> None:
        """Kill the containers that an earlier kubelet process left of a pod that another process has finished since. Logs are
        kept. No effect if nothing runs.
        """
        ...

    def retain_pods(self, nodes: Collection[str], uids: Collection[str]) -> None:
        """These are all pods of these nodes. Kill containers of other pods, which were deleted while no kubelet ran."""
        ...

    def close(self) -> None:
        """Stop observing. Containers continue, and another runtime adopts them. Calls are ended."""
        ...


def reported_exit(state: ContainerStateMessage, now: Moment) -> ContainerExit | None:
    """The end of the container in this state. None: it has not terminated."""
    if not state.HasField("terminated"):
        return None
    ended = state.terminated
    started, finished = to_past_moment(to_seconds(ended.startedAt), now), to_past_moment(to_seconds(ended.finishedAt), now)
    return ContainerExit(ended.exitCode, started, finished, "" if ended.reason in BY_CODE else ended.reason, ended.message)


class StreamError(Exception):
    """There are no logs, or the command cannot run. The message is for users."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Streams(Protocol):
    """All methods raise StreamError. Close the generator to end the stream and free its resources."""

    def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        """See Pods.Logs in proto/."""
        ...

    def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        """See Pods.Exec in proto/. `stdin` is not read unless `start` says that there is input."""
        ...

    def attach(self, request: AttachRequest) -> AsyncGenerator[ExecResponse, None]:
        """See Pods.Attach in proto/."""
        ...

    def port_forward(
        self, start: PortForwardStart, sent: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[PortForwardResponse, None]:
        """See Pods.PortForward in proto/. `sent` has no start."""
        ...
