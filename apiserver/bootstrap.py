"""What must be there in every cluster, made by the first server that finds it missing: namespaces, default roles and bindings.

Several servers may do it at once: what one has made, the others leave alone.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from apiserver.admission.namespace_lifecycle import PERMANENT
from apiserver.auth import defaults
from apiserver.auth.user import SERVER
from apiserver.cacher.cacher import Cacher
from apiserver.registry.admission import Request
from apiserver.registry.store import Store
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, Resource
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two attempts."""
_BY = Request(SERVER)


class Bootstrap:
    def __init__(self, stores: Mapping[Resource[Any], Store[Any]], cacher: Cacher, clock: Clock) -> None:
        self._stores = stores
        self._cacher = cacher
        self._clock = clock

    async def run(self) -> None:
        """Returns when everything is there; the cacher has been loaded. Writes nothing when it was before, so that a store that
        takes no writes does not keep a server from its work."""
        while problems := await self._provide():
            log.warning("cannot make what every cluster has: %s", problems[0])
            await self._clock.sleep(INTERVAL)

    async def _provide(self) -> Sequence[str]:
        """What went wrong."""
        return [
            *await self._put(NAMESPACES, map(_namespace, PERMANENT)),
            *await self._put(CLUSTER_ROLES, defaults.cluster_roles()),
            *await self._put(CLUSTER_ROLE_BINDINGS, defaults.cluster_role_bindings()),
        ]

    async def _put(self, resource: Resource[Any], wanted: Iterable[Any]) -> Sequence[str]:
        cache, store = self._cacher.of(resource), self._stores[resource]
        missing, lacking = [], []
        for each in wanted:
            entry = cache.get(resource.key("", each.metadata.name))
            if entry is None:
                missing.append(each)
            elif (completed := _completed(entry.obj, each)) is not None:
                lacking.append(completed)
        created = await store.create(missing, _BY) if missing else []
        updated = await store.update(lacking, _BY) if lacking else []
        return [
            outcome.message
            for outcome in (*created, *updated)
            if isinstance(outcome, Refusal) and outcome.code is not Code.ALREADY_EXISTS
        ]


def _namespace(name: str) -> Namespace:
    namespace = Namespace()
    namespace.metadata.name = name
    return namespace


def _completed(found: Any, wanted: Any) -> Any | None:
    """What is there, with what it lacks; None: it lacks nothing, or wants to be left alone."""
    if found.metadata.annotations.get(defaults.AUTOUPDATE) != "true":
        return None
    lacking = [
        (field, each) for field in _parts(wanted) for each in getattr(wanted, field) if each not in getattr(found, field)
    ]
    if not lacking:
        return None
    completed = type(found)()
    completed.CopyFrom(found)
    for field, each in lacking:
        getattr(completed, field).append(each)
    return completed


def _parts(obj: Message) -> Sequence[str]:
    """The lists that are completed."""
    match obj:
        case ClusterRole():
            return ("rules",)
        case ClusterRoleBinding():
            return ("subjects",)
        case _:
            return ()
