"""References to objects in arguments (`pods`, `pods,nodes`, `pod a b`, `pod/a node/b`), and requests for the selected objects
and for related objects, such as events and leases.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pinnace.api import resources, selectors
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Node
from pinnace.api.resources import (
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Object,
    Resource,
    absent,
)
from pinnace.api.selectors import FIELDS, one_of
from pinnace.api.tables_pb2 import Table
from pinnace.cli.command import did_you_mean
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session
from pinnace.cli.terminal import err, one_line
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Forbidden, NotFound
from pinnace.client.resource import Listing

SELECTABLE = 50
"""Maximum number of objects that a watch selects by name. Above it, the whole namespace is watched."""
SHOWN = 5
CATEGORY = "all"
IN_CATEGORY = (PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, JOBS)
"""The kinds of the category "all", as in kubectl."""

Item: TypeAlias = tuple[Resource[Any], Object]
"""A resource, and an object of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of one resource: the named ones in the given order, or without names all that match the selectors."""

    resource: Resource[Any]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of objects of a resource. An empty namespace means all namespaces."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @classmethod
    def named(cls, namespace: str, names: Sequence[str]) -> "Selection":
        """Select objects by name, or the whole namespace if there are too many names."""
        return cls(namespace, fields=one_of("metadata.name", names) if len(names) <= SELECTABLE else "")


def reference(resource: Resource[Any], name: str) -> str:
    """Return the reference in output and arguments, such as "pod/a" or "priorityclass.scheduling.k8s.io/high". Control
    characters, which names of roles can contain, are removed."""
    return f"{resource.kind.lower()}{f'.{resource.group}' if resource.group else ''}/{one_line(name)}"


def some_of(references: Sequence[str]) -> str:
    """Return the first references, and the number of the others."""
    more = len(references) - SHOWN
    return ", ".join(references[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def parse_resource(word: str) -> Resource[Any]:
    """Find a resource by its plural, singular, kind or short name, with or without the API group. Raises Failure (usage)."""
    name, _, group = word.partition(".")
    if (lacking := absent(name)) is not None:
        raise usage(str(lacking), hint=lacking.instead)
    if name == CATEGORY:
        raise usage(f'"{CATEGORY}" is a category of kinds and takes no names', hint="specify the kind, as in deployment/web")
    found = resources.by_name(name)
    if found is None or (group and not _is_group_of(found, group)):
        known = [name for resource in resources.ALL for name in resources.names(resource)]
        kinds = ", ".join(resource.plural for resource in resources.ALL)
        hint = f"use KIND NAME or KIND/NAME, as in deployment/web; the kinds are {kinds}"
        raise usage(f'unknown resource "{word}"{did_you_mean(name, known)}', hint=hint)
    return found


def _is_group_of(resource: Resource[Any], group: str) -> bool:
    """Whether `group` is the API group of the resource, such as "scheduling.k8s.io" or, with the version,
    "v1.scheduling.k8s.io"."""
    own, _, version = resource.api_version.rpartition("/")
    return group in ((own, f"{version}.{own}") if own else (version,))


def parse(words: Sequence[str]) -> list[Target]:
    """Return at least one target. Raises Failure (usage)."""
    if not words:
        raise usage("you must specify the type of resource", hint="such as `pods` or `node/a`")
    if "/" in words[0]:
        return _references(words)
    names = tuple(dict.fromkeys(words[1:]))
    kinds = [kind for word in words[0].split(",") if word for kind in _kinds(word, bool(names))]
    if slashed := next((name for name in names if "/" in name), None):
        raise usage(f'"{slashed}": a name cannot contain a slash', hint="use either `pod a b` or `pod/a pod/b`")
    if not kinds:
        raise usage(f'"{words[0]}" is not a resource', hint="such as `pods` or `node/a`")
    return [Target(kind, names) for kind in dict.fromkeys(kinds)]


def _kinds(word: str, named: bool) -> Sequence[Resource[Any]]:
    return IN_CATEGORY if word == CATEGORY and not named else (parse_resource(word),)


def _references(words: Sequence[str]) -> list[Target]:
    """Adjacent references of one kind become one target. The order is preserved."""
    targets: list[Target] = []
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise usage(f'"{word}": expected KIND/NAME', hint="use either `pod a b` or `pod/a pod/b`")
        resource = parse_resource(kind)
        if targets and targets[-1].resource is resource:
            targets[-1] = Target(resource, (*targets[-1].names, name))
        else:
            targets.append(Target(resource, (name,)))
    return targets


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
