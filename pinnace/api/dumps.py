"""What a scheduler holds at this moment: `scheduler.debugger` shows it, `pinnace sched` asks for it. In between it is JSON, as
`pinnace.api.jsonrecords` writes and reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pinnace.api.jsonrecords import OMITTED

T = TypeVar("T")


class Place(StrEnum):
    """Where in the queue a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class Bounded(Generic[T]):
    """How many there are, and the first of them."""

    number: int
    first: Sequence[T]


@dataclass(frozen=True, slots=True)
class Dump:
    path: ClassVar[str]
    """Of the page, at the address of the scheduler's metrics."""
    name: str
    """The replica's."""
    leading: bool


@dataclass(frozen=True, slots=True)
class Queued:
    pod: str
    """namespace/name, here and below."""
    priority: int
    attempts: int
    seconds: float
    """Since it arrived, or failed last."""
    refused_by: Sequence[str]
    """Plugins."""
    backoff: float | None = field(default=None, metadata=OMITTED)
    """Seconds that it is not tried yet, whatever happens; of those that back off."""


@dataclass(frozen=True, slots=True)
class InPermit:
    """A pod that waits in Permit, with a place on a node."""

    pod: str
    node: str
    plugins: Sequence[str]
    """Those that have not allowed it yet."""


@dataclass(frozen=True, slots=True)
class QueueDump(Dump):
    path = "/debug/queue"
    counts: Mapping[str, int]
    """Pods by place; a later version may have more places than Place."""
    places: Mapping[str, Sequence[Queued]]
    """The first of them, by place."""
    permit: Bounded[InPermit]


@dataclass(frozen=True, slots=True)
class Room:
    """What a node has, by resource, as quantities."""

    node: str
    free: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that counts on a node, and is not known to be bound."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class CacheDump(Dump):
    path = "/debug/cache"
    nodes: Bounded[Room]
    pods: int
    """On nodes, those that are assumed among them."""
    assumed: Bounded[Assumed]
    differences: Bounded[str]
    """Between the cache and what the informers hold, and sums that are wrong: a sentence each."""
