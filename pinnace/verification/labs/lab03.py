"""The checks of lab 3: you are the scheduler."""

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.quantity import amounts
from pinnace.client.client import Client
from pinnace.fit import pod_requests
from pinnace.verification.labs.checks import CheckFailed, get_pod, list_events, list_nodes
from pinnace.verification.labs.lab01 import node_of_running_pod

REJECTED = "OutOfcpu"
"""The reason of a pod that requests more CPU than its node has left."""


async def _get_pod_bound_to(client: Client, name: str, node: str, *, by_hand: bool) -> Pod:
    """Return the pod. Raises CheckFailed unless it was bound to this node, by a scheduler or not."""
    pod_bound = await get_pod(client, name)
    if not pod_bound.spec.nodeName:
        raise CheckFailed(f"pod/{name} is not bound to a node")
    if by_hand and await list_events(client, "Scheduled", name=name):
        raise CheckFailed(f"pod/{name} was assigned by a scheduler: it has to be bound by hand while no scheduler runs")
    if pod_bound.spec.nodeName != node:
        raise CheckFailed(f"pod/{name} is on {pod_bound.spec.nodeName}, not on {node}")
    return pod_bound


async def check_bind(client: Client) -> str:
    if len(await list_nodes(client)) != 3:
        raise CheckFailed(f"the cluster has {len(await list_nodes(client))} nodes, not 3: it may be another cluster")
    node_of_running_pod(await _get_pod_bound_to(client, "one", "node-0", by_hand=True))
    return "pod/one is Running on node-0, and no scheduler assigned it"


async def check_filter(client: Client) -> str:
    pod_bound = await _get_pod_bound_to(client, "big", "node-0", by_hand=True)
    if pod_bound.status.reason != REJECTED:
        raise CheckFailed(f"pod/big was not rejected by node-0: it is {pod_bound.status.phase}")
    node_of_running_pod(await _get_pod_bound_to(client, "big-2", "node-1", by_hand=True))
    return f"node-0 rejected pod/big ({REJECTED}), and pod/big-2 is Running on node-1"


async def check_assume(client: Client) -> str:
    pair = [await _get_pod_bound_to(client, name, "node-0", by_hand=True) for name in ("left", "right")]
    rejected = [item.metadata.name for item in pair if item.status.reason == REJECTED]
    if len(rejected) != 1:
        raise CheckFailed(f"node-0 rejected {len(rejected)} of pod/left and pod/right, not 1")
    return f"pod/left and pod/right were bound to node-0, and it had no room for pod/{rejected[0]}"


async def check_score(client: Client) -> str:
    pod_bound = await _get_pod_bound_to(client, "choice", "node-2", by_hand=False)
    if not await list_events(client, "Scheduled", name="choice"):
        raise CheckFailed("pod/choice was not assigned by a scheduler")
    node_of_running_pod(pod_bound)
    return "pod/choice was assigned to node-2 by a scheduler"


def _requested_cpu(found: Pod) -> tuple[int, int]:
    """Return the CPU that all containers request together, and that the pod counts as, in millicores."""
    containers = [*found.spec.initContainers, *found.spec.containers]
    total = sum(amounts(container.resources.requests).get("cpu", 0) for container in containers)
    return total, dict(pod_requests(found).amounts).get("cpu", 0)


async def check_init(client: Client) -> str:
    pod_bound = await _get_pod_bound_to(client, "init", "node-2", by_hand=False)
    together, counted = _requested_cpu(pod_bound)
    if not pod_bound.spec.initContainers or counted >= together:
        raise CheckFailed("pod/init has no init containers, or they count by their sum")
    node_of_running_pod(pod_bound)
    return (
        f"pod/init is Running on node-2: its containers request {together / 1000:g} CPUs together, "
        f"and it counts as {counted / 1000:g}"
    )


async def check_plugin(client: Client) -> str:
    result = await get_pod(client, "mine")
    if result.spec.schedulerName != "pack":
        raise CheckFailed(f"pod/mine has the schedulerName {result.spec.schedulerName}, not pack")
    if not result.spec.nodeName:
        raise CheckFailed('pod/mine is not bound: the scheduler "pack" does not run, or finds no node')
    await _get_pod_bound_to(client, "mine", "node-1", by_hand=False)
    if fences.fence_of(result).election != "pack":
        raise CheckFailed('pod/mine was not assigned by the scheduler "pack"')
    node_of_running_pod(result)
    return 'pod/mine was assigned to node-1 by the scheduler "pack"'


CHECKS = {
    "bind": check_bind,
    "filter": check_filter,
    "assume": check_assume,
    "score": check_score,
    "init": check_init,
    "plugin": check_plugin,
}
