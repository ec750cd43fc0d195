"""Nodes: the standard verbs, and the heartbeats of fleets."""

from collections.abc import AsyncIterator

from apiserver.auth.audit import Audit
from apiserver.cacher.cacher import Cacher
from apiserver.registry.store import Store
from apiserver.services.context import Context
from apiserver.services.heartbeats import HeartbeatsService
from apiserver.services.resource import ResourceService
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse


class NodeService(ResourceService[Node]):
    def __init__(self, store: Store[Node], cacher: Cacher, audit: Audit, heartbeats: HeartbeatsService) -> None:
        super().__init__(store, cacher, audit)
        self._heartbeats = heartbeats

    async def heartbeat(self, requests: AsyncIterator[HeartbeatRequest], context: Context) -> AsyncIterator[HeartbeatResponse]:
        async for response in self._heartbeats.heartbeat(requests, context):
            yield response
