"""Explains one pod and ends: `python -m scheduler.explaining NAMESPACE NAME`, which `pinnace why` starts.

It finds the configuration of the scheduler that decides (`scheduler.explain.configured`), lists what its informers would hold,
fills a cache, and asks `scheduler.explain`. On stdout, an Answer as JSON. Nothing is written to the cluster.
"""

import asyncio
import gc
import json
import sys
from base64 import b64encode
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.records import Answer, Explanation, Trouble, Unexplained, to_json
from pinnace.api.resources import NODES, PODS, Resource, T, store_key
from pinnace.api.status import encode
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig, ConfigError, load
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Forbidden
from pinnace.runtime.configuration import ConfigurationError
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.config import build, needs
from scheduler.explain import explain
from scheduler.explain.configured import Followed, Offer, follow
from scheduler.extenders.interface import interested
from scheduler.framework.handle import Offline
from scheduler.informers import NOT_ENDED

PAGE = 5000


class Listed(Offline):
    """A Handle over what was listed."""

    def __init__(self, stores: Mapping[Resource[Any], Mapping[str, Any]]) -> None:
        super().__init__()
        self._stores = stores

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        if resource not in self._stores:
            raise KeyError(f"no plugin needs {resource.plural}")
        return self._stores[resource]


@click.command()
@click.argument("namespace")
@click.argument("name")
@click.option("--node", default="", help="Say more about this node.")
@click.option("--server", help="API servers, HOST:PORT[,HOST:PORT...].  [default: as the client is configured]")
@click.option("--context", help="The context of the client's configuration to use.")
@click.option("--config", default="", help="A KubeSchedulerConfiguration to follow.")
@click.option("--plugin", "plugins", multiple=True, help="A plugin to add to it.")
@click.option("--kept", default="", help="Where a local cluster is, whose schedulers have the two that follow.")
@click.option("--kept-config", default="")
@click.option("--kept-plugin", "kept_plugins", multiple=True)
@click.option("--timeout", default=20.0, help="Seconds, for the lists.")
def main(
    namespace: str,
    name: str,
    node: str,
    server: str | None,
    context: str | None,
    config: str,
    plugins: Sequence[str],
    kept: str,
    kept_config: str,
    kept_plugins: Sequence[str],
    timeout: float,
) -> None:
    """Explains where a pod would go now, and why."""
    given = (
        Offer(config or f"the default configuration with {' and '.join(plugins)}", config, plugins)
        if config or plugins
        else None
    )
    own = Offer(f"that of the local cluster in {kept}", kept_config, kept_plugins) if kept else None
    try:
        servers = load(server, context=context)
        said = Answer(asyncio.run(_explanation(namespace, name, node, servers, given, own, timeout)))
    except ApiError as error:
        said = _unexplained(error.message, Trouble.REFUSED, b64encode(encode(error.refusal).SerializeToString()).decode())
    except TimeoutError:  # it is an OSError, too
        said = _unexplained(f"the API servers took more than {timeout:g} s", Trouble.TOO_SLOW)
    except (ConfigurationError, ConfigError, OSError) as error:
        said = _unexplained(f"{config}: {error}" if config else str(error), Trouble.USAGE)
    json.dump(to_json(said), sys.stdout)
    gc.freeze()  # as in pinnace.cli.command: what was imported is not searched for garbage at the end


def _unexplained(error: str, kind: Trouble, status: str = "") -> Answer:
    return Answer(unexplained=Unexplained(error, kind, status))


async def _explanation(
    namespace: str,
    name: str,
    node: str,
    servers: ClientConfig,
    given: Offer | None,
    kept: Offer | None,
    timeout: float,
) -> Explanation:
    """Raises ApiError, TimeoutError, ConfigurationError, OSError."""
    connection = Connection(servers.endpoints, tls=servers.tls)
    try:
        async with asyncio.timeout(timeout):
            client = Client(connection)
            pod = await client.pods.get(name, namespace)
            followed = follow(pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER, await _elections(client), given, kept)
            stores = await _list(client, needs(followed.configuration))
    finally:
        await connection.close()
    return explanation(pod, stores, followed, node)


async def _elections(client: Client) -> Sequence[Election] | None:
    """None: they may not be listed."""
    try:
        return await client.elections.list()
    except Forbidden:
        return None


def explanation(pod: Pod, stores: Mapping[Resource[Any], Mapping[str, Any]], followed: Followed, node: str = "") -> Explanation:
    """Pure, but for what plugins do when they are made. Raises ConfigurationError."""
    configuration = followed.configuration
    key, name, bound = store_key(pod), pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER, pod.spec.nodeName
    gone = bool(bound) and bound not in stores[NODES]
    if followed.unknown:
        return Explanation(key, name, bound, node_is_gone=gone, unknown=followed.unknown)
    listed = Listed(stores)
    frameworks = build(configuration, listed)
    cache, placed = filled(stores[NODES].values(), stores[PODS].values(), frameworks)
    found = explain(pod, cache, placed, frameworks[name], listed, node if cache.nodes.row(node) is not None else "")
    if followed.assumed:
        found = _filters_only(found)
    hearing = [each.url_prefix for each in configuration.extenders if interested(each.managed_resources, pod)]
    return replace(
        found,
        node_is_gone=gone,
        extenders=hearing,
        configuration=followed.source,
        unconfirmed=followed.unconfirmed,
        filters_only=followed.assumed,
    )


def _filters_only(found: Explanation) -> Explanation:
    """Without what follows from weights, from preemption, and from the filters that there are not."""
    return replace(found, problem="", message="", weights={}, ranking=(), best=0, remedies=(), preemption="")


def filled(
    nodes: Iterable[Node], pods: Iterable[Pod], scheduler_names: Container[str]
) -> tuple[Cache, dict[str, list[PodInfo]]]:
    """A cache of these, as `scheduler.feed` would fill it, and the pods by node. Room is kept for nominated pods of these
    schedulers: of others the leader knows nothing until they are bound."""
    cache, placed = Cache(), dict[str, list[PodInfo]]()
    for node in nodes:
        cache.set_node(node)
    for pod in pods:
        if pod.spec.nodeName:
            info = PodInfo(pod)
            cache.observe(info, pod.spec.nodeName)
            placed.setdefault(pod.spec.nodeName, []).append(info)
        elif (
            pod.status.nominatedNodeName
            and pod.spec.schedulerName in scheduler_names
            and not pod.metadata.HasField("deletionTimestamp")
        ):
            cache.nominate(PodInfo(pod), pod.status.nominatedNodeName)
    return cache, placed


async def _list(client: Client, needs: Sequence[Resource[Any]]) -> dict[Resource[Any], dict[str, Any]]:
    """All objects of these resources, pods and nodes among them, by the keys of informers."""

    async def one(resource: Resource[Any]) -> dict[str, Any]:
        fields = NOT_ENDED if resource is PODS else ""
        listed = await client.of(resource).list(fields=fields, page_size=PAGE)
        return {store_key(obj): obj for obj in listed.items}

    resources: list[Resource[Any]] = list(dict.fromkeys((PODS, NODES, *needs)))
    return dict(zip(resources, await asyncio.gather(*map(one, resources)), strict=True))


if __name__ == "__main__":
    main()
