"""Deleting objects, many in one call where there are many, and waiting until they are gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pinnace.api.resources import NODES, PODS, Object
from pinnace.cli.objects.query import AT_ONCE
from pinnace.cli.objects.targets import reference
from pinnace.cli.session import Session
from pinnace.cli.terminal import one_line, out
from pinnace.cli.waiting import PendingDeletion, wait_until_gone
from pinnace.client.errors import ApiError, Conflict, NotFound, error_of
from pinnace.client.resource import delete_request

BATCHED = (PODS, NODES)
"""Resources whose services delete many objects in one call."""
BATCH = 200
WAIT = 120.0
"""Seconds for objects to go, unless --timeout says otherwise: pods have a grace period of 30 s by default."""


CLIENT, SERVER = "client", "server"
SAID = {CLIENT: " (dry run)", SERVER: " (server dry run)"}
"""Behind what is told of an object; kubectl's words."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None
    """Seconds; None: the object's own."""
    ignore_not_found: bool
    wait: bool
    propagation: str = ""
    """Of DeleteOptions: what becomes of dependents."""
    dry_run: str = "none"
    """CLIENT looks whether it is there, SERVER asks the server; nothing is deleted."""


async def delete_all(session: Session, doomed: Sequence[PendingDeletion], how: DeleteOptions) -> None:
    """Deletes, tells each outcome, and waits."""
    session.wait_for_each(len(doomed))
    deleted, said = list[PendingDeletion](), SAID.get(how.dry_run, "")
    with session.progress("deleting", len(doomed)) as advance:
        for start in range(0, len(doomed), BATCH):
            batch = doomed[start : start + BATCH]
            for one, outcome in zip(batch, await _delete(session, batch, how), strict=True):
                if isinstance(outcome, str):
                    out(f"{_told(one, how)}\n")
                    deleted.append(replace(one, uid=outcome))
                elif not (isinstance(outcome, NotFound) and how.ignore_not_found):
                    session.failed(outcome)
            advance(len(batch))
    if how.wait and deleted and not said:
        session.wait_up_to(WAIT)
        await wait_until_gone(session, deleted)


def _told(one: PendingDeletion, how: DeleteOptions) -> str:
    """kubectl's words: with the namespace, as a query may be of several."""
    done = f"{'force ' * (how.grace == 0)}deleted{f' from {one.namespace} namespace' * one.resource.namespaced}"
    return f'{reference(one.resource, "").rstrip("/")} "{one_line(one.name)}" {done}{SAID.get(how.dry_run, "")}'


async def _delete(session: Session, batch: Sequence[PendingDeletion], how: DeleteOptions) -> list[str | ApiError]:
    """The uid of what was deleted (empty: it had gone already), or the error, of each."""
    limit, dry_run = asyncio.Semaphore(AT_ONCE), how.dry_run == SERVER
    resource = batch[0].resource
    if how.dry_run != CLIENT and len(batch) > 1 and resource in BATCHED and all(one.resource is resource for one in batch):
        requests = [
            delete_request(one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation, dry_run=dry_run)
            for one in batch
        ]
        items = await session.client.of(resource).delete_batch(requests)
        return [
            _outcome(one, error) if (error := error_of(item)) is not None else item.uid
            for one, item in zip(batch, items, strict=True)
        ]

    async def delete(one: PendingDeletion) -> str | ApiError:
        async with limit:
            try:
                client = session.client.of(one.resource)
                if how.dry_run == CLIENT:
                    return str((await client.get(one.name, one.namespace)).metadata.uid)
                obj: Object = await client.delete(
                    one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation, dry_run=dry_run
                )
            except ApiError as error:
                return _outcome(one, error)
            return obj.metadata.uid

    return await asyncio.gather(*map(delete, batch))


def _outcome(one: PendingDeletion, error: ApiError) -> str | ApiError:
    """Of one that was meant by its uid it is enough that it is gone, whoever did it."""
    gone = isinstance(error, NotFound) or (isinstance(error, Conflict) and error.reason == "UIDMismatch")
    return "" if one.uid and gone else error
