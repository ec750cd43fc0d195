"""What must be there in every cluster, made by the first server that finds it missing: namespaces, default roles and bindings,
and the priority classes of the system.

Several servers may do it at once, also of several versions: whoever is overtaken by another looks at what that one has made,
and completes it. What somebody else has written there stays, but for a default binding of another role: nobody can tell to whom
that one may be given. It is deleted and made anew, as roles of bindings do not change.

Source: https://github.com/kubernetes/component-helpers/tree/master/auth/rbac/reconciliation
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from apiserver import errors
from apiserver.admission.namespace_lifecycle import PERMANENT
from apiserver.auth import defaults
from apiserver.auth.authentication import SERVER
from apiserver.auth.rbac import Held
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheBehind
from apiserver.registry.admission import Request
from apiserver.registry.store import Store
from apiserver.registry.strategies import priorityclasses
from apiserver.storage.interface import StorageError
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, PRIORITY_CLASSES, Resource
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import BootstrapFailed

log = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two attempts."""
READ_TIMEOUT = 5.0
_BY = Request(SERVER)
_OVERTAKEN = (Code.ALREADY_EXISTS, Code.ABORTED)


class Bootstrap:
    def __init__(self, stores: Mapping[Resource[Any], Store[Any]], cacher: Cacher, clock: Clock) -> None:
        self._stores = stores
        self._cacher = cacher
        self._clock = clock

    async def run(self) -> None:
        """Returns when everything is there; the cacher has been loaded. Writes nothing when it was before, so that a store that
        takes no writes does not keep a server from its work."""
        while refused := await self._provide():
            problems = [each.message for each in refused if each.code not in _OVERTAKEN]
            if problem := problems[0] if problems else await self._catch_up():
                log.warning("cannot make what every cluster has: %s", problem, extra=BootstrapFailed(problem).extra)
                await self._clock.sleep(INTERVAL)

    async def _catch_up(self) -> str:
        """Until what others have written can be seen; why it cannot be, or ""."""
        try:
            await self._cacher.fresh(READ_TIMEOUT)
        except (StorageError, CacheBehind) as error:
            return str(error)
        return ""

    async def _provide(self) -> Sequence[Refusal]:
        """What did not come about. (What is there and cannot be read keeps nobody waiting: it must be mended by hand.)"""
        return [
            *await self._put(NAMESPACES, map(_namespace, PERMANENT)),
            *await self._put(CLUSTER_ROLES, defaults.cluster_roles()),
            *await self._put(CLUSTER_ROLE_BINDINGS, defaults.cluster_role_bindings()),
            *await self._put(PRIORITY_CLASSES, priorityclasses.system_classes()),
        ]

    async def _put(self, resource: Resource[Any], wanted: Iterable[Any]) -> Sequence[Refusal]:
        cache, store = self._cacher.of(resource), self._stores[resource]
        missing, lacking, others = [], [], []
        for each in wanted:
            entry = cache.get(resource.key("", each.metadata.name))
            if entry is None:
                missing.append(each)
            elif entry.obj.metadata.annotations.get(defaults.AUTOUPDATE) == "false":
                continue
            elif isinstance(each, ClusterRoleBinding) and each.roleRef != entry.obj.roleRef:
                others.append((entry.obj, each))
            elif (completed := _completed(entry.obj, each)) is not None:
                lacking.append(completed)
        gone, refused = await self._remove(resource, [found for found, _ in others])
        missing += [each for _, each in others if each.metadata.name in gone]
        created = await store.create(missing, _BY) if missing else []
        updated = await store.update(lacking, _BY) if lacking else []
        refused += [outcome for outcome in (*created, *updated) if isinstance(outcome, Refusal)]
        return [refusal for refusal in refused if refusal.reason != errors.UNREADABLE]

    async def _remove(self, resource: Resource[Any], found: Iterable[Any]) -> tuple[set[str], list[Refusal]]:
        """The names that are free now, and what was refused. What has finalizers stays: it would not go at once."""
        doomed = list[DeleteRequest]()
        for each in found:
            name = each.metadata.name
            if each.metadata.finalizers:
                log.warning('%s "%s" gives another role than it should, and stays: it has finalizers', resource.kind, name)
                continue
            log.warning('%s "%s" gives another role than it should: it is made anew', resource.kind, name)
            doomed.append(DeleteRequest(name=name))
            doomed[-1].options.preconditions.uid = each.metadata.uid
            doomed[-1].options.preconditions.resourceVersion = each.metadata.resourceVersion
        outcomes = await self._stores[resource].delete(doomed, _BY) if doomed else []
        gone, refused = set[str](), list[Refusal]()
        for request, outcome in zip(doomed, outcomes, strict=True):
            if isinstance(outcome, Refusal) and outcome.code is not Code.NOT_FOUND:
                refused.append(outcome)
            else:
                gone.add(request.name)
        return gone, refused


def _namespace(name: str) -> Namespace:
    namespace = Namespace()
    namespace.metadata.name = name
    return namespace


def _completed(found: Any, wanted: Any) -> Any | None:
    """What is there, with what it lacks; None: it lacks nothing."""
    completed = type(found)()
    completed.CopyFrom(found)
    for there, parts in zip(_parts(completed), _parts(wanted), strict=True):
        for each in parts:
            if not _has(there, each):
                there.append(each)
    for field in ("labels", "annotations"):
        there = getattr(completed.metadata, field)
        there.update({key: value for key, value in getattr(wanted.metadata, field).items() if key not in there})
    return completed if completed != found else None


def _has(there: Any, part: Any) -> bool:
    """Of a rule: do others allow as much?"""
    return part in there or (isinstance(part, PolicyRule) and Held(there).cover(part))


def _parts(obj: Message) -> Sequence[Any]:
    """The lists that are completed."""
    match obj:
        case ClusterRole():
            return obj.rules, obj.aggregationRule.clusterRoleSelectors
        case ClusterRoleBinding():
            return (obj.subjects,)
        case _:
            return ()
