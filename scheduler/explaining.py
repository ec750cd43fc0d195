"""Explain one pod and exit: `python -m pinnace.scheduler.explaining NAMESPACE NAME`, which `pinnace why` starts.

The process selects the configuration of the deciding scheduler, lists the objects that its informers hold, fills a cache, and
calls `pinnace.scheduler.explain`. It writes an Answer as JSON to stdout, and writes nothing to the cluster.

    elections --decides--> the leader's digest --+-- equals the digest of a known configuration --> this one, confirmed
                                                 '-- equals none --------------------------------> the first one, unconfirmed

A leader publishes only a digest of its configuration in its election (`pinnace.scheduler.config.configuration_digest`).
Elections never cause code to be loaded: plugins come from files that the user names, or from the user's local cluster.
"""

import asyncio
import gc
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.pods import ENDED
from pinnace.api.records import Answer, Explanation, PreemptionProblem, Unexplained, deciding_election, no_profile, to_json
from pinnace.api.resources import ELECTIONS_PREFIX, NODES, PODS, Resource, T, store_key
from pinnace.api.status import encode
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig, ConfigError, load_config, parse_endpoints
from pinnace.client.connection import Connection, Metadata, impersonation_metadata
from pinnace.client.errors import ApiError, Forbidden
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.tls import TlsFiles
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import (
    Configuration,
    build_frameworks,
    check_configuration,
    configuration_digest,
    read_configuration,
    required_resources,
    with_plugin,
)
from pinnace.scheduler.explain import explain_pod
from pinnace.scheduler.extenders.interface import requests_managed_resource
from pinnace.scheduler.framework.plugin_errors import bounded_calls
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.informers import NOT_ENDED

DEFAULT = "the default configuration"
PAGE = 5000
PLUGIN_TIMEOUT = 5.0
"""Seconds after which a plugin call is interrupted."""


@dataclass(frozen=True, slots=True)
class ConfigurationSource:
    """A configuration file and additional plugins. `source` is the name of the configuration in messages."""

    source: str = DEFAULT
    file: str = ""
    plugins: Sequence[str] = ()

    def load(self) -> Configuration:
        """Load and check the configuration. Raise ConfigurationError or OSError."""
        configuration = read_configuration(Path(self.file)) if self.file else Configuration()
        for plugin in self.plugins:
            configuration = with_plugin(configuration, plugin)
        return check_configuration(configuration)


@dataclass(frozen=True, slots=True)
class SelectedConfiguration:
    """The configuration that the explanation uses.

    `unconfirmed` is the reason why the deciding scheduler may use another configuration; it is empty if the configuration is
    confirmed. `assumed` is True if the configuration is unconfirmed and the user did not select it. `unknown` is the reason why
    no explanation is possible.
    """

    configuration: Configuration = field(default_factory=Configuration)
    source: str = DEFAULT
    unconfirmed: str = ""
    assumed: bool = False
    unknown: str = ""


def select_configuration(
    scheduler: str,
    elections: Sequence[Election] | None,
    given: ConfigurationSource | None = None,
    kept: ConfigurationSource | None = None,
) -> SelectedConfiguration:
    """Select the configuration for the pods of `scheduler`.

    `elections` are the elections with a leader, or None if the user has no permission to list them. `given` is the user's
    configuration, which is always used. `kept` is the configuration of the schedulers in the user's local cluster. Raise
    ConfigurationError or OSError if `given` cannot be loaded.
    """
    problems: list[str] = []
    offers = (
        [(given, given.load())] if given else list(_load_configurations(filter(None, (kept, ConfigurationSource())), problems))
    )
    leader = deciding_election(scheduler, elections or ())
    if elections is None:
        unconfirmed = "you have no permission to list elections, so the deciding scheduler is unknown"
    elif leader is not None:
        if leader.configuration:
            for offer, configuration in offers:
                if leader.configuration == configuration_digest(configuration):
                    return SelectedConfiguration(configuration, offer.source)
        unconfirmed = "; ".join([_describe_difference(leader, [offer for offer, _ in offers]), *problems])
    elif _is_leaderless(scheduler, elections):
        unconfirmed = ""
    elif given is None:
        return SelectedConfiguration(unknown=no_profile(scheduler, elections))
    else:
        unconfirmed = no_profile(scheduler, elections)
    for offer, configuration in offers:
        if scheduler in (profile.scheduler_name for profile in configuration.profiles):
            return SelectedConfiguration(configuration, offer.source, unconfirmed, bool(unconfirmed) and given is None)
    sources = " and ".join(offer.source for offer, _ in offers)
    return SelectedConfiguration(
        unknown="; ".join(filter(None, (unconfirmed, f'no profile is named "{scheduler}" in {sources}')))
    )


def _is_leaderless(scheduler: str, elections: Sequence[Election]) -> bool:
    """Return True if `scheduler` is the cluster's default scheduler and its election has no leader."""
    return scheduler == wellknown.DEFAULT_SCHEDULER and SCHEDULER_ELECTION not in (election.name for election in elections)


