"""Waiting until objects are as wanted: lists them, and follows them until the last one is. The session's deadline ends it."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.resources import Object
from pinnace.cli.objects.follower import Follower
from pinnace.cli.objects.query import Query
from pinnace.cli.objects.targets import Selection, Target, reference, some_of
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note, out
from pinnace.cli.waiting.conditions import CREATE, DELETE, Wanted
from pinnace.cli.waiting.gone import Doomed, wait_until_gone
from pinnace.cli.waiting.patience import until


async def wait_for(session: Session, query: Query, target: Target, wanted: Sequence[Wanted | str]) -> None:
    """Of one target; prints a line for each object and each thing that has come. `wanted`: see `conditions.in_turn`. Those that
    are selected are those that are there at the beginning, but for `create`: it waits for all that are named, or for one that
    is selected. A named object that is not there is told."""
    created = await _created(session, query, target) if CREATE in wanted else None
    if conditions := [each for each in wanted if not isinstance(each, str)]:
        await _so(session, query, target, conditions, created)
    if DELETE in wanted:
        await _gone(session, target, await _there(session, query, target))


async def _there(session: Session, query: Query, target: Target) -> dict[str, Object]:
    """By key."""
    where = query.selection(target, session)
    listing = await session.client.of(target.resource).list(where.namespace, labels=where.labels, fields=where.fields)
    return {target.resource.key_of(obj): obj for obj in listing.items}


async def _so(
    session: Session, query: Query, target: Target, conditions: Sequence[Wanted], created: dict[str, Object] | None
) -> None:
    """`created`: the objects that were there when their creation was waited for. They may be deleted since, and are waited for
    all the same."""
    namespace = query.namespace(target.resource, session)
    found = await _there(session, query, target) if created is None else created
    for name in target.names:
        if target.resource.key(namespace, name) not in found:
            session.failed(_missing(f'{target.resource.plural} "{name}" not found'))
    if not target.names and not found:
        raise _missing(f"no matching {target.resource.plural} found")
    await _met(session, target, namespace, found, conditions)


async def _created(session: Session, query: Query, target: Target) -> dict[str, Object]:
    """By key."""
    follower: Follower[Any] = Follower(session.client.of(target.resource), query.selection(target, session), note=note)

    def there() -> bool:
        names = {obj.metadata.name for obj in follower.store.values()}
        left = [name for name in target.names if name not in names]
        session.waiting_for = f"{_shown(target, left) if left else target.resource.plural} to be created"
        return not left and bool(names)

    await until(session, follower, there)
    created = {target.resource.key_of(obj): obj for obj in follower.store.values()}
    for obj in created.values():
        _tell(target, obj)
    return created


async def _gone(session: Session, target: Target, found: dict[str, Object]) -> None:
    """Those very objects; what is not there is gone."""
    metas = [obj.metadata for obj in found.values()]
    await wait_until_gone(session, [Doomed(target.resource, meta.namespace, meta.name, meta.uid) for meta in metas])
    for obj in found.values():
        _tell(target, obj)


async def _met(session: Session, target: Target, namespace: str, left: dict[str, Object], conditions: Sequence[Wanted]) -> None:
    """By name, not by the selector: an object that is no longer selected is waited for all the same, and so is the next object
    of its name when it is deleted, as with kubectl."""
    to_come = {key: deque(conditions) for key in left}
    names = [obj.metadata.name for obj in left.values()]
    follower: Follower[Any] = Follower(session.client.of(target.resource), Selection.named(namespace, names), note=note)

    def done() -> bool:
        for key, before in list(left.items()):
            obj = follower.store.get(key)
            if obj is not None and obj.metadata.uid != before.metadata.uid:  # a namesake replaced it
                left[key], to_come[key] = obj, deque(conditions)
            if obj is not None and _has_all(target, obj, to_come[key]):
                del left[key]
        session.waiting_for = f"the condition on {_shown(target, [obj.metadata.name for obj in left.values()])}"
        return not left

    if left:
        await until(session, follower, done)


def _has_all(target: Target, obj: Object, to_come: deque[Wanted]) -> bool:
    """Tells what has come, and takes it away."""
    data = to_dict(obj)
    while to_come and to_come[0].met(data):
        to_come.popleft()
        _tell(target, obj)
    return not to_come


def _tell(target: Target, obj: Object) -> None:
    out(f"{reference(target.resource, obj.metadata.name)} condition met\n")


def _shown(target: Target, names: list[str]) -> str:
    return some_of([reference(target.resource, name) for name in names])


def _missing(message: str) -> Failure:
    return Failure(message, code=ExitCode.NOT_FOUND)
