"""From the choice to the bind. Reserve, Permit and the pre-flight end the scheduling cycle, and are synchronous. PreBind and
Bind are coroutines: they run beside the next decisions, for many pods at a time, with a deadline.
"""

from typing import Literal, Protocol, runtime_checkable

from pinnace.api.pods_pb2 import Fence
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.interface.plugin import Plugin
from scheduler.framework.results import CycleState, Status, Wait


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Sets aside what the pod will use on its node. SKIP: nothing, and `unreserve` need not be called; a Status with a
        reason: it cannot have it."""
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod will not be bound there. Called in reverse order, for all Reserve plugins when one of them refuses: so it
        must bear being called without `reserve`. It must not fail."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | Status | None:
        """May the pod be bound? None: yes; a Status with a reason: no; Wait: ask `handle.waiting` later, where anybody may
        allow or reject it. When its time is over the pod is rejected."""
        ...


@runtime_checkable
class PreFlightPlugin(Plugin, Protocol):
    """For a PreBind or Bind plugin that has nothing to do for most pods: those it skips go the fast way, without a task."""

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """SKIP: neither `pre_bind` nor `bind` need be called for this pod; None: call them."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """What must be done before the pod is bound, such as binding its volumes. A Status with a reason: it cannot be."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        """Binds the pod; None: it is bound. SKIP: the next Bind plugin is asked. A Status with a reason: it is not bound, and
        will not be. What the API answers should be let through: an ApiError, or the deadline, leaves it open whether the pod
        was bound, and is looked up; any other exception says that it was not. A bind without the fence may come from a leader
        that has been deposed."""
        ...


@runtime_checkable
class BatchBindPlugin(Plugin, Protocol):
    """The Bind plugin whose binds are sent by `scheduler.binding`, in batches. Those after it are never asked."""

    @property
    def in_batches(self) -> Literal[True]: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod is bound. For information: nothing can be changed any more, and a failure is only logged."""
        ...
