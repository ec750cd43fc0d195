"""Writes of many objects: in batches that a server takes, and each outcome looked at."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from controllers.controller import Unfinished
from pinnace.api.portions import portions
from pinnace.client.errors import ApiError, Fenced, Unavailable, error_of
from pinnace.client.resource import Send

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
