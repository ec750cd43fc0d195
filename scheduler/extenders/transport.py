"""How an extender is reached: a call for each verb. What it says is checked by who asks (`extender`), but for its form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence


@dataclass(frozen=True, slots=True)
class Filtered:
    """The answer about some nodes: the names of those that are left, and why the others are not."""

    left: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """As `failed`; removing pods would not help."""


@dataclass(frozen=True, slots=True)
class Sacrifice:
    """Pods of one node that would have to go."""

    pods: Sequence[Pod]
    violations: int
    """How many of them a PodDisruptionBudget protects."""


@dataclass(frozen=True, slots=True)
class Demanded:
    """The same, as extenders say it: by uid."""

    uids: Sequence[str]
    violations: int


class Transport(Protocol):
    """Every call ends within the configured timeout, and raises ExtenderError."""

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> Filtered: ...
    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        """(node, score)."""
        ...

    async def preempt(self, pod: Pod, victims: Mapping[str, Sacrifice]) -> Mapping[str, Demanded]:
        """By node."""
        ...

    async def bind(self, binding: Binding, fence: Fence) -> None: ...
    async def close(self) -> None: ...
