"""What the scheduling cycle hands over to binding, and what binding tells in return."""

from dataclasses import dataclass
from typing import Protocol

from scheduler.framework.binding_plugins import BindingCycle
from scheduler.framework.results import PluginError, Refused
from scheduler.queue import QueuedPod


@dataclass(frozen=True, slots=True)
class Decision:
    """A pod that is assumed on a node, by a leader with this token."""

    queued: QueuedPod
    node: str
    token: int
    cycle: BindingCycle | None = None
    """What plugins do about it; None: nothing."""


class Outcomes(Protocol):
    """Who is told how a bind ended: once for each decision, unless the term ends first."""

    def bound(self, decision: Decision) -> None: ...

    def failed(self, decision: Decision, problem: str | PluginError, *, retry: bool) -> None:
        """It did not happen, and will not. `retry`: the pod still needs a node."""
        ...

    def refused(self, decision: Decision, refused: Refused) -> None:
        """A plugin does not want it; it did not happen, and will not."""
        ...

    def superseded(self, decision: Decision) -> None:
        """Somebody else bound the pod, or deleted it: the informer has told so."""
        ...

    def fenced(self, token: int) -> None:
        """The token is not the leader's any more."""
        ...
