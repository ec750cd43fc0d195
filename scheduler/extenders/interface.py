"""Extenders as the scheduling cycle sees them: configuration, transport protocol, errors and results. No I/O."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.results import Diagnosis, FilterResult, NodeReasons


class ExtenderError(Exception):
    def __init__(self, verb: str, url: str, problem: str) -> None:
        super().__init__(f"failed {verb} with extender at URL {url}{problem}")
        self.verb = verb


class NotSent(ExtenderError):
    pass


class AnswerLost(ExtenderError):
    pass


HTTP_TIMEOUT = 5.0
"""Seconds; Kubernetes' default."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Names of PEM files; empty: none."""

    insecure: bool = False
    """The extender's certificate is not verified."""
    ca_file: str = ""
    """Whom to trust instead of the system's certificate authorities."""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderConfiguration:
    url_prefix: str
    """http://, https:// or grpc://host:port. It is also the extender's name."""
    verbs: Mapping[str, str] = field(default_factory=dict)
    """The last part of the URL, by FILTER, PRIORITIZE, ...; what is not there is not asked."""
    weight: int = 0
    """Of its scores."""
    enable_https: bool = False
    tls: Tls | None = None
    timeout: float = HTTP_TIMEOUT
    """Seconds, of one call."""
    node_cache_capable: bool = False
    """It knows the nodes: they are sent by name."""
    managed_resources: Mapping[str, bool] = field(default_factory=dict)
    """By name, whether the scheduler ignores it. It hears of pods that ask for one of these; of all, when there are none."""
    ignorable: bool = False
    """Its failures fail nothing."""


def interested(managed: Collection[str], pod: Pod) -> bool:
    """Does the pod ask for one of the extender's managed resources? It hears of all pods when it has none."""
    return not managed or any(name in managed for name in _resources(pod))


def _resources(pod: Pod) -> Iterator[str]:
    """All that its containers ask for, whatever the amount."""
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        yield from container.resources.requests
        yield from container.resources.limits


@dataclass(frozen=True, slots=True)
class Filtered:
    """The answer about some nodes: the names of those that are left, and why the others are not."""

    left: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """As `failed`; removing pods would not help."""


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """Pods of one node that would have to go."""

    pods: Sequence[Pod]
    violations: int
    """How many of them a PodDisruptionBudget protects."""


@dataclass(frozen=True, slots=True)
class VictimUids:
    """The same, as extenders say it: by uid."""

    uids: Sequence[str]
    violations: int


class Transport(Protocol):
    """Every call ends within the configured timeout, and raises ExtenderError."""

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> Filtered: ...
    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        """(node, score)."""
        ...

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        """By node."""
        ...

    async def bind(self, binding: Binding, fence: Fence) -> None: ...
    async def close(self) -> None: ...


EXTENDERS = "extenders"


NOT_ASKED = "node(s) came up while extenders were asked"


@dataclass(frozen=True, slots=True)
class ExtenderRejections:
    """Of one extender."""

    extender: str
    reasons: Mapping[str, str]
    """By node."""
    unresolvable: frozenset[str] = frozenset()
    """The nodes of which it says that removing pods would not help."""

    def on(self, nodes: NodeTable) -> FilterResult:
        reasons = ["", *dict.fromkeys(self.reasons.values())]
        numbers = {reason: number for number, reason in enumerate(reasons)}
        codes = np.zeros(len(nodes), np.int64)
        for name, reason in self.reasons.items():
            if (row := nodes.row(name)) is not None:
                codes[row] = numbers[reason]
        return FilterResult(codes == 0, lambda: NodeReasons(codes, lambda code: (reasons[code],)))


@dataclass(frozen=True, slots=True)
class ExtenderResult:
    asked: frozenset[str]
    """The nodes that the first extender was asked about."""
    objections: Sequence[ExtenderRejections] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """By node, to be added to the sum of its weighted scores. Missing: 0."""

    def added_to(self, diagnosis: Diagnosis, nodes: NodeTable) -> Diagnosis:
        """What the filters say, and what the extenders say. A node that they have not been asked about cannot be chosen."""
        not_asked = diagnosis.feasible.copy()
        not_asked[nodes.rows(self.asked)] = False
        unresolvable = np.zeros(len(nodes), np.bool_)
        unresolvable[nodes.rows(name for each in self.objections for name in each.unresolvable)] = True
        refusals = [(each.extender, each.on(nodes)) for each in self.objections]
        refusals.append((EXTENDERS, FilterResult.refusing(not_asked, NOT_ASKED)))
        return Diagnosis(diagnosis.nodes, [*diagnosis.refusals, *refusals], diagnosis.pre_filter, unresolvable)

    def added_score(self, nodes: NodeTable) -> FloatArray:
        return np.array([self.scores.get(name, 0.0) for name in nodes.names], np.float64)


FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"
