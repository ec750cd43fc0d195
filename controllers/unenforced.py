"""Tell users that nothing in the cluster enforces an object: one event for each new Ingress and NetworkPolicy.

    a new Ingress         no ingress controller is part of the cluster; users may run one
    a new NetworkPolicy   no network plugin is part of the cluster: all traffic is allowed

A policy that is not enforced looks like one that is. A leader that is elected later reports no object that is older than
MAX_AGE, so that the event occurs once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.networking_v1_pb2 import Ingress, NetworkPolicy
from pinnace.api.resources import INGRESSES, NETWORK_POLICIES, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import ControllerContext, WatchedResource

MAX_AGE = 60.0
"""Seconds after its creation within which an object is reported."""
REASON = "NotEnforced"
_MESSAGES: Mapping[type, tuple[Resource[Any], str]] = {
    Ingress: (INGRESSES, "no ingress controller is part of this cluster: requests are not routed until you run one"),
    NetworkPolicy: (NETWORK_POLICIES, "no network plugin is part of this cluster: all traffic is allowed"),
}


class UnenforcedKindsController:
    name = "unenforced"
    workers = 1
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext) -> None:
        self._clock = shared.clock
        self._events = shared.events
        self._stores = {resource.plural: shared.informers.store(resource) for resource, _ in _MESSAGES.values()}

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return tuple(WatchedResource(resource, _key_of_new) for resource, _ in _MESSAGES.values())

    async def sync(self, key: str) -> float | None:
        plural, _, name = key.partition("/")
        obj = self._stores[plural].get(name)
        if obj is not None and self._clock.time() - to_seconds(obj.metadata.creationTimestamp) <= MAX_AGE:
            self._events.event(obj, "Normal", REASON, _MESSAGES[type(obj)][1])
        return None


def _key_of_new(delta: Delta[Any]) -> Sequence[str]:
    """The key of a new object: its plural, namespace and name."""
    if delta.kind != ADDED:
        return ()
    resource, _ = _MESSAGES[type(delta.obj)]
    return (f"{resource.plural}/{delta.obj.metadata.namespace}/{delta.obj.metadata.name}",)
