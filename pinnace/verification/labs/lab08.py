"""The checks of lab 8: your policy, measured."""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.client.client import Client
from pinnace.verification.labs.checks import CheckFailed, list_nodes

REPLICAS = 6


async def _get_prices(client: Client) -> dict[str, int]:
    result = {node.metadata.name: node.metadata.labels.get("price", "") for node in await list_nodes(client)}
    if without := [name for name, price in result.items() if not price.isdigit()]:
        raise CheckFailed(f"{', '.join(without)} without a label price that is a number")
    return {name: int(price) for name, price in result.items()}


async def _load(client: Client, name: str, scheduler: str) -> list[Pod]:
    """Return the pods of a load. Raises CheckFailed unless all of them run and belong to the scheduler."""
    pods = [
        item
        for item in (await client.of(PODS).list("default", labels=f"app={name}")).items
        if not item.metadata.HasField("deletionTimestamp")
    ]
    running = [pod for pod in pods if pod.status.phase == "Running"]
    if len(running) != REPLICAS or len(pods) != REPLICAS:
        raise CheckFailed(f"deployment/{name} has {len(pods)} pods, of which {len(running)} run; expected {REPLICAS}")
    if wrong := [pod for pod in pods if pod.spec.schedulerName != scheduler]:
        raise CheckFailed(f"pod/{wrong[0].metadata.name} has the schedulerName {wrong[0].spec.schedulerName}, not {scheduler}")
    return pods


async def _show_drained_nodes(client: Client) -> str:
    names = [node.metadata.name for node in await list_nodes(client) if node.spec.unschedulable]
    return f"; drained: {', '.join(names)}" if names else ""


async def check_start(client: Client) -> str:
    prices = await _get_prices(client)
    if len(prices) != 6:
        raise CheckFailed(f"the cluster has {len(prices)} nodes, not 6: it may be another cluster")
    return f"6 nodes have prices, {sum(prices.values())} together"


async def check_default(client: Client) -> str:
    prices = await _get_prices(client)
    used = {pod.spec.nodeName for pod in await _load(client, "default-load", "default-scheduler")}
    return f"the default policy uses {len(used)} nodes of price {sum(prices[node] for node in used)}"


async def check_policy(client: Client) -> str:
    prices = await _get_prices(client)
    used = {pod.spec.nodeName for pod in await _load(client, "cheap-load", "cheap")}
    price = sum(prices[node] for node in used)
    if any(prices[node] == max(prices.values()) for node in used):
        raise CheckFailed(
            f"pods of cheap-load are on the most expensive nodes: the policy pays {price}{await _show_drained_nodes(client)}"
        )
    return f'the policy "cheap" uses {len(used)} nodes of price {price}'


async def check_risk(client: Client) -> str:
    if not any(node.metadata.name == "node-0" and node.spec.unschedulable for node in await list_nodes(client)):
        raise CheckFailed(f"node-0 is not drained{await _show_drained_nodes(client)}")
    pods = await _load(client, "cheap-load", "cheap")
    if any(pod.spec.nodeName == "node-0" for pod in pods):
        raise CheckFailed("pods of cheap-load still run on node-0")
    return f"node-0 is drained, and the {len(pods)} pods of cheap-load run on other nodes"


CHECKS = {"start": check_start, "default": check_default, "policy": check_policy, "risk": check_risk}
