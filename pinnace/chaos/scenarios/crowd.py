"""More pods for a scheduler than the steady load gives it: so many at once, and some every few milliseconds, so that there is
always one to bind."""

import asyncio
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Self

from pinnace.chaos.workers import LOAD, pod
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.resource import delete_request

TRICKLE, INTERVAL = 2, 0.01
"""Pods a call, and seconds between calls: the resolution of a gap in which nobody binds."""
BURST = 200
"""Pods a call, when many are wanted."""
MOST = 500
"""Pods that are deleted with one call."""


class Crowd:
    """A context manager: the pods trickle in from the beginning to the end, and those that are left are then deleted."""

    def __init__(self, client: Client) -> None:
        self._pods = client.pods
        self._numbers = count()
        self._names: list[str] = []

    async def __aenter__(self) -> Self:
        self._trickling = asyncio.create_task(self._trickle())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trickling.cancel()
        await asyncio.wait((self._trickling,))
        await self.leave()

    async def burst(self, calls: int) -> None:
        """So many calls with BURST pods each, at once. Returns when they are acknowledged, or have failed."""
        await asyncio.gather(*(self._create(BURST) for _ in range(calls)))

    async def leave(self) -> None:
        """Deletes all that there are."""
        names, self._names = self._names, []
        for first in range(0, len(names), MOST):
            with suppress(ApiError):  # what stays is scheduled like any other
                await self._pods.delete_batch([delete_request(name, LOAD) for name in names[first : first + MOST]])

    async def _trickle(self) -> None:
        while True:
            await self._create(TRICKLE)
            await asyncio.sleep(INTERVAL)

    async def _create(self, pods: int) -> None:
        names = [f"crowd-{next(self._numbers)}" for _ in range(pods)]
        self._names += names
        with suppress(ApiError):  # it is in the history
            await self._pods.create_batch([pod(LOAD, name) for name in names])
