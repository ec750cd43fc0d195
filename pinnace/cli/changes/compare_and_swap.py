"""Changing the objects of a query, each by compare-and-swap."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pinnace.api.resources import Object
from pinnace.cli.objects.query import AT_ONCE, Query, fetch
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import Failure
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note, out
from pinnace.client.errors import ApiError
from pinnace.client.resource import ResourceClient, swap

T = TypeVar("T", bound=Object)

Change = Callable[[Any], str]
"""Alters an object in place and says in a word what it did, such as "labeled". May be called again with a later version. Raises
Failure when the object is not fit for it; leaves it as it is when there is nothing to do."""


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
    said = ""

    def alter(new: T) -> None:
        nonlocal said
        said = change(new)

    await swap(client, obj, alter)
    return said
