"""Deleting objects, many in one call where there are many, and waiting until they are gone."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pinnace.api.resources import NODES, PODS, Object, Resource
from pinnace.api.selectors import one_of
from pinnace.cli.objects.follower import Follower
from pinnace.cli.objects.query import AT_ONCE
from pinnace.cli.objects.targets import Selection, reference
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note, out
from pinnace.cli.terminal.table import one_line
from pinnace.client.errors import ApiError, Conflict, NotFound, from_status
from pinnace.client.resource import delete_request

BATCHED = (PODS, NODES)
"""Resources whose services delete many objects in one call."""
BATCH = 200
WAIT = 120.0
"""Seconds for objects to go, unless --timeout says otherwise: pods have a grace period of 30 s by default."""
SELECTABLE = 50
"""So many objects are selected by name in a watch; for more, all of the namespace are watched."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Doomed:
    """One object to delete. `uid`: that very one, not a namesake; empty where a name is all that is known."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class How:
    grace: int | None
    """Seconds; None: the object's own."""
    ignore_not_found: bool
    wait: bool
    propagation: str = ""
    """Of DeleteOptions: what becomes of dependents."""


async def delete_all(session: Session, doomed: Sequence[Doomed], how: How) -> None:
    """Deletes, tells each outcome, and waits."""
    session.wait_for_each(len(doomed))
    deleted: list[Doomed] = []
    with session.progress("deleting", len(doomed)) as advance:
        for start in range(0, len(doomed), BATCH):
            batch = doomed[start : start + BATCH]
            for one, outcome in zip(batch, await _delete(session, batch, how), strict=True):
                if isinstance(outcome, str):
                    out(f'{reference(one.resource, "").rstrip("/")} "{one_line(one.name)}" deleted\n')
                    deleted.append(replace(one, uid=outcome))
                elif not (isinstance(outcome, NotFound) and how.ignore_not_found):
                    session.failed(outcome)
            advance(len(batch))
    if how.wait and deleted:
        session.wait_up_to(WAIT)
        await wait_until_gone(session, deleted)


async def _delete(session: Session, batch: Sequence[Doomed], how: How) -> list[str | ApiError]:
    """The uid of what was deleted (empty: it had gone already), or the error, of each."""
    limit = asyncio.Semaphore(AT_ONCE)
    resource = batch[0].resource
    if len(batch) > 1 and resource in BATCHED and all(one.resource is resource for one in batch):
        requests = [
            delete_request(one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation) for one in batch
        ]
        items = await session.client.of(resource).delete_batch(requests)
        return [
            _outcome(one, from_status(item.error)) if item.HasField("error") else item.uid
            for one, item in zip(batch, items, strict=True)
        ]

    async def delete(one: Doomed) -> str | ApiError:
        async with limit:
            try:
                client = session.client.of(one.resource)
                obj: Object = await client.delete(
                    one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation
                )
            except ApiError as error:
                return _outcome(one, error)
            return obj.metadata.uid

    return await asyncio.gather(*map(delete, batch))


def _outcome(one: Doomed, error: ApiError) -> str | ApiError:
    """Of one that was meant by its uid it is enough that it is gone, whoever did it."""
    gone = isinstance(error, NotFound) or (isinstance(error, Conflict) and error.reason == "UIDMismatch")
    return "" if one.uid and gone else error


async def wait_until_gone(session: Session, deleted: Sequence[Doomed]) -> None:
    """Waits for the objects with these uids; namesakes that come after them do not count."""
    groups: defaultdict[tuple[Resource[Any], str], list[Doomed]] = defaultdict(list)
    for one in deleted:
        if one.uid:
            groups[one.resource, one.namespace].append(one)
    for (resource, namespace), left in groups.items():
        fields = one_of("metadata.name", (one.name for one in left)) if len(left) <= SELECTABLE else ""
        follower = Follower(session.client.of(resource), Selection(namespace, fields=fields), note=note)

        def gone(left: list[Doomed] = left, store: Mapping[str, Object] = follower.store) -> bool:
            left[:] = [one for one in left if is_there(one, store)]
            session.waiting_for = _to_go(left)
            return not left

        await follower.until(gone)


def is_there(one: Doomed, store: Mapping[str, Object]) -> bool:
    found = store.get(one.resource.key(one.namespace, one.name))
    return found is not None and found.metadata.uid == one.uid


def _to_go(left: Sequence[Doomed]) -> str:
    shown = ", ".join(reference(one.resource, one.name) for one in left[:SHOWN])
    return f"{shown}{f' and {len(left) - SHOWN} more' if len(left) > SHOWN else ''} to go"
