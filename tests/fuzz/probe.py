"""Is the server still well? And can what hostile messages have left in it be removed again?"""

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from pinnace.api import core_v1_pb2
from pinnace.api.resources import ALL, LEASES, NAMESPACES, PODS, Resource
from pinnace.api.verbs_pb2 import DeleteRequest, GetRequest, ListRequest, WatchEventType, WatchRequest
from tests.builders import make_pod
from tests.fuzz.live import Live
from tests.fuzz.shots import Who

PATIENCE = 10.0
NAMESPACE = "probe"
"""Of the probe alone: no hostile message knows it."""
_ORDER = (*(resource for resource in ALL if resource is not NAMESPACES), NAMESPACES)
"""A namespace can be removed when nothing is in it."""


class Keeper:
    """The honest administrator."""

    def __init__(self, server: Live) -> None:
        self._channel = server.channel(Who.ADMIN)
        self._there: Mapping[str, set[tuple[str, str]]] = {}
        self._probes = 0

    async def look_around(self) -> None:
        """Makes the namespace of the probe, and remembers what is there: it is to stay."""
        request = NAMESPACES.request("Create")()
        request.object.metadata.name = NAMESPACE
        await self._call(NAMESPACES, "Create", request)
        self._there = {resource.plural: set(map(_place, await self._list(resource))) for resource in ALL}

    async def probe(self) -> list[str]:
        """Creates a pod, reads it, sees it in a watch, and deletes it. What went wrong."""
        self._probes += 1
        name = f"probe-{self._probes}"
        try:
            request: Any = PODS.request("Create")()
            request.object.CopyFrom(make_pod(name, namespace=NAMESPACE).req(cpu="1").new())
            made = core_v1_pb2.Pod.FromString(await self._call(PODS, "Create", request))
            got = core_v1_pb2.Pod.FromString(await self._call(PODS, "Get", GetRequest(namespace=NAMESPACE, name=name)))
            seen = await self._watch(name)
            await self._call(PODS, "Delete", DeleteRequest(namespace=NAMESPACE, name=name))
        except grpc.aio.AioRpcError as error:
            return [f"{name}: {error.code().name}: {error.details()}"]
        return [] if made == got == seen else [f"{name}: what was made, read and seen differs"]

    async def sweep(self) -> list[str]:
        """Removes all that was not there to begin with. What could not be removed."""
        problems = []
        for resource in _ORDER:
            for obj in await self._list(resource):
                if _place(obj) not in self._there[resource.plural]:
                    try:
                        await self._remove(resource, obj)
                    except grpc.aio.AioRpcError as error:
                        if error.code() is not grpc.StatusCode.NOT_FOUND and resource is not LEASES:
                            where = "/".join(filter(None, _place(obj)))
                            problems.append(
                                f"cannot remove {resource.plural} {where!r}: {error.code().name}: {error.details()}"
                            )
        return problems

    async def close(self) -> None:
        await self._channel.close()

    async def _remove(self, resource: Resource[Any], obj: Any) -> None:
        if obj.metadata.finalizers:
            request: Any = resource.request("Update")()
            request.object.CopyFrom(obj)
            request.object.metadata.finalizers[:] = []
            await self._call(resource, "Update", request)
        request = DeleteRequest(namespace=obj.metadata.namespace, name=obj.metadata.name)
        request.options.gracePeriodSeconds = 0
        await self._call(resource, "Delete", request)

    async def _list(self, resource: Resource[Any]) -> list[Any]:
        result: Any = resource.list_message.FromString(await self._call(resource, "List", ListRequest()))
        return list(result.items)

    async def _watch(self, name: str) -> core_v1_pb2.Pod | None:
        request = WatchRequest(namespace=NAMESPACE)
        request.options.fieldSelector = f"metadata.name={name}"
        call: Any = self._channel.unary_stream(f"/{PODS.service}/Watch")(request.SerializeToString(), timeout=PATIENCE)
        async for item in call:
            response: Any = PODS.watch_response.FromString(item)
            for event in response.events:
                if event.type == WatchEventType.ADDED:
                    call.cancel()
                    result: core_v1_pb2.Pod = event.object
                    return result
        return None

    async def _call(self, resource: Resource[Any], verb: str, request: Any) -> bytes:
        call = self._channel.unary_unary(f"/{resource.service}/{verb}")
        answer: bytes = await call(request.SerializeToString(), timeout=PATIENCE)
        return answer


def _place(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
