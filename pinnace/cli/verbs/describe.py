"""`pinnace describe`: details of objects with their events and related objects.

Related objects are listed once for all described objects. A section whose objects the user may not read contains the error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pinnace.api import resources, wellknown
from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service
from pinnace.api.records import decides, no_profile
from pinnace.api.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    Object,
    Resource,
)
from pinnace.api.wellknown import SCHEDULER_ELECTION, SERVICE_LABEL
from pinnace.cli.command import verb
from pinnace.cli.describe import cluster, pods, storage, workloads
from pinnace.cli.describe.pods import waits_for_a_node, waits_for_scheduler
from pinnace.cli.describe.text import Fields, NotShown, describe_object, events_table, render
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import AT_ONCE, Query, Target, events_about, fetch, lease_of, of_each, tell_none
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import out
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Forbidden, NotFound


@verb(
    "describe",
    examples="""
        pinnace describe pod a
        pinnace describe pod web-                       # all pods whose names begin with web-
        pinnace describe node/node-0 pod/a
        pinnace describe pods -l app=web -A
        pinnace describe pod a --at-revision 1234       # at that revision, with its events
    """,
)
@arguments.what
@arguments.all_namespaces
@arguments.selector
@arguments.at_revision
def describe(settings: Settings, what: tuple[str, ...], all_namespaces: bool, selector: str, at_revision: int | None) -> None:
    """Show details of resources, with their events.

    A name that no object has is treated as a prefix: all objects whose names begin with it are described.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector)

    async def show_all(session: Session) -> None:
        session.look_back(at_revision)
        await show(session, query)

    run(settings, show_all)


async def show(session: Session, query: Query) -> None:
    async def texts_of(target: Target) -> list[str]:
        described = await describe_all(session.client, target.resource, await _found(session, query, target))
        return ["".join(f"{line}\n" for line in render(fields)) for fields in described]

    texts = [text for texts in await of_each(session, query, texts_of) for text in texts]
    out("\n\n".join(texts))
    if query.selects and not texts:
        tell_none(session, query)


async def _found(session: Session, query: Query, target: Target) -> list[Object]:
    """The objects of one target. A name without an object is used as a prefix. If no name has this prefix, an error is
    reported.
    """
    if not target.names:
        return await fetch(session, query, target)
    client, namespace = session.client.of(target.resource), query.namespace(target.resource, session)
    found: dict[str, Object] = {}
    for name in target.names:
        try:
            found.setdefault(name, await client.get(name, namespace))
        except NotFound as error:
            listing = await client.list(namespace)
            matching = {obj.metadata.name: obj for obj in listing.items if obj.metadata.name.startswith(name)}
            if not matching:
                session.failed(error)
            found |= matching
        except ApiError as error:
            session.failed(error)
    return list(found.values())


T = TypeVar("T")
R = TypeVar("R")
Obj = TypeVar("Obj", bound=Object)
More = Mapping[str, Any]
"""The additional arguments of descriptions, by parameter name."""


