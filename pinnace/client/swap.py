"""Changing an object that is there: read, change, update at the version that was read, and again when somebody was faster."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pinnace.api.resources import Object
from pinnace.client.errors import Conflict

T = TypeVar("T", bound=Object)

ATTEMPTS = 10
"""Every lost attempt means that somebody else's write succeeded."""


class Client(Protocol[T]):
    async def get(self, name: str, namespace: str) -> T: ...

    async def update(self, obj: T) -> T: ...


async def swap(client: Client[T], obj: T, change: Callable[[T], object]) -> T:
    """Changes `obj`, as it was read, and updates it: what is stored then. `change` alters an object in place; it may be called
    again with a later version, and what it leaves as it is is not written. Raises ApiError, and what `change` raises."""
    attempts = AsyncRetrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )

    async def attempt() -> T:
        nonlocal obj
        new = type(obj)()
        new.CopyFrom(obj)
        change(new)
        if new == obj:
            return obj
        try:
            return await client.update(new)
        except Conflict as conflict:
            before, obj = obj, await client.get(obj.metadata.name, obj.metadata.namespace)
            if conflict.in_doubt and _stored(before, new, obj):
                return obj
            raise

    return await attempts(attempt)


def _stored(old: T, sent: T, found: T) -> bool:
    """Whether an update that met a conflict is what it met: an answer was lost, and the connection has sent the update again.
    (Where none was lost, it proves nothing that the same is stored: of two who add one, both are to count.) Others may have
    added to it since: what the store counts, the status, labels and annotations that the update left alone."""
    ours, present = _settled(sent), _settled(found)
    for name in ("labels", "annotations"):
        before, mine, theirs = (getattr(obj.metadata, name) for obj in (old, ours, present))
        for key in {*before, *mine, *theirs}:
            if before.get(key) == mine.get(key):
                mine.pop(key, None)
                theirs.pop(key, None)
    return bool(ours == present)


def _settled(obj: T) -> Any:
    """A copy without what a writer of specs does not decide."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    for part, fields in ((copy, ("status",)), (copy.metadata, ("resourceVersion", "generation"))):
        for field in fields:
            if field in part.DESCRIPTOR.fields_by_name:  # not every kind has a status
                part.ClearField(field)
    return copy
