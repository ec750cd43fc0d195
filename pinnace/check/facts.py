"""What checkers need to know of an object, taken from its encoded form. A history holds these instead of the objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from google.protobuf.message import Message

from pinnace.api import defaults, fences
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.podstatus import ENDED
from pinnace.api.resources import ALL, ELECTIONS_PREFIX, LEASES, NODES, PODS, Object, prefix_of
from pinnace.fit import allocatable, pod_requests

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount): millicores of cpu, bytes, or a count; see pinnace.fit."""

_MESSAGES: dict[str, type[Any]] = {resource.prefix: resource.message for resource in ALL}


@dataclass(frozen=True, slots=True)
class PodFacts:
    uid: str
    node: str = ""
    """spec.nodeName; "" while it is not bound."""
    election: str = ""
    """Whose leader bound it; "": nobody, or somebody without a fence."""
    token: int = 0
    """The fencing token under which it was bound."""
    phase: str = ""
    requests: Amounts = ()
    started: int = 0
    """status.startTime in Unix seconds: when a kubelet accepted it; 0: none has."""
    terminating: bool = False
    labels: str = ""
    """`labels_digest`."""
    picky: bool = False
    """It asks for more than room (selectors, affinity, host ports, another scheduler): whether it is feasible is not judged."""
    scheduler: str = defaults.SCHEDULER
    """spec.schedulerName."""

    @property
    def by_scheduler(self) -> bool:
        return bool(self.election)

    @property
    def finished(self) -> bool:
        return self.phase in ENDED


@dataclass(frozen=True, slots=True)
class NodeFacts:
    uid: str
    allocatable: Amounts = ()
    open: bool = True
    """Takes any pod that fits: it is neither cordoned nor tainted."""


@dataclass(frozen=True, slots=True)
class ElectionFacts:
    holder: str
    session: int = 0
    """The etcd lease of the holder's session."""
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods the holder may bind."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    holder: str


Facts = PodFacts | NodeFacts | ElectionFacts | LeaseFacts


def digest(obj: Message | Object) -> str:
    """16 hex digits that are equal for equal objects, whatever their resourceVersion and however their maps are ordered."""
    message: Any = obj
    version = message.metadata.resourceVersion
    message.metadata.resourceVersion = ""
    try:
        return _hash(message.SerializeToString(deterministic=True))
    finally:
        message.metadata.resourceVersion = version


def labels_digest(labels: Mapping[str, str]) -> str:
    """16 hex digits that are equal for equal labels; "" for none."""
    return _hash(repr(sorted(labels.items())).encode()) if labels else ""


def digest_of(key: str, value: bytes | None) -> str:
    """The `digest` of an object as etcd has it; of its bytes, when the key is no API object's. "" for no value: deleted."""
    if value is None:
        return ""
    message = _MESSAGES.get(prefix_of(key))
    return digest(message.FromString(value)) if message else _hash(value)


def facts_of(key: str, value: bytes | None) -> Facts | None:
    """None for a kind that no checker looks into, and for a deletion (no value)."""
    if not value:
        return None
    if key.startswith(PODS.prefix):
        return pod_facts(Pod.FromString(value))
    if key.startswith(NODES.prefix):
        return node_facts(Node.FromString(value))
    if key.startswith(ELECTIONS_PREFIX):
        election = Election.FromString(value)
        return ElectionFacts(election.holder, election.session, tuple(election.scheduler_names))
    if key.startswith(LEASES.prefix):
        return LeaseFacts(Lease.FromString(value).spec.holderIdentity)
    return None


def pod_facts(pod: Pod) -> PodFacts:
    metadata, spec = pod.metadata, pod.spec
    fence = fences.of(pod)
    requests = pod_requests(pod)
    picky = bool(
        spec.nodeSelector
        or spec.HasField("affinity")
        or spec.topologySpreadConstraints
        or requests.ports
        or spec.schedulerName not in ("", defaults.SCHEDULER)
    )
    return PodFacts(
        uid=metadata.uid,
        node=spec.nodeName,
        election=fence.election,
        token=fence.token,
        scheduler=spec.schedulerName or defaults.SCHEDULER,
        phase=pod.status.phase,
        requests=requests.amounts,
        started=pod.status.startTime.seconds,
        terminating=metadata.HasField("deletionTimestamp"),
        labels=labels_digest(metadata.labels),
        picky=picky,
    )


def node_facts(node: Node) -> NodeFacts:
    is_open = not node.spec.unschedulable and not any(t.effect in ("NoSchedule", "NoExecute") for t in node.spec.taints)
    return NodeFacts(node.metadata.uid, tuple(sorted(allocatable(node).items())), is_open)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
