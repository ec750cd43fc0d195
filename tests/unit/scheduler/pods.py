"""Shorthands of the scheduler's tests."""

from collections.abc import Sequence

from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework.profile import Enabled, Offline, create_plugin, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from tests.builders import NodeBuilder, PodBuilder


def info(pod: PodBuilder) -> PodInfo:
    return PodInfo(pod.build())


def cache_of(*nodes: NodeBuilder, placed: Sequence[PodBuilder] = ()) -> Cache:
    """A cache with these nodes, and these pods bound to the nodes that they name."""
    cache = Cache()
    for node in nodes:
        cache.set_node(node.build())
    for pod in placed:
        built = pod.build()
        cache.add_pod(PodInfo(built), built.spec.nodeName)
    return cache


def default_plugins() -> list[Enabled]:
    """The built-in plugins, with their usual weights."""
    handle = Offline()
    return [Enabled(create_plugin(plugin, name, {}, handle), weight) for name, (plugin, weight) in DEFAULT_PLUGINS.items()]


def framework(*more: Enabled, first: bool = False) -> Framework:
    """The built-in plugins, and more; `first`: more, and the built-in plugins."""
    plugins = [*more, *default_plugins()] if first else [*default_plugins(), *more]
    return Framework("default-scheduler", profile_of(plugins))
