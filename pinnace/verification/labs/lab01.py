"""The checks of lab 1: the parts."""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.scalars import to_seconds
from pinnace.client.client import Client
from pinnace.verification.labs.checks import CheckFailed, get_pod, list_events, list_nodes, list_terms

UNASSIGNED = 5.0
"""Seconds for which a pod of this lab waits at least when no scheduler runs."""


def node_of_running_pod(found: Pod) -> str:
    """Return the node of the pod. Raises CheckFailed if it does not run."""
    if found.status.phase != "Running":
        raise CheckFailed(f"pod/{found.metadata.name} is {found.status.phase or 'Pending'}, not Running")
    return found.spec.nodeName


def condition_time(found: Pod, type_: str) -> float:
    """When the condition became True, in seconds since the epoch. Raises CheckFailed if it is not."""
    for pod_condition in found.status.conditions:
        if pod_condition.type == type_ and pod_condition.status == "True":
            return to_seconds(pod_condition.lastTransitionTime)
    raise CheckFailed(f"pod/{found.metadata.name} has no condition {type_}=True")


def _creation_time(found: Pod) -> float:
    stamp: Time = found.metadata.creationTimestamp
    return float(to_seconds(stamp))


async def _without_leader(client: Client, moment: float) -> bool:
    """Return whether no scheduler led at this moment. The times of pods have whole seconds."""
    return not any(
        to_seconds(term.began) < moment + 1 and (not term.HasField("ended") or to_seconds(term.ended) > moment + 1)
        for term in await list_terms(client)
    )


async def check_start(client: Client) -> str:
    if len(await list_nodes(client)) != 3:
        raise CheckFailed(f"the cluster has {len(await list_nodes(client))} nodes, not 3: it may be another cluster")
    return f"pod/first is Running on {node_of_running_pod(await get_pod(client, 'first'))}"


async def check_no_scheduler(client: Client) -> str:
    result = await get_pod(client, "waiting")
    if not await _without_leader(client, _creation_time(result)):
        raise CheckFailed("a scheduler led when pod/waiting was created")
    if not result.spec.nodeName:
        return "pod/waiting was created when no scheduler led, and waited until now"
    waited = condition_time(result, "PodScheduled") - _creation_time(result)
    if waited < UNASSIGNED:
        raise CheckFailed(f"pod/waiting got a node {waited:.0f} s after its creation: no time to observe it without one")
    return f"pod/waiting was created when no scheduler led, and waited for {waited:.0f} s"


async def check_node_name(client: Client) -> str:
    result = await get_pod(client, "direct")
    if await list_events(client, "Scheduled", name="direct"):
        raise CheckFailed("pod/direct was assigned by a scheduler: its manifest has no nodeName")
    if result.spec.nodeName not in {item.metadata.name for item in await list_nodes(client)}:
        name = result.spec.nodeName
        raise CheckFailed(
            f"pod/direct names the node {name}, which does not exist: correct the file, delete the pod, apply it again"
        )
    if (node := node_of_running_pod(result)) != "node-1":
        raise CheckFailed(f"pod/direct is on {node}, not on node-1")
    return "pod/direct is Running on node-1, and no scheduler assigned it"


async def check_return(client: Client) -> str:
    result = await get_pod(client, "waiting")
    if not result.spec.nodeName:
        raise CheckFailed("pod/waiting has no node yet: no scheduler has returned")
    if not any(_creation_time(result) <= to_seconds(term.began) for term in await list_terms(client)):
        raise CheckFailed("no scheduler was elected after pod/waiting was created")
    return f"pod/waiting was assigned by a scheduler that started later, and is Running on {node_of_running_pod(result)}"


async def check_taint(client: Client) -> str:
    result = await get_pod(client, "closed")
    rejected = [
        event for event in await list_events(client, "FailedScheduling", name="closed") if "untolerated taint" in event.message
    ]
    if not rejected:
        raise CheckFailed("no scheduler has rejected pod/closed because of a taint: it was created when the nodes had none")
    if tainted := [
        node.metadata.name for node in await list_nodes(client) if any(item.key == "lab" for item in node.spec.taints)
    ]:
        raise CheckFailed(f"{', '.join(tainted)} still has the taint lab")
    return f"pod/closed was rejected by all nodes because of the taint lab, and is Running on {node_of_running_pod(result)} now"


async def check_no_kubelet(client: Client) -> str:
    result = await get_pod(client, "assigned")
    if not result.spec.nodeName:
        raise CheckFailed("pod/assigned has no node: it was created after the nodes became NotReady")
    failed = {event.involvedObject.name for event in await list_events(client, "NodeNotReady", kind="Node")}
    if result.spec.nodeName not in failed:
        raise CheckFailed(f"{result.spec.nodeName} has never been NotReady: the kubelet was not killed")
    node = node_of_running_pod(result)
    started = min(to_seconds(container_status.state.running.startedAt) for container_status in result.status.containerStatuses)
    waited = started - condition_time(result, "PodScheduled")
    if waited < 1:
        raise CheckFailed("pod/assigned started within a second of its assignment: the kubelet ran when the pod was assigned")
    return f"pod/assigned was assigned to {node} {waited:.0f} s before it started, and its nodes were NotReady"


CHECKS = {
    "start": check_start,
    "no-scheduler": check_no_scheduler,
    "node-name": check_node_name,
    "return": check_return,
    "taint": check_taint,
    "no-kubelet": check_no_kubelet,
}
