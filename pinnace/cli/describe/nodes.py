"""All about a node: what it is, what runs on it, and how much of it is taken."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pinnace.api import quantity
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod, Taint
from pinnace.api.pods import ended
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.cli.describe.common import annotations
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows, Value, instant, pairs
from pinnace.fit.requests import pod_requests, spec_limits
from pinnace.printers.cluster import roles
from pinnace.printers.columns import since


def describe(node: Node, lease: Lease | NotShown | None, pods: Sequence[Pod] | NotShown, now: float) -> Fields:
    """`pods`: those on the node; only the ones that have not ended are shown and counted. `lease`: the node's heartbeat."""
    meta, info = node.metadata, node.status.nodeInfo
    return {
        "Name": meta.name,
        "Roles": ",".join(roles(node)) or NONE,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "CreationTimestamp": instant(meta.creationTimestamp) or NONE,
        "Taints": [taint(t) for t in node.spec.taints],
        "Unschedulable": str(node.spec.unschedulable).lower(),
        "Lease": _lease(lease),
        "Conditions": Rows(
            ("Type", "Status", "LastTransitionTime", "Reason", "Message"),
            [(c.type, c.status, instant(c.lastTransitionTime), c.reason, c.message) for c in node.status.conditions],
        ),
        "Addresses": {address.type: address.address for address in node.status.addresses},
        "Capacity": _quantities(node.status.capacity),
        "Allocatable": _quantities(node.status.allocatable),
        "System Info": _system_info(info.kubeletVersion, info.osImage, info.containerRuntimeVersion),
        **_taken(node, pods, now),
    }


def taint(taint: Taint) -> str:
    """ "key=value:Effect", as one types it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _taken(node: Node, pods: Sequence[Pod] | NotShown, now: float) -> Fields:
    if isinstance(pods, NotShown):
        return {"Non-terminated Pods": pods, "Allocated resources": pods}
    alive = [pod for pod in pods if not ended(pod)]
    return {
        f"Non-terminated Pods ({len(alive)} in total)": _pods(node, alive, now),
        "Allocated resources": _allocated(node, alive),
    }


def _lease(lease: Lease | NotShown | None) -> str:
    """The lease exists for as long as the kubelet's heartbeats come: nothing is written per beat."""
    if isinstance(lease, NotShown):
        return lease
    return f"held by {lease.spec.holderIdentity}" if lease else f"{NONE} (no heartbeats)"


def _quantities(quantities: Mapping[str, Quantity]) -> Fields:
    return {name: amount.string for name, amount in sorted(quantities.items())}


def _system_info(kubelet: str, image: str, runtime: str) -> Fields:
    known = (("Kubelet Version", kubelet), ("OS Image", image), ("Container Runtime Version", runtime))
    return {label: text for label, text in known if text}


def _pods(node: Node, pods: Sequence[Pod], now: float) -> Value:
    allocatable = quantity.amounts(node.status.allocatable)
    rows = []
    for pod in pods:
        asked = (_requests(pod), spec_limits(pod.spec))
        shares = [_share(name, amounts.get(name, 0), allocatable) for name in ("cpu", "memory") for amounts in asked]
        rows.append((pod.metadata.namespace, pod.metadata.name, *shares, since(pod.metadata.creationTimestamp, now)))
    headers = ("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age")
    return Rows(headers, rows)


def _allocated(node: Node, pods: Sequence[Pod]) -> Value:
    """Sums of requests and limits by resource, and their share of what is allocatable."""
    allocatable = quantity.amounts(node.status.allocatable)
    requests, limits = Counter[str](), Counter[str]()
    for pod in pods:
        requests.update(_requests(pod))
        limits.update(spec_limits(pod.spec))
    names = sorted(allocatable.keys() | requests.keys() | limits.keys())
    rows = [(name, *(_share(name, amounts[name], allocatable) for amounts in (requests, limits))) for name in names]
    return Rows(("Resource", "Requests", "Limits"), rows)


def _requests(pod: Pod) -> dict[str, int]:
    return dict(pod_requests(pod).amounts)


def _share(name: str, amount: int, allocatable: Mapping[str, int]) -> str:
    """ "500m (12%)" of what is allocatable."""
    of = allocatable.get(name, 0)
    return f"{quantity.format_amount(name, amount)} ({amount * 100 // of}%)" if of else quantity.format_amount(name, amount)
