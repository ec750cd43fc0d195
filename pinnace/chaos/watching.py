"""A follower of a watch whose every word is in the history.

It follows as an informer does: from the present state, resumed where it was when a stream breaks, anew when that past is gone.
It also changes servers without need, every few seconds: each must go on exactly where the other was left.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

from pinnace.api.resources import Object, Resource
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.chaos.journal import Journal
from pinnace.check.facts import digest
from pinnace.check.history import Told, Word
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Expired, HistoryChanged
from pinnace.client.resource import ResourceClient, WatchBatch
from pinnace.runtime.tls import TlsFiles

T = TypeVar("T", bound=Object)

STAY = (2.0, 8.0)
"""Seconds for which it keeps to a server: at least, at most."""
PAUSE = 0.05
"""Seconds after a stream has failed."""
MOVED = "CANCELLED"
_WORDS: dict[int, Word] = {ADDED: "added", MODIFIED: "modified", DELETED: "deleted"}


class RecordingWatcher(Generic[T]):
    """`name` is its client's and its stream's. `fields` selects, as in a list. `revision`: all up to it has been told."""

    def __init__(
        self,
        name: str,
        resource: Resource[T],
        endpoints: Sequence[str],
        journal: Journal,
        rng: random.Random,
        *,
        tls: TlsFiles | None = None,
        fields: str = "",
    ) -> None:
        self.name = name
        self.revision = 0
        self._resource = resource
        self._fields = fields
        self._journal = journal
        self._random = rng
        self._connections = [Connection([endpoint], tls=tls) for endpoint in endpoints]
        self._resume: int | None = None
        self._history = b""
        self._reached = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        turn = self._random.randrange(len(self._connections))
        try:
            while True:
                turn += 1
                await self._visit(self._connections[turn % len(self._connections)])
        finally:
            await asyncio.gather(*(connection.close() for connection in self._connections))

    async def reached(self, revision: int, timeout: float) -> bool:
        """Waits until everything up to the revision has been told; False: not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.revision < revision:
                    self._reached.clear()
                    await self._reached.wait()
        return self.revision >= revision

    async def _visit(self, connection: Connection) -> None:
        """Follows one server, for a while."""
        server = connection.endpoint
        self._tell("began", self._resume or 0, key=self._resource.prefix, selection=self._fields, server=server)
        code = MOVED
        try:
            async with asyncio.timeout(self._random.uniform(*STAY)):
                await self._follow(connection)
        except TimeoutError:
            pass
        except ApiError as error:
            code = error.code.name
            if isinstance(error, Expired | HistoryChanged):
                self._resume = None
            if isinstance(error, HistoryChanged):  # etcd was restored: its revisions are given out again
                self.revision, self._history = 0, b""
        finally:
            self._tell("ended", server=server, code=code)
        if code != MOVED:
            await asyncio.sleep(PAUSE)

    async def _follow(self, connection: Connection) -> None:
        """Ends with an ApiError, or when the server has had the watch open for long enough."""
        client = ResourceClient(connection, self._resource)
        watch = client.watch(
            fields=self._fields, resource_version=self._resume, not_before=self.revision, history=self._history
        )
        last: Word = "synced" if self._resume is None else "bookmark"
        async with aclosing(watch) as batches:
            async for batch in batches:
                self._take(batch, last)
                if batch.resource_version:
                    last = "bookmark"

    def _take(self, batch: WatchBatch[T], last: Word) -> None:
        for kind, obj in batch.events:
            revision = int(obj.metadata.resourceVersion)
            self._tell(_WORDS[kind], revision, key=self._resource.key_of(obj), digest=digest(obj))
        if batch.resource_version:
            self._tell(last, batch.resource_version)
            self.revision = self._resume = batch.resource_version
            self._history = batch.history or self._history
            self._reached.set()

    def _tell(self, kind: Word, revision: int = 0, **more: Any) -> None:
        self._journal.write(Told(self.name, self.name, time.monotonic(), kind, revision, **more))