def _load_configurations(
    offers: Iterable[ConfigurationSource], problems: list[str]
) -> Iterator[tuple[ConfigurationSource, Configuration]]:
    """Yield the configurations that can be loaded. Append the errors of the others to `problems`."""
    for offer in offers:
        try:
            yield offer, offer.load()
        except (ConfigurationError, OSError) as error:
            problems.append(f"{offer.source} cannot be loaded: {error}")


def _describe_difference(leader: Election, offers: Sequence[ConfigurationSource]) -> str:
    who = f'{leader.holder}, which leads election "{leader.name}" and decides,'
    if not leader.configuration:
        return f"{who} does not publish a digest of its configuration"
    return f"{who} uses a configuration other than {' and '.join(offer.source for offer in offers)}"


class ListedHandle(Offline):
    """A handle with listed objects instead of informers."""

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
@click.option("--node", default="", help="Report details about this node.")
@click.option("--server", help="API servers, HOST:PORT[,HOST:PORT...].  [default: from the client configuration]")
@click.option("--context", help="The context of the client configuration to use.")
@click.option("--config", default="", help="A KubeSchedulerConfiguration file to use.")
@click.option("--plugin", "plugins", multiple=True, help="A plugin to add to the configuration.")
@click.option("--kept", default="", help="Directory of a local cluster with these schedulers.")
@click.option("--kept-config", default="")
@click.option("--kept-plugin", "kept_plugins", multiple=True)
@click.option("--objects", default="", help="A file of keys and values to use in place of a server; see read_objects.")
@click.option("--timeout", default=20.0, help="Seconds, for the lists.")
@click.option(
    "--as", "user", default="", help="The user to impersonate; --server and --tls are then the whole client configuration."
)
@click.option("--as-group", "groups", multiple=True, help="A group to impersonate.")
@click.option("--tls", type=(str, str, str), default=None, help="Files of the authority, the certificate and the key.")
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
    objects: str,
    timeout: float,
    user: str,
    groups: Sequence[str],
    tls: tuple[str, str, str] | None,
) -> None:
    """Explain the node that the scheduler would select for a pod now, and the reasons."""
    given = (
        ConfigurationSource(config or f"the default configuration with {' and '.join(plugins)}", config, plugins)
        if config or plugins
        else None
    )
    own = ConfigurationSource(f"the configuration of the local cluster in {kept}", kept_config, kept_plugins) if kept else None
    try:
        if objects:
            with bounded_calls(PLUGIN_TIMEOUT):
                said = Answer(_explain_offline(store_key_of(namespace, name), node, read_objects(Path(objects)), given, own))
        else:
            servers = _impersonating_config(server, tls) if user else load_config(server, context=context)
            acting_as = impersonation_metadata(user, groups) if user else ()
            said = Answer(asyncio.run(_explain_from_server(namespace, name, node, servers, given, own, timeout, acting_as)))
    except ApiError as error:
        said = _unexplained_answer(
            error.message, PreemptionProblem.REFUSED, b64encode(encode(error.refusal).SerializeToString()).decode()
        )
    except TimeoutError:  # a subclass of OSError, so it is handled first
        said = _unexplained_answer(f"the API servers did not respond within {timeout:g} s", PreemptionProblem.TOO_SLOW)
    except KeyError:
        said = _unexplained_answer(f"pod {namespace}/{name} is not in the file of objects", PreemptionProblem.USAGE)
    except (ConfigurationError, ConfigError, OSError) as error:
        said = _unexplained_answer(f"{config}: {error}" if config else str(error), PreemptionProblem.USAGE)
    json.dump(to_json(said), sys.stdout)
    gc.freeze()  # as in pinnace.cli.command: skips the garbage collection of imported modules at exit


def _impersonating_config(server: str | None, tls: tuple[str, str, str] | None) -> ClientConfig:
    files = [Path(item) for item in tls or ()]
    authority = TlsFiles(files[0], files[1], files[2]) if files else None
    return ClientConfig(parse_endpoints(server or ""), tls=authority)


def _unexplained_answer(error: str, kind: PreemptionProblem, status: str = "") -> Answer:
    return Answer(unexplained=Unexplained(error, kind, status))


async def _explain_from_server(
    namespace: str,
    name: str,
    node: str,
    servers: ClientConfig,
    given: ConfigurationSource | None,
    kept: ConfigurationSource | None,
    timeout: float,
    acting_as: Metadata,
) -> Explanation:
    """`acting_as`: the metadata of impersonation. Raises ApiError, TimeoutError, ConfigurationError, OSError."""
    connection = Connection(servers.endpoints, tls=servers.tls, metadata=acting_as)
    try:
        async with asyncio.timeout(timeout):
            client = Client(connection)
            pod = await client.pods.get(name, namespace)
            followed = select_configuration(
                pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER, await _list_elections(client), given, kept
            )
            stores = await _list(client, required_resources(followed.configuration))
    finally:
        await connection.close()
    with bounded_calls(PLUGIN_TIMEOUT):
        return explain_with_stores(pod, stores, followed, node)


