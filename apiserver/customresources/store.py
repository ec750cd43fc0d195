"""Writes of custom objects in one version.

Steps see objects in the version (`VersionConverter`), and etcd has them in the storage version. An update that changes nothing
writes an object nevertheless if it is stored in another version, or without defaults: so clients migrate objects.

A new object is written only if its definition is the one by which it was validated, and is not being deleted. So no object
stays behind when a definition is gone.
"""

from collections.abc import Sequence

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from pinnace.api.status import DEFINITION_TERMINATING, Code, Refusal
from pinnace.apiextensions.kinds import TERMINATING, CustomVersion, has_condition
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.customresources.conversion import ConversionWebhooks
from pinnace.apiserver.registry.large import LargeResultCache
from pinnace.apiserver.registry.mutation import Mutation
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.storage.interface import Guard


class VersionConverter:
    """The forms of objects of one version: as steps see them, and as etcd has them."""

    def __init__(self, version: CustomVersion, webhooks: ConversionWebhooks | None = None) -> None:
        """`webhooks`: None if objects are converted without the webhook of their kind, although it may have one."""
        self._version = version
        self._webhooks = webhooks if version.kind.converts_by_webhook else None
        self._served: LargeResultCache[bytes] = LargeResultCache()

    @property
    def uses_webhook(self) -> bool:
        return self._webhooks is not None

    def from_stored(self, obj: CustomObject) -> CustomObject:
        key = obj.content, obj.apiVersion, obj.kind
        served = CustomObject(metadata=obj.metadata, apiVersion=self._version.api_version, kind=obj.kind)
        served.content = self._served.get(len(obj.content), key, lambda: self._version.to_served_object(obj).content)
        return served

    def to_stored(self, obj: CustomObject) -> CustomObject:
        return self._version.to_stored_object(obj)

    async def call_from_stored(self, obj: CustomObject) -> CustomObject:
        (converted,) = await self.convert_to_served([obj])
        return self.from_stored(converted)

    async def call_to_stored(self, obj: CustomObject) -> CustomObject:
        assert self._webhooks is not None
        (converted,) = await self._webhooks.convert([obj], self._version.kind.storage)
        return converted

    def is_stored_form(self, obj: CustomObject) -> bool:
        return obj.apiVersion == self._version.kind.storage.api_version

    async def convert_to_served(self, objs: Sequence[CustomObject]) -> list[CustomObject]:
        """Return stored objects in the version. They are shared and must not be changed. Raises Rejected."""
        assert self._webhooks is not None
        return await self._webhooks.convert(objs, self._version)


class CustomStore(Store[CustomObject]):
    definitions: ResourceCache[CustomResourceDefinition]
    """The cache of definitions."""
    definition: str
    """The name of the definition."""

    def follow_definition(self, definitions: ResourceCache[CustomResourceDefinition], name: str) -> None:
        """Guard new objects by a definition in this cache."""
        self.definitions = definitions
        self.definition = name

    def _create_mutation(self, obj: CustomObject) -> Mutation[CustomObject] | Refusal:
        mutation = super()._create_mutation(obj)
        if isinstance(mutation, Refusal):
            return mutation
        entry = self.definitions.get(CUSTOM_RESOURCE_DEFINITIONS.key("", self.definition))
        if entry is None:
            return Refusal(Code.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        if has_condition(entry.obj, TERMINATING):
            message = "create not allowed while custom resource definition is terminating"
            return Refusal(Code.FAILED_PRECONDITION, DEFINITION_TERMINATING, message)
        guard = Guard(entry.key, entry.create_revision, entry.mod_revision)
        return mutation._replace(guards=(*mutation.guards, guard))
