"""Batched writes, and expectations: the writes of a controller that its informers have not received yet.

A controller whose cache lacks its own last writes creates objects twice. Each write has a revision, so a controller waits until
its informers reach the revision. Kubernetes counts creations and deletions instead.

    sync: met(key), decide, write, wrote(key, ...)    sync: met(key), decide, ...

Expectations end with the term, because the next term begins behind the barrier of the election.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from pinnace.api.resources import Resource
from pinnace.api.wire import split_into_batches
from pinnace.client.errors import ApiError, Fenced, Unavailable, error_of, timed_out
from pinnace.client.resource import BatchSend, ResourceClient
from pinnace.controllers.informers import Informers
from pinnace.controllers.runtime import PartialSyncError

T = TypeVar("T", bound=Message)

BATCH = 500
"""Maximum number of items per call."""


async def send_in_batches(send: BatchSend[T], items: Sequence[T]) -> list[ApiError | None]:
    """Send all items in batches. Return the error of each item, or None. After Unavailable, the remaining items are not sent.

    Raise Fenced.
    """
    errors: list[ApiError | None] = []
    for batch in split_into_batches(items, BATCH):
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


def raise_first_error(
    again: float | None, errors: Iterable[ApiError | None], *, but: tuple[type[ApiError], ...]
) -> float | None:
    """Return `again`. Raise Unfinished with the first error that is not of a type in `but`."""
    for error in errors:
        if error is not None and not isinstance(error, but):
            raise PartialSyncError(error, again)
    return again


class WriteBatcher(Generic[T]):
    """Combines concurrent writes of several workers into one call. While a call runs, the next batch is collected."""

    def __init__(self, send: BatchSend[T]) -> None:
        self._send = send
        self._waiting: list[tuple[T, asyncio.Future[str]]] = []
        self._sending = False

    async def write_item(self, item: T) -> str:
        """Write the item. Return its new resourceVersion. Raise ApiError."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if not self._sending:
            await self._send_all()
        try:
            return await done
        finally:
            del done  # its error refers to this frame: the item would live until the garbage collection

    async def _send_all(self) -> None:
        """Send all waiting items. The first writer does this for all others."""
        self._sending = True
        try:
            await asyncio.sleep(0)
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                for batch in split_into_batches(waiting, BATCH, size=lambda item: item[0].ByteSize()):
                    await self._send_batch(batch)
        finally:
            self._sending = False
            self._waiting.clear()  # after a cancellation the other writers are cancelled too, because the term has ended

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
"""Seconds for an informer to receive a write, which usually takes milliseconds. Then the sync fails and is retried."""


class Expectations:
    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._wrote: dict[str, dict[Resource[Any], int]] = {}

    def expect_version(self, key: str, resource: Resource[Any], resource_version: str) -> None:
        """Record a write for this key with its version. An empty version is ignored."""
        revision = int(resource_version or 0)
        wrote = self._wrote.setdefault(key, {})
        wrote[resource] = max(revision, wrote.get(resource, 0))

    async def expect_lost_write(self, key: str, client: ResourceClient[Any]) -> None:
        """Handle a write whose response was lost: expect the current revision, which includes the write if it committed.

        A write that commits later creates a surplus object, which a later sync corrects. Raise ApiError.
        """
        listing = await client.list(fields="metadata.name=-")
        self.expect_version(key, client.resource, str(listing.resource_version))

    async def wait_until_met(self, key: str) -> None:
        """Wait until the stores contain all writes for the key. Raise Timeout."""
        for resource, revision in self._wrote.get(key, {}).items():
            try:
                await self._informers.wait_for(revision, INFORMER_TIMEOUT, [resource])
            except TimeoutError as error:
                raise timed_out(str(error)) from None
        self._wrote.pop(key, None)
