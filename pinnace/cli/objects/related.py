"""What is known of objects elsewhere: their events, a node's lease, whether anybody leads an election. Raises ApiError."""

from collections.abc import Sequence
from typing import Any

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Node
from pinnace.api.resources import EVENTS, LEASES, NODE_LEASE_NAMESPACE, NODES, Object, Resource
from pinnace.api.selectors import one_of
from pinnace.client.client import Client
from pinnace.client.errors import NotFound

NAMES_AT_ONCE = 500
"""Objects whose events one call asks for: their names make a selector of 130 KB at most."""


async def events_about(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> list[list[Event]]:
    """Of each object (they are of one namespace): those of this very one, not of an earlier namesake. (A node is its name: it
    comes back as the same.)"""
    found: dict[str, list[Event]] = {}
    for start in range(0, len(objs), NAMES_AT_ONCE):
        for event in await _events_about(client, resource, objs[start : start + NAMES_AT_ONCE]):
            about = event.involvedObject
            found.setdefault(about.name if resource is NODES else about.uid, []).append(event)
    return [found.get(obj.metadata.name if resource is NODES else obj.metadata.uid, []) for obj in objs]


async def _events_about(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> Sequence[Event]:
    names = one_of("involvedObject.name", [obj.metadata.name for obj in objs])
    namespace = objs[0].metadata.namespace
    return (await client.of(EVENTS).list(namespace, fields=f"involvedObject.kind={resource.kind},{names}")).items


async def is_led(client: Client, election: str) -> bool:
    try:
        return bool((await client.elections.get(election)).holder)
    except NotFound:
        return False


async def lease_of(client: Client, node: Node) -> Lease | None:
    try:
        return await client.of(LEASES).get(node.metadata.name, NODE_LEASE_NAMESPACE)
    except NotFound:
        return None
