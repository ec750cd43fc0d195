"""The strategies of all resources: what is special about each kind (`apiserver.registry.strategy`)."""

from collections.abc import Mapping
from typing import Any

from apiserver.registry.strategies.events import EventStrategy
from apiserver.registry.strategies.leases import LeaseStrategy
from apiserver.registry.strategies.namespaces import NamespaceStrategy
from apiserver.registry.strategies.nodes import NodeStrategy
from apiserver.registry.strategies.pods import PodStrategy
from apiserver.registry.strategies.priorityclasses import PriorityClassStrategy
from apiserver.registry.strategy import Strategy
from pinnace.api.resources import EVENTS, LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES

STRATEGIES: Mapping[str, Strategy[Any]] = {
    PODS.plural: PodStrategy(),
    NODES.plural: NodeStrategy(),
    NAMESPACES.plural: NamespaceStrategy(),
    EVENTS.plural: EventStrategy(),
    PRIORITY_CLASSES.plural: PriorityClassStrategy(),
    LEASES.plural: LeaseStrategy(),
}
"""By plural of the resource."""
