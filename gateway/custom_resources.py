"""The resources that the gateway serves: the built-in ones, and those of definitions, which the gateway follows.

    informer of definitions --each change--> kinds, their resources and groups --> routes, discovery, OpenAPI, tables
    path of an unknown resource --> the definition is read from an API server, and the informer waits until it has that version

Sources: https://kubernetes.io/docs/reference/using-api/api-concepts/, and the priorities of groups in
pkg/controlplane/apiserver of Kubernetes 1.36: those of definitions follow the others.
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from pinnace.api.tables_pb2 import ListTableRequest, Table
from pinnace.api.verbs_pb2 import DELETED
from pinnace.apiextensions.definitions import sort_versions
from pinnace.apiextensions.kinds import CustomKind, CustomVersion, kind_of
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.informer import Delta, Informer, RestartSupervisor
from pinnace.gateway import api_resources
from pinnace.gateway.api_resources import ApiResource, Subresource
from pinnace.runtime.http import Check

_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In Kubernetes' order."""
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_LIST_NAMES = "/pinnace.v1.Tables/List"
_NONE: Mapping[str, ApiResource] = {}
FIND_TIMEOUT = 5.0
"""Seconds for the read of a definition, and as many until the informer has it."""


class CustomKinds:
    """The kinds of the definitions. `version` changes with them. Without a client there are none."""

    def __init__(self, client: Client | None = None) -> None:
        self._definitions = client.of(CUSTOM_RESOURCE_DEFINITIONS) if client is not None else None
        self._connection = client.connection if client is not None else None
        self._kinds: dict[str, CustomKind] = {}
        self._resources: dict[tuple[str, str], dict[str, ApiResource]] = {}
        """By group and version, and plural."""
        self.version = 0
        self._follower = RestartSupervisor(self._create_follower) if client is not None else None

    @property
    def kinds(self) -> Mapping[str, CustomKind]:
        """By the names of their definitions."""
        return self._kinds

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        if self._follower is not None:
            await self._follower.run()

    def _create_follower(self) -> "_DefinitionFollower":
        """Start with no kinds: those of an earlier history may not exist any more."""
        assert self._definitions is not None
        for name in list(self._kinds):
            self._remove_definition(name)
        informer = Informer(self._definitions)
        informer.add_handler(self._apply_deltas)
        return _DefinitionFollower(informer)

    async def read_definition(self, group: str, plural: str) -> bool:
        """Read a definition that the informer may not have yet. Return whether its kind is served."""
        if self._definitions is None or self._follower is None:
            return False
        try:
            async with asyncio.timeout(FIND_TIMEOUT):
                definition = await self._definitions.get(f"{plural}.{group}")
            await self._follower.now.informer.wait_for(int(definition.metadata.resourceVersion), FIND_TIMEOUT)
        except (ApiError, TimeoutError):
            return False
        return definition.metadata.name in self._kinds

    async def find_group(self, group: str) -> bool:
        """Read the definitions of a group that the informer may not have yet. Return whether a kind of it is served."""
        if self._connection is None:
            return False
        request, plurals = ListTableRequest(resource=CUSTOM_RESOURCE_DEFINITIONS.plural), list[str]()
        try:
            async with asyncio.timeout(FIND_TIMEOUT):
                while True:
                    table = await self._connection.call(_LIST_NAMES, request, Table, retry=True)
                    names = (row.cells[0] for row in table.rows)
                    plurals += [name.removesuffix(f".{group}") for name in names if name.partition(".")[2] == group]
                    token = getattr(table.metadata, "continue")
                    if not token:
                        break
                    setattr(request.options, "continue", token)
        except (ApiError, TimeoutError):
            return False
        return any([await self.read_definition(group, plural) for plural in plurals])

    def resource_of_version(self, group: str, version: str, plural: str) -> ApiResource | None:
        return self._resources.get((group, version), _NONE).get(plural)

    def resources(self) -> Iterable[ApiResource]:
        return (resource for resources in self._resources.values() for resource in resources.values())

    def resources_in_version(self, group: str, version: str) -> Iterable[ApiResource]:
        return self._resources.get((group, version), _NONE).values()

    def versions_by_group(self) -> Mapping[str, tuple[str, ...]]:
        """Return the versions of each group in the order of discovery."""
        versions: dict[str, list[str]] = {}
        for group, version in self._resources:
            versions.setdefault(group, []).append(version)
        return {group: tuple(sort_versions(names)) for group, names in versions.items()}

    def _apply_deltas(self, deltas: Sequence[Delta[CustomResourceDefinition]]) -> None:
        for delta in deltas:
            if delta.kind == DELETED:
                self._remove_definition(delta.obj.metadata.name)
            else:
                self._add_definition(delta.obj)

    def _add_definition(self, definition: CustomResourceDefinition) -> None:
        self._remove_definition(definition.metadata.name)
        kind = kind_of(definition)
        if kind is not None:
            self._kinds[kind.qualified] = kind
            for version in kind.served:
                self._resources.setdefault((kind.group, version.name), {})[kind.plural] = _api_resource(version)
        self.version += 1

    def _remove_definition(self, name: str) -> None:
        kind = self._kinds.pop(name, None)
        if kind is not None:
            for version in kind.served:
                resources = self._resources[kind.group, version.name]
                del resources[kind.plural]
                if not resources:
                    del self._resources[kind.group, version.name]
            self.version += 1


