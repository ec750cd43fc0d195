"""The extender interface of the scheduling cycle: configuration, transport protocol, errors and results. No I/O."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.framework.results import Diagnosis, FilterResult, NodeReasons

HTTP_TIMEOUT = 5.0
"""Seconds. Kubernetes has the same default."""
EXTENDERS = "extenders"
NOT_ASKED = "node(s) were added while extenders were called"
FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"


class ExtenderError(Exception):
    def __init__(self, verb: str, url: str, problem: str) -> None:
        super().__init__(f"failed {verb} with extender at URL {url}{problem}")
        self.verb = verb


class NotSent(ExtenderError):
    pass


class ResponseLost(ExtenderError):
    pass


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """Names of PEM files, or empty strings."""

    insecure: bool = False
    """Disables the verification of the extender's certificate."""
    ca_file: str = ""
    """Certificate authorities that replace those of the system."""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderConfiguration:
    url_prefix: str
    """The URL, which begins with http://, https:// or grpc:// and is also the extender's name."""
    verbs: Mapping[str, str] = field(default_factory=dict)
    """The last segment of the URL by FILTER, PRIORITIZE, and so on. Missing verbs are not called."""
    weight: int = 0
    """The weight of the extender's scores."""
    enable_https: bool = False
    tls: ExtenderTls | None = None
    timeout: float = HTTP_TIMEOUT
    """Seconds per call."""
    node_cache_capable: bool = False
    """True if the extender caches nodes, so that nodes are sent by name only."""
    managed_resources: Mapping[str, bool] = field(default_factory=dict)
    """Resource names, with True if the scheduler ignores the resource. The extender is called for pods that request one
    of them, or for all pods if the map is empty."""
    ignorable: bool = False
    """True if failures of the extender are ignored."""


def requests_managed_resource(managed: Collection[str], pod: Pod) -> bool:
    """Return True if the pod requests one of the managed resources, or if there are none."""
    return not managed or any(name in managed for name in _resource_names(pod))


def _resource_names(pod: Pod) -> Iterator[str]:
    """Yield the resources that the containers request or limit, regardless of the amount."""
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        yield from container.resources.requests
        yield from container.resources.limits


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """The result of a filter call: the names of the remaining nodes, and the reasons for the others."""

    left: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """As `failed`, for nodes on which removing pods does not help."""


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """The proposed victims on one node."""

    pods: Sequence[Pod]
    violations: int
    """The number of victims that a PodDisruptionBudget protects."""


@dataclass(frozen=True, slots=True)
class VictimUids:
    """The victims that an extender selects on one node, by UID."""

    uids: Sequence[str]
    violations: int


class ExtenderTransport(Protocol):
    """A connection to an extender. Every call ends within the configured timeout and raises ExtenderError on failure."""

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterResponse: ...
    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        """Return (node, score)."""
        ...

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        """Return the victims by node."""
        ...

    async def bind(self, binding: Binding, fence: Fence) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ExtenderRejections:
    """The nodes that one extender refuses."""

    extender: str
    reasons: Mapping[str, str]
    """The reasons by node."""
    unresolvable: frozenset[str] = frozenset()
    """Nodes on which removing pods does not help, according to the extender."""

    def on_nodes(self, nodes: NodeTable) -> FilterResult:
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
    """The nodes that were sent to the first extender."""
    objections: Sequence[ExtenderRejections] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores by node that are added to the weighted sum. Missing nodes have a score of 0."""

    def add_to_diagnosis(self, diagnosis: Diagnosis, nodes: NodeTable) -> Diagnosis:
        """Return the diagnosis with the extenders' refusals. Nodes that were not sent to the extenders are also refused."""
        not_asked = diagnosis.feasible.copy()
        not_asked[nodes.rows(self.asked)] = False
        unresolvable = np.zeros(len(nodes), np.bool_)
        unresolvable[nodes.rows(name for objection in self.objections for name in objection.unresolvable)] = True
        refusals = [(objection.extender, objection.on_nodes(nodes)) for objection in self.objections]
        refusals.append((EXTENDERS, FilterResult.refusing(not_asked, NOT_ASKED)))
        return Diagnosis(diagnosis.nodes, [*diagnosis.refusals, *refusals], diagnosis.pre_filter, unresolvable)

    def sum_scores(self, nodes: NodeTable) -> FloatArray:
        return np.array([self.scores.get(name, 0.0) for name in nodes.names], np.float64)