def read_objects(path: Path) -> Mapping[str, bytes]:
    """Read etcd keys and values. Each line is a key, a space, and the value in base64. Raise OSError."""
    lines = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {key: b64decode(value) for key, value in lines}


def store_key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _explain_offline(
    key: str,
    node: str,
    objects: Mapping[str, bytes],
    given: ConfigurationSource | None,
    kept: ConfigurationSource | None,
) -> Explanation:
    """Explain a pod with recorded objects. Raise ConfigurationError, or KeyError if the pod is not recorded."""
    pod = Pod.FromString(objects[PODS.prefix + key])
    elections = [Election.FromString(value) for each, value in objects.items() if each.startswith(ELECTIONS_PREFIX)]
    followed = select_configuration(pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER, elections, given, kept)
    stores: dict[Resource[Any], dict[str, Any]] = {}
    resources: list[Resource[Any]] = list(dict.fromkeys((PODS, NODES, *required_resources(followed.configuration))))
    for resource in resources:
        result = [resource.message.FromString(value) for each, value in objects.items() if each.startswith(resource.prefix)]
        stores[resource] = {store_key(obj): obj for obj in result if resource is not PODS or obj.status.phase not in ENDED}
    return explain_with_stores(pod, stores, followed, node)


async def _list_elections(client: Client) -> Sequence[Election] | None:
    """Return the elections, or None without permission to list them."""
    try:
        return await client.elections.list()
    except Forbidden:
        return None


def explain_with_stores(
    pod: Pod, stores: Mapping[Resource[Any], Mapping[str, Any]], followed: SelectedConfiguration, node: str = ""
) -> Explanation:
    """Explain the pod with the given objects. Pure, except for plugin constructors. Raise ConfigurationError."""
    configuration = followed.configuration
    key, name, bound = store_key(pod), pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER, pod.spec.nodeName
    gone = bool(bound) and bound not in stores[NODES]
    if followed.unknown:
        return Explanation(key, name, bound, node_is_gone=gone, unknown=followed.unknown)
    listed = ListedHandle(stores)
    frameworks = build_frameworks(configuration, listed)
    cache, placed = fill_cache(stores[NODES].values(), stores[PODS].values(), frameworks)
    result = explain_pod(pod, cache, placed, frameworks[name], listed, node if cache.nodes.row(node) is not None else "")
    if followed.assumed:
        result = _filters_only(result)
    hearing = [
        extender.url_prefix
        for extender in configuration.extenders
        if requests_managed_resource(extender.managed_resources, pod)
    ]
    return replace(
        result,
        node_is_gone=gone,
        extenders=hearing,
        configuration=followed.source,
        unconfirmed=followed.unconfirmed,
        filters_only=followed.assumed,
    )


def _filters_only(found: Explanation) -> Explanation:
    """Return the explanation without the parts that depend on weights, preemption, or unknown filters."""
    return replace(found, problem="", message="", weights={}, ranking=(), best=0, remedies=(), preemption="")


def fill_cache(
    nodes: Iterable[Node], pods: Iterable[Pod], scheduler_names: Container[str]
) -> tuple[Cache, dict[str, list[PodInfo]]]:
    """Return a cache filled as `pinnace.scheduler.informers` fills it, and the pods by node.

    Nominations count only for pods of `scheduler_names`. A leader ignores the pending pods of other schedulers.
    """
    cache, placed = Cache(), dict[str, list[PodInfo]]()
    for node in nodes:
        cache.set_node(node)
    for pod in pods:
        if pod.spec.nodeName:
            info = PodInfo(pod)
            cache.add_pod(info, pod.spec.nodeName)
            placed.setdefault(pod.spec.nodeName, []).append(info)
        elif (
            pod.status.nominatedNodeName
            and pod.spec.schedulerName in scheduler_names
            and not pod.metadata.HasField("deletionTimestamp")
        ):
            cache.nominate_pod(PodInfo(pod), pod.status.nominatedNodeName)
    return cache, placed


async def _list(client: Client, needs: Sequence[Resource[Any]]) -> dict[Resource[Any], dict[str, Any]]:
    """Return all objects of the resources, and of pods and nodes, by informer key."""

    async def one(resource: Resource[Any]) -> dict[str, Any]:
        fields = NOT_ENDED if resource is PODS else ""
        listed = await client.of(resource).list(fields=fields, page_size=PAGE)
        return {store_key(obj): obj for obj in listed.items}

    resources: list[Resource[Any]] = list(dict.fromkeys((PODS, NODES, *needs)))
    return dict(zip(resources, await asyncio.gather(*map(one, resources)), strict=True))


if __name__ == "__main__":
    main()
