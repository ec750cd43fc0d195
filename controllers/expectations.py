"""What a controller has written itself, and its informers have not shown it yet.

A controller that looks at a cache without its own last writes makes things twice. Kubernetes counts what it has made and
deleted until the informer has shown as many; here every write has a revision: it is enough to wait until informers are there.

    sync: met(key), look, decide, write, wrote(key, ...)    sync: met(key), look, ...

They are a worker's own while it looks at the key. They need not outlast the term: the next one begins behind the barrier of the
election, which is later than all of them.
"""

from typing import Any

from controllers.informers import Informers
from pinnace.api.resources import Resource
from pinnace.client.errors import timed_out
from pinnace.client.resource import ResourceClient

PATIENCE = 10.0
"""Seconds for an informer to show a write; it takes milliseconds. Then it is looked at again, after the key's back-off."""


class Expectations:
    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._wrote: dict[str, dict[Resource[Any], int]] = {}

    def wrote(self, key: str, resource: Resource[Any], resource_version: str) -> None:
        """Something was written for this key, at this version; empty: nothing was."""
        revision = int(resource_version or 0)
        wrote = self._wrote.setdefault(key, {})
        wrote[resource] = max(revision, wrote.get(resource, 0))

    async def lost(self, key: str, client: ResourceClient[Any]) -> None:
        """The answer to a write of this kind was lost: whatever has come of it is known at the revision of now. (What is still
        under way may come later; it is one too many then, and is put right as any other.) Raises ApiError."""
        listing = await client.list(fields="metadata.name=-")
        self.wrote(key, client.resource, str(listing.resource_version))

    async def met(self, key: str) -> None:
        """Returns when all that was written for the key is in the stores. Raises Timeout."""
        for resource, revision in self._wrote.get(key, {}).items():
            try:
                await self._informers.wait_for(revision, PATIENCE, [resource])
            except TimeoutError as error:
                raise timed_out(str(error)) from None
        self._wrote.pop(key, None)
