"""The checks of lab 6: lose a node."""

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Event, Node, Pod
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, PODS
from pinnace.api.scalars import to_seconds
from pinnace.api.wellknown import UNREACHABLE_TAINT
from pinnace.client.client import Client
from pinnace.verification.labs.checks import CheckFailed, list_events, list_nodes

NODES = 3
TOLERATED = {"quick": 2, "patient": 300}
"""Seconds for which the pods of each Deployment tolerate an unreachable node."""
OBSERVED = 4.0
"""Seconds for which all nodes have to be NotReady: longer than the pods of `quick` tolerate."""
EVICTED = "Marking for deletion"
CANCELLED = "Cancelling deletion"


async def _get_node(client: Client, name: str) -> Node:
    for node in await list_nodes(client):
        if node.metadata.name == name:
            return node
    raise CheckFailed(f"node/{name} does not exist")


def _ready_since(node: Node) -> float:
    """Return the time in seconds since the epoch. Raises CheckFailed if the node is not Ready."""
    node_condition = conditions.find_condition(node.status.conditions, "Ready")
    if node_condition is None or node_condition.status != "True":
        raise CheckFailed(f"{node.metadata.name} is not Ready")
    return float(to_seconds(node_condition.lastTransitionTime))


def _first_time(event: Event) -> float:
    return float(to_seconds(event.firstTimestamp))


def _last_time(event: Event) -> float:
    return float(to_seconds(event.lastTimestamp))


async def _not_ready_events(client: Client, name: str) -> list[Event]:
    """Return the events of this node that became NotReady. Raises CheckFailed if it never did."""
    result = await list_events(client, "NodeNotReady", kind="Node", name=name)
    if not result:
        raise CheckFailed(f"{name} has never been NotReady: its kubelet was not stopped")
    return result


async def _pods_scheduled_before(client: Client, node: str) -> set[str]:
    """Return the names of the pods that were scheduled to this node before it became NotReady for the first time."""
    silent = min(map(_first_time, await _not_ready_events(client, node)))
    scheduled = await list_events(client, "Scheduled")
    return {
        event.involvedObject.name
        for event in scheduled
        if event.message.endswith(f" to {node}") and _first_time(event) <= silent
    }


async def _list_evictions(client: Client, message: str) -> list[Event]:
    return [event for event in await list_events(client, "TaintManagerEviction") if event.message.startswith(message)]


async def _list_pods(client: Client) -> dict[str, Pod]:
    return {item.metadata.name: item for item in (await client.of(PODS).list("default")).items}


async def check_start(client: Client) -> str:
    result = await list_nodes(client)
    if len(result) != NODES:
        raise CheckFailed(f"the cluster has {len(result)} nodes, not {NODES}: it may be another cluster")
    for node in result:
        _ready_since(node)
    leases = (await client.of(LEASES).list(NODE_LEASE_NAMESPACE)).items
    if len(holders := {lease.spec.holderIdentity for lease in leases}) != NODES:
        raise CheckFailed(f"{len(holders)} kubelets hold leases of nodes, not {NODES}: use --kubelets {NODES}")
    return f"{NODES} nodes are Ready, and each has a lease of its own kubelet"


async def check_tolerations(client: Client) -> str:
    for name, seconds in TOLERATED.items():
        pods = (await client.of(PODS).list("default", labels=f"app={name}")).items
        if not pods:
            raise CheckFailed(f"deployment/{name} has no pods")
        for pod in pods:
            numbers = [
                toleration.tolerationSeconds for toleration in pod.spec.tolerations if toleration.key == UNREACHABLE_TAINT
            ]
            if numbers != [seconds]:
                said = f"{numbers[0]} s" if numbers else "no time"
                raise CheckFailed(f"pod/{pod.metadata.name} tolerates an unreachable node for {said}, not for {seconds} s")
    quick, patient = TOLERATED.values()
    return f"pods of quick tolerate an unreachable node for {quick} s, pods of patient for {patient} s"


async def check_silent(client: Client) -> str:
    there = await _pods_scheduled_before(client, "node-1")
    evicted = sorted(there & {eviction.involvedObject.name for eviction in await _list_evictions(client, EVICTED)})
    if not (quick := [name for name in evicted if name.startswith("quick-")]):
        raise CheckFailed("no pod of quick was evicted from node-1: its kubelet was not frozen for long enough")
    stayed = [name for name in there - {*evicted} if name.startswith("patient-")]
    if not stayed:
        raise CheckFailed("the pod of patient was evicted from node-1: its kubelet was frozen for too long")
    return f"node-1 was NotReady: pod/{quick[0]} was evicted, and pod/{stayed[0]} was not"


async def check_return(client: Client) -> str:
    there = await _pods_scheduled_before(client, "node-1")
    _ready_since(await _get_node(client, "node-1"))
    pods = await _list_pods(client)
    cancelled = {eviction.involvedObject.name for eviction in await _list_evictions(client, CANCELLED)}
    kept = [name for name in there & cancelled if name in pods]
    if not kept:
        raise CheckFailed("no deletion of a pod on node-1 was cancelled: its kubelet did not return in time")
    if left := [name for name in there if name.startswith("quick-") and name in pods]:
        raise CheckFailed(f"pod/{left[0]} still exists: its kubelet has not confirmed that it has stopped")
    return f"node-1 is Ready again, and the deletion of pod/{kept[0]} was cancelled"


async def check_gone(client: Client) -> str:
    there = await _pods_scheduled_before(client, "node-2")
    _ready_since(await _get_node(client, "node-2"))
    pods = await _list_pods(client)
    if left := sorted(there & pods.keys()):
        raise CheckFailed(f"pod/{left[0]}, which was on node-2, still exists")
    return f"node-2 was NotReady and is Ready again, and {len(there)} pods that were there are replaced"


async def check_all(client: Client) -> str:
    result = await list_nodes(client)
    began = max([max(map(_last_time, await _not_ready_events(client, node.metadata.name))) for node in result], default=0.0)
    ended = min(map(_ready_since, result), default=0.0)
    if ended - began < OBSERVED:
        raise CheckFailed(f"the nodes were never NotReady at the same time for {OBSERVED:.0f} s")
    if moved := [eviction for eviction in await _list_evictions(client, EVICTED) if began < _last_time(eviction) < ended]:
        raise CheckFailed(f"pod/{moved[0].involvedObject.name} was evicted when all nodes were NotReady")
    return f"all {NODES} nodes were NotReady for {ended - began:.0f} s at the same time, and no pod was evicted"


CHECKS = {
    "start": check_start,
    "tolerations": check_tolerations,
    "silent": check_silent,
    "return": check_return,
    "gone": check_gone,
    "all": check_all,
}
