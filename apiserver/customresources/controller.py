"""The status of definitions, and the deletion of their objects. Every API server does both, as in Kubernetes.

    new or changed definition --accepted names, conditions--> Established
    deleted definition        --its objects are deleted, until none is left--> its finalizer is removed --> gone

Two definitions never get the same name: the write of a status compares the definitions that ask for the same names. No object
is created while a definition is being deleted (pinnace.apiserver.customresources.store).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest
from pinnace.apiextensions.definitions import CLEANUP_FINALIZER
from pinnace.apiextensions.naming import compute_status, set_condition, terminating_condition
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheEntry, CacheError, SelectionPredicate
from pinnace.apiserver.customresources.registry import CustomResources
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.mutation import (
    Mutation,
    MutationEffect,
    Next,
    ObjectVersion,
    Outcome,
    PutObject,
    RemoveObject,
)
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.storage.interface import Guard, StorageError
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import Clock
from pinnace.runtime.supervise import run_unending

log = logging.getLogger(__name__)

_REQUEST = WriteRequest(SERVER, field_manager="kube-apiserver")
RETRY, MAX_RETRY = 0.1, 5.0
"""Seconds between two attempts for a definition."""
BATCH = 100
"""The number of objects that one call deletes."""
WORKERS = 4
_ALL_NAMES = ("plural", "singular", "kind", "listKind")

Definition = CustomResourceDefinition
StoreOf = Callable[[str], Store[CustomObject] | None]
"""Returns the store of the objects of a definition; None if it is not established."""


class DefinitionController:
    """`opened`: set while the server is ready to write. `refresh` brings the cache up to etcd's present revision."""

    def __init__(
        self,
        custom: CustomResources,
        definitions: Store[Definition],
        store_of: StoreOf,
        cacher: Cacher,
        opened: asyncio.Event,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._definitions = definitions
        self._store_of = store_of
        self._cacher = cacher
        self._cache = cacher.cache_of(CUSTOM_RESOURCE_DEFINITIONS)
        self._custom = custom
        self._opened = opened
        self._refresh = refresh
        self._clock = clock
        self._backoff = KeyedBackoff(RETRY, MAX_RETRY)
        self._groups: dict[str, _DefinitionGroup] = {}
        self._due: dict[str, None] = {}
        self._busy = set[str]()
        self._changed = asyncio.Event()
        custom.add_listener(self._handle_change)

    async def run(self) -> None:
        """Process definitions until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(run_unending("definitions", self._run_worker), name="definitions")

    def _handle_change(self, name: str) -> None:
        """Process a changed definition, and those of its group whose names are not accepted: it may have freed their names."""
        group, entry = self._groups.setdefault(name.partition(".")[2], _DefinitionGroup()), self._cached_definition(name)
        group.put_definition(
            name, _NamedDefinition(entry, _without_schemas(entry.parse_uncached())) if entry is not None else None
        )
        self._enqueue_definition(name)
        for other in group.rejected:
            self._enqueue_definition(other)

    def _enqueue_definition(self, name: str) -> None:
        self._due[name] = None
        self._changed.set()

    async def _run_worker(self) -> None:
        while True:
            await self._opened.wait()
            name = next((name for name in self._due if name not in self._busy), None)
            if name is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            del self._due[name]
            self._busy.add(name)
            try:
                complete = await self._sync_definition(name)
            except (CacheError, StorageError) as error:
                log.warning("definition %s: %s", name, error)
                complete = False
            finally:
                self._busy.discard(name)
                self._changed.set()
            if complete:
                self._backoff.forget(name)
            else:
                asyncio.get_running_loop().call_later(self._backoff.next_delay(name), self._enqueue_definition, name)

    async def _sync_definition(self, name: str) -> bool:
        """Return whether nothing more is to do until the definition changes. Raises CacheError, StorageError."""
        entry = self._cached_definition(name)
        if entry is None:
            return True
        metadata = entry.parse_uncached().metadata
        if metadata.HasField("deletionTimestamp"):
            return CLEANUP_FINALIZER not in metadata.finalizers or await self._delete_objects(name)
        return await self._write_status(name, entry)

    async def _write_status(self, name: str, entry: CacheEntry[Definition]) -> bool:
        instant = self._format_now()
        form = _without_schemas(entry.parse_uncached())
        if compute_status(form, (rival.form for rival in self._rival_definitions(name, form)), instant) is None:
            return True
        await self._refresh()
        rivals = self._rival_definitions(name, form)
        forms = [rival.form for rival in rivals]

        def change(present: ObjectVersion[Definition]) -> Definition:
            new = copy_without_version(CUSTOM_RESOURCE_DEFINITIONS, present.obj)
            status = compute_status(_without_schemas(present.obj), forms, instant)
            if status is not None:
                _set_status(new, status)
            return new

        guards = tuple(rival.guard for rival in rivals)
        (outcome,) = await self._definitions.modify_object(
            "", name, change, _REQUEST, operation=AdmissionOperation.UPDATE_STATUS, guards=guards
        )
        return _is_write_settled(name, outcome)

    async def _delete_objects(self, name: str) -> bool:
        """Delete the objects of a definition, and then its finalizer. Return whether the finalizer is removed."""
        await self._refresh()
        entry, store = self._cached_definition(name), self._store_of(name)
        if entry is None:
            return True
        if store is not None:
            resource = store.resource
            entries = self._cacher.cache_of(resource).select(SelectionPredicate.parse(resource, "", "", ""))
            for start in range(0, len(entries), BATCH):
                metadata = [item.parse_uncached().metadata for item in entries[start : start + BATCH]]
                requests = [DeleteRequest(namespace=item.namespace, name=item.name) for item in metadata]
                for request, item in zip(requests, metadata, strict=True):
                    request.options.preconditions.uid = item.uid
                await store.delete(requests, _REQUEST)
            if entries:
                await self._refresh()
                if len(self._cacher.cache_of(resource)):
                    await self._mutate(name, _terminating_mutation(self._format_now()))
                    return False
        return await self._mutate(name, _remove_finalizer_mutation(self._format_now()))

    async def _mutate(self, name: str, step: Callable[[ObjectVersion[Definition] | None], Next[Definition]]) -> bool:
        key = CUSTOM_RESOURCE_DEFINITIONS.key("", name)
        (outcome,) = await self._definitions.run_mutations([Mutation(key, name, step)])
        return _is_write_settled(name, outcome)

    def _format_now(self) -> str:
        return format_rfc3339(to_time(self._clock.time()))

    def _cached_definition(self, name: str) -> CacheEntry[Definition] | None:
        return self._cache.get(CUSTOM_RESOURCE_DEFINITIONS.key("", name))

    def _rival_definitions(self, name: str, form: dict[str, Any]) -> "list[_NamedDefinition]":
        """Return the other definitions of the group that ask for, or have accepted, a name of this definition."""
        group = self._groups.get(name.partition(".")[2])
        return group.find_rivals(name, _definition_names(form)) if group is not None else []


class _NamedDefinition(NamedTuple):
    """A definition that has names. `form`: its JSON form without schemas."""

    entry: CacheEntry[Definition]
    form: dict[str, Any]

    @property
    def guard(self) -> Guard:
        return Guard(self.entry.key, self.entry.create_revision, self.entry.mod_revision)

    @property
    def has_rejected_names(self) -> bool:
        conditions = self.form.get("status", {}).get("conditions") or ()
        return any(condition["type"] == "NamesAccepted" and condition["status"] != "True" for condition in conditions)


class _DefinitionGroup:
    """The definitions of a group. A lookup of names takes no longer if the group has many definitions."""

    def __init__(self) -> None:
        self._definitions: dict[str, _NamedDefinition] = {}
        self._users: dict[str, dict[str, None]] = {}
        """By name of a kind or resource: the definitions that ask for it, or have accepted it."""
        self.rejected: dict[str, None] = {}
        """The definitions with names that are not accepted."""

    def put_definition(self, definition: str, named: _NamedDefinition | None) -> None:
        """Add or replace a definition; None removes it."""
        old = self._definitions.pop(definition, None)
        for name in _definition_names(old.form) if old is not None else ():
            users = self._users[name]
            del users[definition]
            if not users:
                del self._users[name]
        self.rejected.pop(definition, None)
        if named is None:
            return
        self._definitions[definition] = named
        for name in _definition_names(named.form):
            self._users.setdefault(name, {})[definition] = None
        if named.has_rejected_names:
            self.rejected[definition] = None

    def find_rivals(self, definition: str, names: set[str]) -> list[_NamedDefinition]:
        """Return the other definitions that use one of the names."""
        found = {user: None for name in sorted(names) for user in self._users.get(name, ())}
        return [self._definitions[user] for user in found if user != definition]


def _is_write_settled(name: str, outcome: Outcome) -> bool:
    """Return whether a write is not to be repeated, and log a refusal."""
    if not isinstance(outcome, Refusal) or outcome.code is Code.NOT_FOUND:
        return True
    log.warning("definition %s: %s", name, outcome.message)
    return False


def _without_schemas(definition: Definition) -> dict[str, Any]:
    """Return the JSON form without schemas, which the names do not depend on."""
    light = Definition(metadata=definition.metadata, status=definition.status)
    light.spec.group, light.spec.scope = definition.spec.group, definition.spec.scope
    light.spec.names.CopyFrom(definition.spec.names)
    return to_dict(light)


def _set_status(definition: Definition, status: dict[str, Any]) -> None:
    definition.status.CopyFrom(from_dict(CUSTOM_RESOURCE_DEFINITIONS, {"status": status}).status)


def _definition_names(form: dict[str, Any]) -> set[str]:
    """Return the names that a definition asks for or has accepted."""
    names = set[str]()
    for chosen in (form["spec"].get("names", {}), form.get("status", {}).get("acceptedNames", {})):
        names.update(chosen.get("shortNames", ()), (chosen.get(field, "") for field in _ALL_NAMES))
    return names - {""}


def _terminating_mutation(now: str) -> Callable[[ObjectVersion[Definition] | None], Next[Definition]]:
    def step(version: ObjectVersion[Definition] | None) -> Next[Definition]:
        version = _still_existing(version)
        new = copy_without_version(CUSTOM_RESOURCE_DEFINITIONS, version.obj)
        _set_terminating(new, "InstanceDeletionInProgress", "CustomResource deletion is in progress", now)
        return PutObject(new) if new.status != version.obj.status else MutationEffect.NO_OP

    return step


def _remove_finalizer_mutation(now: str) -> Callable[[ObjectVersion[Definition] | None], Next[Definition]]:
    def step(version: ObjectVersion[Definition] | None) -> Next[Definition]:
        version = _still_existing(version)
        if CLEANUP_FINALIZER not in version.obj.metadata.finalizers:
            return MutationEffect.NO_OP
        new = copy_without_version(CUSTOM_RESOURCE_DEFINITIONS, version.obj)
        new.metadata.finalizers.remove(CLEANUP_FINALIZER)
        _set_terminating(new, "InstanceDeletionCompleted", "removed all instances", now, "False")
        return PutObject(new) if new.metadata.finalizers else RemoveObject(last=new)

    return step


def _still_existing(version: ObjectVersion[Definition] | None) -> ObjectVersion[Definition]:
    """Return the version. Raises Rejected if another API server has removed the definition."""
    if version is None:
        raise Rejected(errors.not_found(CUSTOM_RESOURCE_DEFINITIONS, ""))
    return version


def _set_terminating(definition: Definition, reason: str, message: str, now: str, status: str = "True") -> None:
    form = to_dict(definition.status)
    set_condition(form, terminating_condition(reason, message, now, status=status))
    _set_status(definition, form)
