"""Deletion of objects, in batches where the API has batch calls, and the wait until the objects are gone."""

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
"""Resources with a batch call for deletions."""
BATCH = 200
WAIT = 120.0
"""Seconds to wait for deletions if --timeout is not set. It exceeds the default grace period of pods, 30 s."""


CLIENT, SERVER = "client", "server"
SAID = {CLIENT: " (dry run)", SERVER: " (server dry run)"}
"""Suffixes of the output lines, as in kubectl."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None
    """Grace period in seconds; None: the default of the object."""
    ignore_not_found: bool
    wait: bool
    propagation: str = ""
    """The propagation policy for dependents, as in DeleteOptions."""
    dry_run: str = "none"
    """ "none"; CLIENT: only read the objects; SERVER: send dry-run requests. Dry runs delete nothing."""


async def delete_all(session: Session, doomed: Sequence[PendingDeletion], how: DeleteOptions) -> None:
    """Delete objects, print a line for each, and wait until they are gone."""
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
    """Return kubectl's output line. It contains the namespace, because a query can select objects of several namespaces."""
    done = f"{'force ' * (how.grace == 0)}deleted{f' from {one.namespace} namespace' * one.resource.namespaced}"
    return f'{reference(one.resource, "").rstrip("/")} "{one_line(one.name)}" {done}{SAID.get(how.dry_run, "")}'


async def _delete(session: Session, batch: Sequence[PendingDeletion], how: DeleteOptions) -> list[str | ApiError]:
    """Return for each object its uid, an empty string if it was already gone, or the error."""
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
    """A deletion with a uid succeeds if that object no longer exists."""
    gone = isinstance(error, NotFound) or (isinstance(error, Conflict) and error.reason == "UIDMismatch")
    return "" if one.uid and gone else error