class _DefinitionFollower:
    """A component with one informer."""

    def __init__(self, informer: Informer[CustomResourceDefinition]) -> None:
        self.informer = informer

    @property
    def checks(self) -> Mapping[str, Check]:
        return {"definitions": lambda: self.informer.healthy}

    async def run(self) -> None:
        await self.informer.run()


class ServedResources:
    """All resources: the built-in ones (api_resources), and those of custom kinds."""

    def __init__(self, custom: CustomKinds) -> None:
        self.custom = custom
        self._state = -1
        self._groups: Mapping[str, tuple[str, ...]] = {}

    def find_resource(self, group: str, version: str, plural: str) -> ApiResource | None:
        return api_resources.find_resource(group, version, plural) or self.custom.resource_of_version(group, version, plural)

    def is_version(self, group: str, version: str) -> bool:
        return api_resources.is_version(group, version) or version in self._custom_groups().get(group, ())

    def versions_by_group(self) -> Mapping[str, tuple[str, ...]]:
        """Return the versions of each group in the order of discovery."""
        built_in, custom = api_resources.versions_by_group(), self._custom_groups()
        merged = {
            group: (*versions, *(version for version in custom.get(group, ()) if version not in versions))
            for group, versions in built_in.items()
        }
        return merged | {group: custom[group] for group in sorted(custom) if group not in built_in}

    def resources_in_version(self, group: str, version: str) -> list[ApiResource]:
        custom = self.custom.resources_in_version(group, version)
        built_in = api_resources.resources_in_version(group, version)
        return sorted([*built_in, *custom], key=lambda item: item.plural) if custom else built_in

    def _custom_groups(self) -> Mapping[str, tuple[str, ...]]:
        if self._state != self.custom.version:
            self._groups = self.custom.versions_by_group()
            self._state = self.custom.version
        return self._groups


BUILT_IN = ServedResources(CustomKinds())


def _api_resource(version: CustomVersion) -> ApiResource:
    row, kind = version.resource, version.kind
    subresources = {}
    if version.has_status:
        subresources["status"] = Subresource("status", kind.name, _SUBRESOURCE_VERBS, kind.group, version.name)
    if version.has_scale:
        subresources["scale"] = Subresource("scale", "Scale", _SUBRESOURCE_VERBS, "autoscaling", "v1")
    return ApiResource(
        kind.group,
        version.name,
        kind.plural,
        kind.name,
        kind.namespaced,
        _VERBS,
        row,
        row.short_names,
        row.categories,
        subresources,
        version,
    )


def storage_version_hash(version: CustomVersion) -> str:
    """Return the hash in discovery documents; "" for versions that are not stored. Source: StorageVersionHash in
    k8s.io/apiserver/pkg/endpoints/discovery."""
    if not version.spec.storage:
        return ""
    text = f"{version.api_version}, Kind={version.kind.name}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()