async def describe_all(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> list[Fields]:
    """The arguments for each object, in order. Raises ApiError, except Forbidden."""
    describe, gather = DESCRIPTIONS.get(resource.plural, describe_object), _GATHERERS.get(resource.plural)
    more = await gather(client, objs) if gather else [{}] * len(objs)
    events, now = await _events(client, resource, objs), time.time()
    return [
        {**describe(obj, **its), "Events": about if isinstance(about, NotShown) else events_table(about, now)}
        for obj, its, about in zip(objs, more, events, strict=True)
    ]


async def _events(client: Client, resource: Resource[Any], objs: Sequence[Object]) -> list[Sequence[Event] | NotShown]:
    by_namespace: dict[str, list[int]] = {}
    for index, obj in enumerate(objs):
        by_namespace.setdefault(obj.metadata.namespace, []).append(index)

    async def of_namespace(indices: Sequence[int]) -> list[tuple[int, Sequence[Event] | NotShown]]:
        found = await _shown(events_about(client, resource, [objs[index] for index in indices]))
        return [(index, found if isinstance(found, NotShown) else found[at]) for at, index in enumerate(indices)]

    found = dict(pair for pairs in await _each(of_namespace, list(by_namespace.values())) for pair in pairs)
    return [found[index] for index in range(len(objs))]


async def _pods(client: Client, pods: Sequence[Pod]) -> list[More]:
    elections = await _shown(client.elections.list()) if any(map(waits_for_a_node, pods)) else []

    def scheduling(pod: Pod) -> More:
        name = pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER
        if not waits_for_a_node(pod):
            return {}
        if isinstance(elections, NotShown):
            return {"leaderless": elections}
        if waits_for_scheduler(pod) and SCHEDULER_ELECTION not in [each.name for each in elections]:
            return {"leaderless": SCHEDULER_ELECTION}
        return {} if decides(name, elections) else {"unknown": no_profile(name, elections)}

    return [scheduling(pod) for pod in pods]


async def _nodes(client: Client, nodes: Sequence[Node]) -> list[More]:
    async def of_node(node: Node) -> More:
        pods = await _shown(_list(client, PODS, fields=f"spec.nodeName={node.metadata.name}"))
        return {"lease": await _shown(lease_of(client, node)), "pods": pods, "now": time.time()}

    return await _each(of_node, nodes)


async def _deployments(client: Client, deployments: Sequence[Deployment]) -> list[More]:
    sets = await _by_namespace(client, REPLICA_SETS, deployments)
    return [{"sets": sets[deployment.metadata.namespace]} for deployment in deployments]


async def _claims(client: Client, claims: Sequence[PersistentVolumeClaim]) -> list[More]:
    pods, now = await _by_namespace(client, PODS, claims), time.time()
    return [{"pods": pods[claim.metadata.namespace], "now": now} for claim in claims]


async def _services(client: Client, services: Sequence[Service]) -> list[More]:
    async def of_service(service: Service) -> More:
        labels = f"{SERVICE_LABEL}={service.metadata.name}"
        return {"slices": await _shown(_list(client, ENDPOINT_SLICES, service.metadata.namespace, labels=labels))}

    return await _each(of_service, services)


async def _namespaces(client: Client, namespaces: Sequence[Namespace]) -> list[More]:
    async def of_namespace(namespace: Namespace) -> More:
        name = namespace.metadata.name
        quotas = await _shown(_list(client, RESOURCE_QUOTAS, name))
        return {"quotas": quotas, "ranges": await _shown(_list(client, LIMIT_RANGES, name))}

    return await _each(of_namespace, namespaces)


async def _now(_: Client, objs: Sequence[Job] | Sequence[PersistentVolume]) -> list[More]:
    return [{"now": time.time()}] * len(objs)


async def _by_namespace(client: Client, resource: Resource[Obj], objs: Sequence[Object]) -> dict[str, Sequence[Obj] | NotShown]:
    """All objects of a resource in the namespaces of these objects."""

    async def of_namespace(namespace: str) -> Sequence[Obj] | NotShown:
        return await _shown(_list(client, resource, namespace))

    namespaces = list({obj.metadata.namespace for obj in objs})
    return dict(zip(namespaces, await _each(of_namespace, namespaces), strict=True))


async def _list(
    client: Client, resource: Resource[Obj], namespace: str = "", labels: str = "", fields: str = ""
) -> Sequence[Obj]:
    return (await client.of(resource).list(namespace, labels=labels, fields=fields)).items


async def _shown(asked: Awaitable[T]) -> T | NotShown:
    try:
        return await asked
    except Forbidden as error:
        _, _, why = error.message.partition(" is forbidden: ")
        return NotShown(f"<not shown: {why or error.message}>")


async def _each(ask: Callable[[T], Awaitable[R]], things: Sequence[T]) -> list[R]:
    """Makes some requests at a time. Returns the responses in order."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(thing: T) -> R:
        async with limit:
            return await ask(thing)

    return await asyncio.gather(*map(one, things))


_GATHERERS: Mapping[str, Callable[[Client, Sequence[Any]], Awaitable[list[More]]]] = {
    PODS.plural: _pods,
    NODES.plural: _nodes,
    DEPLOYMENTS.plural: _deployments,
    JOBS.plural: _now,
    PERSISTENT_VOLUMES.plural: _now,
    PERSISTENT_VOLUME_CLAIMS.plural: _claims,
    SERVICES.plural: _services,
    NAMESPACES.plural: _namespaces,
}
"""By plural name, for descriptions with additional arguments."""

DESCRIPTIONS: Mapping[str, Callable[..., Fields]] = {
    resources.PODS.plural: pods.describe_pod,
    resources.NODES.plural: cluster.describe_node,
    resources.DEPLOYMENTS.plural: workloads.describe_deployment,
    resources.NAMESPACES.plural: cluster.describe_namespace,
    resources.RESOURCE_QUOTAS.plural: cluster.describe_resource_quota,
    resources.LIMIT_RANGES.plural: cluster.describe_limit_range,
    resources.ROLES.plural: cluster.describe_role,
    resources.CLUSTER_ROLES.plural: cluster.describe_role,
    resources.ROLE_BINDINGS.plural: cluster.describe_role_binding,
    resources.CLUSTER_ROLE_BINDINGS.plural: cluster.describe_role_binding,
    resources.REPLICA_SETS.plural: workloads.describe_replica_set,
    resources.POD_DISRUPTION_BUDGETS.plural: workloads.describe_disruption_budget,
    resources.JOBS.plural: workloads.describe_job,
    resources.ENDPOINT_SLICES.plural: workloads.describe_endpoint_slice,
    resources.SERVICES.plural: workloads.describe_service,
    resources.PERSISTENT_VOLUMES.plural: storage.describe_volume,
    resources.PERSISTENT_VOLUME_CLAIMS.plural: storage.describe_claim,
    resources.STORAGE_CLASSES.plural: storage.describe_storage_class,
    resources.CONFIG_MAPS.plural: cluster.describe_config_map,
    resources.SECRETS.plural: cluster.describe_secret,
    resources.SERVICE_ACCOUNTS.plural: cluster.describe_service_account,
}
"""The description of an object without its events, by plural name of the resource. `_GATHERERS` provides the other arguments of
these functions.
"""
