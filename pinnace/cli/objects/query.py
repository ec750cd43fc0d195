"""The objects that a command selects, and requests for them and for related objects, such as events and leases."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pinnace.api import selectors
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Node
from pinnace.api.resources import EVENTS, LEASES, NODE_LEASE_NAMESPACE, NODES, Object, Resource
from pinnace.api.selectors import FIELDS, one_of
from pinnace.api.tables_pb2 import Table
from pinnace.cli.objects.targets import Selection, Target, parse
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session
from pinnace.cli.terminal import err
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Forbidden, NotFound
from pinnace.client.resource import Listing

T = TypeVar("T")
AT_ONCE = 16
"""Concurrent requests when objects are processed individually."""


@dataclass(frozen=True, slots=True)
class Query:
    """Targets, a namespace, and selectors, as validated by `Query.of`."""

    targets: Sequence[Target]
    all_namespaces: bool = False
    labels: str = ""
    fields: str = ""
    optional: bool = False
    """Named objects that do not exist are not an error."""

    @classmethod
    def of(
        cls, words: Sequence[str], *, all_namespaces: bool = False, labels: str = "", fields: str = "", every: bool = False
    ) -> "Query":
        """Parse and validate. `every`: the value of --all. Raises Failure (usage) or SelectorError."""
        targets = parse(words)
        if every and (labels or fields or any(target.names for target in targets)):
            what = "selectors" if labels or fields else "names"
            raise usage(f"{what} and --all cannot be used together", hint="omit one of them")
        selectors.parse_labels(labels)
        for target in targets:
            selectors.parse_fields(fields, FIELDS[target.resource.plural])
            if target.names and (labels or fields):
                raise usage("names and selectors cannot be used together", hint="omit one of them")
            if target.names and all_namespaces and target.resource.namespaced:
                raise usage(
                    "a resource cannot be retrieved by name across all namespaces", hint="use -n NAMESPACE instead of -A"
                )
        return cls(targets, all_namespaces, labels, fields)

    def namespace(self, resource: Resource[Any], session: Session) -> str:
        """Return the namespace of the requests; an empty string means all namespaces."""
        return session.namespace if resource.namespaced and not self.all_namespaces else ""

    def selection(self, target: Target, session: Session) -> Selection:
        """Return the selection for a list or watch."""
        fields = selectors.one_of("metadata.name", target.names) if target.names else self.fields
        return Selection(self.namespace(target.resource, session), self.labels, fields)

    @property
    def selects(self) -> bool:
        """Whether an empty result is possible without an error. For a named object it is an error."""
        return not any(target.names for target in self.targets)

    def unmatched(self) -> Failure:
        """Return the error of a verb that requires at least one object, because a label is probably misspelled."""
        kinds = ",".join(target.resource.plural for target in self.targets)
        hint = f"`pinnace get {kinds} --show-labels` lists existing objects"
        return Failure(f"no {kinds} match: nothing was changed", hint=hint, code=ExitCode.NOT_FOUND)


async def of_each(session: Session, query: Query, look: Callable[[Target], Awaitable[T]]) -> list[T]:
    """Return the results of `look` for the targets. If there are several, forbidden ones are reported and skipped."""
    found = []
    for target in query.targets:
        try:
            found.append(await look(target))
        except Forbidden as error:
            if len(query.targets) == 1:
                raise
            session.failed(error)
    return found


def tell_none(session: Session, query: Query) -> None:
    """Print a message for an empty result, unless an error was reported."""
    if session.has_failed:
        return
    one_namespace = any(query.namespace(target.resource, session) for target in query.targets)
    err(f"No resources found{f' in {session.namespace} namespace' if one_namespace else ''}.")


async def fetch_table(session: Session, query: Query, target: Target, *, metadata: bool) -> Table:
    """Return the objects of one target without names as a table of the server, including metadata if requested."""
    namespace = query.namespace(target.resource, session)
    return await session.client.tables.list(
        target.resource, namespace, labels=query.labels, fields=query.fields, metadata=metadata
    )


async def fetch(session: Session, query: Query, target: Target) -> list[Object]:
    """Return the items of `fetch_list`."""
    return (await fetch_list(session, query, target)).items


async def fetch_list(session: Session, query: Query, target: Target) -> Listing[Object]:
    """Return the objects of one target. Named objects are read individually: errors are reported, and the list has no revision
    (0). Raises ApiError if a list request fails."""
    client = session.client.of(target.resource)
    namespace = query.namespace(target.resource, session)
    if not target.names:
        listing: Listing[Object] = await client.list(namespace, labels=query.labels, fields=query.fields)
        return listing
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Object | ApiError:
        async with limit:
            try:
                found: Object = await client.get(name, namespace)
                return found
            except ApiError as error:
                return error

    objs: list[Object] = []
    for outcome in await asyncio.gather(*(one(name) for name in target.names)):
        if isinstance(outcome, ApiError):
            if not (query.optional and isinstance(outcome, NotFound)):
                session.failed(outcome)
        else:
            objs.append(outcome)
    return Listing(objs, 0)


NAMES_AT_ONCE = 500
"""Maximum number of objects whose events are read in one request. Their names form a selector of at most 130 KB."""


async def events_about(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> list[list[Event]]:
    """Return the events of each object, in one namespace. Events of an earlier object with the same name are excluded, except
    for nodes, which are identified by name."""
    found: dict[str, list[Event]] = {}
    for start in range(0, len(objs), NAMES_AT_ONCE):
        for event in await _events_about(client, resource, objs[start : start + NAMES_AT_ONCE]):
            about = event.involvedObject
            found.setdefault(about.name if resource is NODES else about.uid, []).append(event)
    return [found.get(obj.metadata.name if resource is NODES else obj.metadata.uid, []) for obj in objs]


async def _events_about(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> Sequence[Event]:
    names = one_of("involvedObject.name", [obj.metadata.name for obj in objs])
    namespace = objs[0].metadata.namespace
    return (await client.of(EVENTS).list(namespace, fields=f"involvedObject.kind={resource.kind},{names}")).items


async def is_led(client: Client, election: str) -> bool:
    try:
        return bool((await client.elections.get(election)).holder)
    except NotFound:
        return False


async def lease_of(client: Client, node: Node) -> Lease | None:
    try:
        return await client.of(LEASES).get(node.metadata.name, NODE_LEASE_NAMESPACE)
    except NotFound:
        return None
