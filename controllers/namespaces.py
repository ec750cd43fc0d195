"""The namespace controller: empties namespaces that are being deleted, and ends them.

    Terminating --delete all that is in it, again and again--> empty --delete--> gone

What has a grace period or a finalizer takes its time; nothing new comes, the API server sees to that.

Source: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/#deleting-a-namespace
"""

from collections.abc import Sequence
from typing import Any

from controllers.controller import Shared, Watch, itself
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, NAMESPACES
from pinnace.client.errors import Conflict, NotFound, from_status

LOOK_AGAIN = 0.5
"""Seconds between two looks at a namespace that is not empty yet."""
CONTENTS = tuple(resource for resource in ALL if resource.namespaced)


class NamespaceController:
    name = "namespace"
    workers = 10

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._namespaces = shared.informers.store(NAMESPACES)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(NAMESPACES, itself),)

    async def sync(self, key: str) -> float | None:
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.HasField("deletionTimestamp"):
            return None
        for resource in CONTENTS:
            for item in await self._client.of(resource).delete_collection(key):
                if item.HasField("error") and not isinstance(error := from_status(item.error), NotFound):
                    raise error
        return None if await self._end(namespace) else LOOK_AGAIN

    async def _end(self, namespace: Namespace) -> bool:
        """The API server looks whether it is empty, and knows better than any cache. Is it gone?"""
        metadata = namespace.metadata
        try:
            await self._client.namespaces.delete(metadata.name, uid=metadata.uid)
            left = await self._client.namespaces.get(metadata.name)
        except (NotFound, Conflict):
            return True
        return left.metadata.uid != metadata.uid
