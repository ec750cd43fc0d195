"""When an API server takes calls: once its state is loaded and has what every cluster has, until it stops.

    closed --loaded--> compare the identity --> end the terms of before a restore --> make what every cluster has --> open
       ^                                                                                                               |
       '--------------------------------------------------- loaded anew ----------------- stopping <--drain------------'

State that was read anew may be that of a store that was restored, and lack everything. Until it does not, no call is taken:
without roles all would be forbidden, and who is told so gives up; by an old token somebody would lead.
"""

import asyncio
from typing import Any

from apiserver.bootstrap import Bootstrap
from apiserver.cacher.cacher import Cacher
from apiserver.election.history import Restores
from apiserver.election.service import ElectionsService
from apiserver.identity import ClusterIdentity
from apiserver.services.errors import not_loaded, shutting_down
from apiserver.services.methods import Gate
from pinnace.api.resources import Resource
from pinnace.api.status import Refusal


class Opening:
    """`run` it beside the cacher. `bootstrapped`: what every cluster has is there."""

    def __init__(
        self,
        cacher: Cacher,
        identity: ClusterIdentity,
        bootstrap: Bootstrap,
        restores: Restores,
        elections: ElectionsService,
    ) -> None:
        self._cacher = cacher
        self._identity = identity
        self._bootstrap = bootstrap
        self._restores = restores
        self._elections = elections
        self.bootstrapped = asyncio.Event()
        self._loaded = asyncio.Event()
        self._restored = False
        self._stopping = False
        self.turned_away = 0
        """Calls since `drain`: each was told to go on with another server."""
        cacher.on_load(self._close)

    async def run(self) -> None:
        """Makes what every cluster has, as soon as etcd can be reached, and again when it may have been lost. Until
        cancelled."""
        while True:
            await self._loaded.wait()
            self._loaded.clear()
            await self._identity.check()
            if self._restored:
                self._restored = False
                self._elections.restored()
                await self._restores.end_terms()
            await self._bootstrap.run()
            if not self._loaded.is_set():
                self.bootstrapped.set()

    def drain(self) -> None:
        """Takes no more calls."""
        self._stopping = True

    def readiness(self) -> str | None:
        """Why the server is not ready; None: it is."""
        if self._stopping:
            return "the server is shutting down"
        if not self._cacher.ready:
            return "the watch cache is not loaded, or its watch of etcd is broken"
        return None if self.bootstrapped.is_set() else "the default namespaces and roles are not made yet"

    def refusal(self) -> Refusal | None:
        """The gate: why no call is taken now."""
        if self._stopping:
            self.turned_away += 1
            return shutting_down()
        return None if self.bootstrapped.is_set() else not_loaded()

    def gate(self, resource: Resource[Any]) -> Gate:
        """Why no call about the resource is taken now: some are loaded late."""
        cache = self._cacher.of(resource)
        return lambda: self.refusal() or (None if cache.loaded else not_loaded())

    def _close(self) -> None:
        """The state was read anew."""
        self.bootstrapped.clear()
        if self._cacher.restored:
            self._restored = True
            self._restores.part()
        self._loaded.set()
