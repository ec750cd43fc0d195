"""Changing objects that are there: read, change, compare-and-swap, and again when somebody else was faster."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pinnace.api.resources import Object
from pinnace.cli.objects.query import AT_ONCE, Query, fetch
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import Failure
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note, out
from pinnace.client.errors import ApiError, Conflict
from pinnace.client.resource import ResourceClient

T = TypeVar("T", bound=Object)

Change = Callable[[Any], str]
"""Alters an object in place and says in a word what it did, such as "labeled". May be called again with a later version. Raises
Failure when the object is not fit for it; leaves it as it is when there is nothing to do."""

ATTEMPTS = 10
"""Every lost attempt means that somebody else's write succeeded."""


async def change_each(session: Session, query: Query, change: Change, *, needed: bool = False) -> None:
    """Changes the objects of a query and prints a line for each; one that fails does not stop the others. That a selector
    matches nothing is told; where objects are `needed` it is a Failure."""
    found = False
    limit = asyncio.Semaphore(AT_ONCE)
    for target in query.targets:
        client = session.client.of(target.resource)

        async def one(obj: Object, client: ResourceClient[Any] = client) -> str | Exception:
            async with limit:
                try:
                    return await change_one(client, obj, change)
                except (ApiError, Failure) as error:
                    return error

        objs = await fetch(session, query, target)
        found = found or bool(objs)
        for obj, outcome in zip(objs, await asyncio.gather(*map(one, objs)), strict=True):
            name = reference(target.resource, obj.metadata.name)
            if isinstance(outcome, Exception):
                session.failed(outcome, where=name if isinstance(outcome, Failure) else "")
            else:
                out(f"{name} {outcome}\n")
    if query.selects and not found:
        if needed:
            raise query.unmatched()
        note("no objects match: nothing was changed")


async def change_one(client: ResourceClient[T], obj: T, change: Change) -> str:
    """What `change` said of the version that was stored. Raises ApiError, and what `change` raises."""
    for attempt in range(1, ATTEMPTS + 1):
        new = type(obj)()
        new.CopyFrom(obj)
        said = change(new)
        if new == obj:
            return said
        try:
            await client.update(new)
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            found = await client.get(obj.metadata.name, obj.metadata.namespace)
            if _stored(obj, new, found):
                return said
            obj = found
        else:
            return said
    raise AssertionError("unreachable")


def _stored(old: T, sent: T, found: T) -> bool:
    """Whether an update that met a conflict is what it met: where an answer was lost, the connection sends the update again.
    Others may have added to it since: what the store counts, the status, labels and annotations that the update left alone."""
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
