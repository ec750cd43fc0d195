"""The words of the state machine: what is wanted of a pod, what a step leaves behind, and what it asks for."""

import math
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from kubelet.lifecycle.plan import PodPlan
from kubelet.runtime import Call, Instant
from pinnace.api.pods import ENDED


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, word: str) -> None:
        self.final = word in ENDED


TRANSITIONS = {
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset[Phase](),
    Phase.FAILED: frozenset[Phase](),
}
"""The phases that may follow each phase."""


class Wanted(NamedTuple):
    """What the API asks for, as far as it concerns the life of a pod."""

    plan: PodPlan
    grace: float | None
    """Seconds that the containers have to stop; None: the pod is not being deleted."""
    gated: str = ""
    """Which readiness gates are not True, in Kubernetes' words."""
    mounted_at: float = -math.inf
    """Monotonic time at which the pod's volumes are there: no container starts before."""


class Fact(NamedTuple):
    """A condition: does it hold, and since when is that so?"""

    holds: bool
    since: Instant


class ProbeMemory(NamedTuple):
    """What is known of a probe from its earlier calls."""

    counted: int = 0
    """Calls that have been counted; so this is the number of the next."""
    begun: float | None = None
    """Monotonic time at which the last of them began."""
    run: int = 0
    """How many in a row have succeeded, or, negative, failed."""


NOTHING_KNOWN = ProbeMemory()


class Doom(NamedTuple):
    """A hook or a probe has failed, or the container needs another image or a restart with other resources: this attempt is
    stopped, and another follows."""

    since: float
    grace: float
    message: str
    anyway: bool = False
    """Another follows at once, even if restartPolicy is Never."""


class Care(NamedTuple):
    """What is remembered of a container that needs more than to be started and stopped: one that has a hook or a probe, or
    that has crashed."""

    attempt: int
    started: bool
    """Its postStart hook is done and its startup probe has succeeded, as far as it has them."""
    ready: bool
    hooked: bool
    """The postStart hook is done, or there is none."""
    started_at: float = 0.0
    """Monotonic; the delays of readiness and liveness probes count from it."""
    startup: ProbeMemory = NOTHING_KNOWN
    readiness: ProbeMemory = NOTHING_KNOWN
    liveness: ProbeMemory = NOTHING_KNOWN
    doom: Doom | None = None
    first_crash: int = 0
    """The attempt from which the back-off counts: it ran long enough for a new beginning."""
    warned: bool = False
    """That it waits before its restart has been said."""


class Ending(NamedTuple):
    """The containers are being stopped, for good."""

    since: Instant
    grace: float
    reason: str = ""
    """Why the pod will have failed, as status.reason; empty: its containers say how it went."""
    message: str = ""
    disrupts: bool = False
    """It is its node's need that ends the pod, and nothing that the pod has done."""


class PodState(NamedTuple):
    """What a step leaves behind for the next one."""

    phase: Phase
    accepted: Instant
    """status.startTime."""
    initialized: Fact
    containers_ready: Fact
    ready: Fact
    reason: str = ""
    message: str = ""
    gated: str = ""
    """Readiness gates that are not True; see Wanted."""
    refused: bool = False
    """The node did not take the pod: nothing of it has ever been there."""
    ended: Instant | None = None
    """When the phase became final; None, too, of a pod that had ended before this process took it up."""
    ending: Ending | None = None
    cares: Mapping[str, Care] = MappingProxyType({})
    """By the container's name."""
    images: Mapping[str, str] = MappingProxyType({})
    """What each container has been started with, by its name; of one that has not been started, nothing counts. The plan's own
    where nothing has changed."""

    @property
    def over_before(self) -> bool:
        """Had it ended when this process took it up? Then nobody here has seen its containers."""
        return self.phase.final and self.ended is None

    @property
    def told(self) -> tuple[object, ...]:
        """What others are told of it."""
        return (self[:10], self.images, [(name, care.started, care.ready) for name, care in self.cares.items()])


class Start(NamedTuple):
    container: str
    attempt: int


class Stop(NamedTuple):
    container: str
    grace: float


class Begin(NamedTuple):
    """Call a hook or a probe of the container."""

    container: str
    call: Call


class Note(NamedTuple):
    """Something that users are told as an event."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class Remove(NamedTuple):
    """The pod is over, and somebody wants it gone: once its final status is reported, delete it with grace 0."""


Action: TypeAlias = Start | Stop | Begin | Note | Remove


class Step(NamedTuple):
    state: PodState
    wake_at: float | None
    """Monotonic time of the next step, if nothing else happens before."""
    actions: tuple[Action, ...]
