"""The runtime interface: what the kubelet needs of a container runtime, and its log and exec streams.

No method of `Runtime` blocks; a runtime notifies the kubelet of changes. The methods of `Streams` wait for output, for a
command, or for their reader.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from kubelet.addresses import Addresses
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
from pinnace.runtime.clock import Clock


class Instant(NamedTuple):
    """One moment on two clocks: `monotonic` decides, `unix` is what people read. Seconds."""

    monotonic: float
    unix: float

    def after(self, seconds: float) -> "Instant":
        return Instant(self.monotonic + seconds, self.unix + seconds) if seconds else self


def read(clock: Clock) -> Instant:
    return Instant(clock.monotonic(), clock.time())


def past(unix: float, now: Instant) -> Instant:
    """A moment that was written down in Unix time, by clocks that may have been set since: never later than now."""
    return Instant(now.monotonic - max(0.0, now.unix - unix), unix)


class ContainerState(Enum):
    CREATED = "created"
    """Asked for; not running yet."""
    RUNNING = "running"
    EXITED = "exited"


class Exit(NamedTuple):
    """How one attempt ended. `code` as a shell gives it: 128 + the signal's number for a kill."""

    code: int
    started: Instant
    finished: Instant
    reason: str = ""
    """Where the code alone does not say it, such as OOMKilled or StartError; else empty."""
    message: str = ""


class CallKind(Enum):
    """The values are what events call them."""

    POST_START = "PostStartHook"
    PRE_STOP = "PreStopHook"
    STARTUP = "Startup probe"
    READINESS = "Readiness probe"
    LIVENESS = "Liveness probe"


Handler: TypeAlias = ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | SleepAction


class Call(NamedTuple):
    """A hook or a probe: something that is asked of a container that runs."""

    kind: CallKind
    number: int
    """Counted from 0 for each kind and attempt."""
    handler: Handler
    """Ports are numbers: names of ports are resolved already. An empty host is the pod's."""
    timeout: float
    """Seconds after which the runtime breaks it off, and it has failed; infinite for a postStart hook, which has none."""


class CallView(NamedTuple):
    """What became of a call. It has succeeded when it has ended without a failure."""

    kind: CallKind
    number: int
    begun: Instant
    ended: Instant | None
    failure: str
    """Why it has failed, such as "HTTP probe failed with statuscode: 500"; else empty."""
    changes_at: float | None
    """Monotonic time at which it will have ended; None: not foreseen."""


class ContainerView(NamedTuple):
    """The latest attempt at one container: what became of it, and then what is still to come. An unchanged container gives an
    equal view."""

    name: str
    attempt: int
    state: ContainerState
    started: Instant | None
    """When this attempt came to run."""
    exit: Exit | None
    """How this attempt ended, once it has."""
    last_exit: Exit | None
    """How the attempt before ended."""
    stop_grace: float | None
    """The grace, in seconds, with which it was last asked to stop; None: it was not."""
    changes_at: float | None
    """Monotonic time at which the state will have changed by itself; None: not foreseen."""
    calls: tuple[CallView, ...] = ()
    """The latest call of each kind that was made of this attempt."""

    @property
    def past(self) -> tuple[object, ...]:
        """Only what became of it: that is what others are told."""
        return self[:6]


class Unsupported(Exception):
    """The runtime cannot run this pod, ever; the message says why."""


class Runtime(Protocol):
    def listen(self, notify: Callable[[str], None]) -> None:
        """Calls `notify(uid)` from now on, on the event loop, when something of a pod has changed that no `changes_at` had
        foreseen. Said once, before everything else."""
        ...

    def prepare(self, pod: Pod, addresses: Addresses) -> None:
        """Makes the place in which the pod's containers will run; `addresses` are those that the node has given it. Raises
        Unsupported, and then there is nothing to remove."""
        ...

    def adopt(self, pod: Pod, now: Instant) -> None:
        """Takes up a pod that an earlier kubelet process had started: whatever of it is left is observed from here on."""
        ...

    def resize(self, pod: Pod) -> None:
        """The containers of a pod that was prepared or adopted have these resources from now on. What runs keeps running."""
        ...

    def start(self, uid: str, container: str, attempt: int, now: Instant) -> None:
        """Of a pod that was prepared or adopted."""
        ...

    def stop(self, uid: str, container: str, grace: float, now: Instant) -> None:
        """Asks the container to end, and kills it `grace` seconds from now; asked again, the earlier kill counts. Once it has
        exited this does nothing. Raises OSError when it could not be asked now: ask again."""
        ...

    def crash(self, uid: str, container: str, attempt: int, code: int, now: Instant) -> None:
        """Ends this attempt, if it runs, as if it had ended by itself: with this exit code, where the runtime can choose it."""
        ...

    def call(self, uid: str, container: str, call: Call, now: Instant) -> None:
        """Begins a hook or a probe of the latest attempt, which runs. It ends with that attempt, if not before, and takes the
        place of an earlier call of its kind."""
        ...

    def observe(self, uid: str, now: Instant) -> Sequence[ContainerView]:
        """The containers of a pod that have ever been started, in the order in which they first were."""
        ...

    def remove(self, uid: str) -> None:
        """Kills and forgets what there is of a pod; nothing, when there is nothing."""
        ...

    def end(self, uid: str) -> None:
        """Kills what an earlier kubelet process has left running of a pod that somebody else has ended since. Its logs stay.
        Nothing, when nothing runs."""
        ...

    def retain(self, nodes: Collection[str], uids: Collection[str]) -> None:
        """These are all the pods that there are on these nodes. Kills what an earlier kubelet process has left of others, which
        were deleted while nobody looked."""
        ...

    def close(self) -> None:
        """Lets everything run on, unobserved: another runtime takes it up, of this process or the next. Calls are ended."""
        ...


BY_CODE = ("Completed", "Error")
"""Reasons that follow from the code."""


def reported_exit(state: ContainerStateMessage, now: Instant) -> Exit | None:
    """None when it does not say that the container has ended."""
    if not state.HasField("terminated"):
        return None
    ended = state.terminated
    started, finished = past(to_seconds(ended.startedAt), now), past(to_seconds(ended.finishedAt), now)
    return Exit(ended.exitCode, started, finished, "" if ended.reason in BY_CODE else ended.reason, ended.message)


class StreamError(Exception):
    """There is nothing to show, or to run in. The message is for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Streams(Protocol):
    """All raise StreamError. A caller closes the generator to end the stream and free its resources."""

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


class NoStreams:
    """Of the fake runtime. To make lines up would be worse than to say that there are none: somebody might believe them."""

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        raise StreamError(
            Code.FAILED_PRECONDITION,
            "the fake runtime keeps no logs: its containers are pretended, and write nothing; see the events of the pod",
        )
        yield b""

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        raise StreamError(
            Code.FAILED_PRECONDITION,
            "the fake runtime runs no commands: its containers are pretended, and there is nothing inside",
        )
        yield ExecResponse()

    async def attach(self, request: AttachRequest) -> AsyncGenerator[ExecResponse, None]:
        raise StreamError(Code.FAILED_PRECONDITION, "the fake runtime cannot attach: its containers are simulated")
        yield ExecResponse()

    async def port_forward(
        self, start: PortForwardStart, sent: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[PortForwardResponse, None]:
        raise StreamError(Code.FAILED_PRECONDITION, "the fake runtime forwards no ports: its containers are simulated")
        yield PortForwardResponse()
