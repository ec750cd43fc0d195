"""`pinnace describe`: all about objects, for people."""

import asyncio
import time
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, Object, Resource
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.describe import DESCRIPTIONS, deployments, generic, nodes, pods
from pinnace.cli.describe.text import Fields, render
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import AT_ONCE, Query, fetch, tell_none
from pinnace.cli.objects.related import events_about, is_led, lease_of
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out


@verb(
    "describe",
    examples="""
        pinnace describe pod a
        pinnace describe node/node-0 pod/a
        pinnace describe pods -l app=web -A
        pinnace describe pod a --at-revision 1234       # as it was then, with the events of then
    """,
)
@arguments.what
@options.all_namespaces
@options.selector
@options.at_revision
def describe(settings: Settings, what: tuple[str, ...], all_namespaces: bool, selector: str, at_revision: int | None) -> None:
    """Show everything about objects, with their events."""
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector)

    async def show_all(session: Session) -> None:
        session.look_back(at_revision)
        await show(session, query)

    run(settings, show_all)


async def show(session: Session, query: Query) -> None:
    limit = asyncio.Semaphore(AT_ONCE)
    texts: list[str] = []
    for target in query.targets:

        async def one(obj: Object, resource: Resource[Any] = target.resource) -> str:
            async with limit:
                return "".join(f"{line}\n" for line in render(await fields_of(session, resource, obj)))

        texts += await asyncio.gather(*map(one, await fetch(session, query, target)))
    out("\n\n".join(texts))
    if query.selects and not texts:
        tell_none(session, query)


async def fields_of(session: Session, resource: Resource[Any], obj: Any) -> Fields:
    """Gathers what belongs to the object, and describes it."""
    events, now = await events_about(session, resource, obj), time.time()
    if resource is PODS:
        waits = pods.waits_for_scheduler(obj) and not await is_led(session, SCHEDULER_ELECTION)
        return pods.describe(obj, events, now, leaderless=SCHEDULER_ELECTION if waits else "")
    if resource is NODES:
        on_node = await session.client.pods.list(fields=f"spec.nodeName={obj.metadata.name}")
        return nodes.describe(obj, await lease_of(session, obj), on_node.items, events, now)
    if resource is DEPLOYMENTS:
        sets = await session.client.of(REPLICA_SETS).list(obj.metadata.namespace)
        return deployments.describe(obj, sets.items, events, now)
    if resource.plural in DESCRIPTIONS:
        return DESCRIPTIONS[resource.plural](obj, events, now)
    return generic.describe(obj, to_dict(obj), events, now)
