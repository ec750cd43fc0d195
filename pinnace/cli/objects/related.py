"""What is known of an object elsewhere: its events, a node's lease, whether anybody leads an election. Raises ApiError."""

from typing import Any

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Node
from pinnace.api.resources import NODE_LEASE_NAMESPACE, NODES, Object, Resource
from pinnace.api.selectors import one_of
from pinnace.cli.session import Session
from pinnace.client.errors import NotFound


async def events_about(session: Session, resource: Resource[Any], obj: Object) -> list[Event]:
    """Those of this very object, not of an earlier namesake. (A node is its name: it comes back as the same.)"""
    selected = [f"involvedObject.kind={resource.kind}", one_of("involvedObject.name", (obj.metadata.name,))]
    if resource is not NODES:
        selected.append(f"involvedObject.uid={obj.metadata.uid}")
    return (await session.client.events.list(obj.metadata.namespace, fields=",".join(selected))).items


async def is_led(session: Session, election: str) -> bool:
    try:
        return bool((await session.client.elections.get(election)).holder)
    except NotFound:
        return False


async def lease_of(session: Session, node: Node) -> Lease | None:
    try:
        return await session.client.leases.get(node.metadata.name, NODE_LEASE_NAMESPACE)
    except NotFound:
        return None
