"""Batched writes, and expectations: the writes of a controller that its informers do not show yet.

A controller that decides by a cache without its own last writes creates objects twice. Each write has a revision, so a
controller waits until its informers reach the revision. (Kubernetes counts creations and deletions instead.)

    sync: met(key), decide, write, wrote(key, ...)    sync: met(key), decide, ...

Expectations need not outlast the term: the next term begins behind the barrier of the election, which is later.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from controllers.informers import Informers
from controllers.runtime import Unfinished
from pinnace.api.resources import Resource
from pinnace.api.wire import portions
from pinnace.client.errors import ApiError, Fenced, Unavailable, error_of, timed_out
from pinnace.client.resource import ResourceClient, Send

T = TypeVar("T", bound=Message)

BATCH = 500
"""Items of one call, at most."""


async def in_batches(send: Send[T], items: Sequence[T]) -> list[ApiError | None]:
    """Sends all of them, as long as there is a server; what became of each. Raises Fenced."""
    errors: list[ApiError | None] = []
    for batch in portions(items, BATCH):
        try:
            outcomes = await send(batch)
        except Fenced:
            raise
        except Unavailable as error:
            return errors + [error] * (len(items) - len(errors))
        except ApiError as error:
            errors += [error] * len(batch)
        else:
            errors += map(error_of, outcomes)
    return errors


def unless_refused(again: float | None, errors: Iterable[ApiError | None], *, but: tuple[type[ApiError], ...]) -> float | None:
    """`again`, for `sync` to return. Raises Unfinished with the first error that is none of `but`."""
    for error in errors:
        if error is not None and not isinstance(error, but):
            raise Unfinished(error, again)
    return again


class Batcher(Generic[T]):
    """Puts what several workers write at one moment into one call: while one call is under way, the next one fills up."""

    def __init__(self, send: Send[T]) -> None:
        self._send = send
        self._waiting: list[tuple[T, asyncio.Future[str]]] = []
        self._sending = False

    async def write(self, item: T) -> str:
        """The resourceVersion that it has now. Raises ApiError."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if not self._sending:
            await self._send_all()
        return await done

    async def _send_all(self) -> None:
        """By the first of them, for all who come meanwhile."""
        self._sending = True
        try:
            await asyncio.sleep(0)
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                for batch in portions(waiting, BATCH, size=lambda each: each[0].ByteSize()):
                    await self._send_batch(batch)
        finally:
            self._sending = False
            self._waiting.clear()  # if it was cancelled, so were the others: the term is over

    async def _send_batch(self, batch: Sequence[tuple[T, asyncio.Future[str]]]) -> None:
        try:
            outcomes = await self._send([item for item, _ in batch])
        except Exception as error:
            for _, done in batch:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), outcome in zip(batch, outcomes, strict=True):
            if done.done():
                continue
            if (refusal := error_of(outcome)) is not None:
                done.set_exception(refusal)
            else:
                done.set_result(outcome.resourceVersion)


INFORMER_TIMEOUT = 10.0
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
                await self._informers.wait_for(revision, INFORMER_TIMEOUT, [resource])
            except TimeoutError as error:
                raise timed_out(str(error)) from None
        self._wrote.pop(key, None)
