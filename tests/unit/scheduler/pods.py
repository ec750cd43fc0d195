"""Shorthands of the scheduler's tests."""

from collections.abc import Sequence

from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.config import default_plugins
from scheduler.framework.runtime import Enabled, Framework
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
        cache.observe(PodInfo(built), built.spec.nodeName)
    return cache


def framework(*more: Enabled) -> Framework:
    """The built-in plugins, and more."""
    return Framework("default-scheduler", [*default_plugins(), *more])
