"""The kinds that definitions add: their versions as resources, and the forms of their objects.

    stored object, in any version --prune, defaults of the stored version--> prune by the served version --> served form
    object of a write, in the served version --prune, defaults--> validated --prune by the storage version--> stored object

Without a conversion webhook (strategy None), versions differ in their schemas only. With one, API servers convert objects
before they use these forms (pinnace.apiserver.customresources.conversion): objects are then in the served version.

What needs the schema of a version is made when it is first used: a definition can have hundreds of kilobytes.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from pinnace.api import customobjects_pb2
from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition, CustomResourceDefinitionVersion
from pinnace.api.codec import to_dict
from pinnace.api.customobjects import read_content, write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CustomResource, custom_service
from pinnace.api.schema import Type
from pinnace.apiextensions.columns import Column, columns_of
from pinnace.apiextensions.defaulting import drop_invalid_nulls, set_defaults
from pinnace.apiextensions.metadata import coerce_metadata
from pinnace.apiextensions.pruning import prune
from pinnace.apiextensions.schema import StructuralSchema, compile_schema
from pinnace.apiextensions.subresources import selectable_values
from pinnace.apiextensions.typed import type_of

ESTABLISHED, TERMINATING = "Established", "Terminating"


def has_condition(definition: CustomResourceDefinition, kind: str) -> bool:
    """Return whether a condition of the definition is True."""
    return any(condition.type == kind and condition.status == "True" for condition in definition.status.conditions)


class CustomVersion:
    """A version of a custom kind, served or not. Implements `CustomSchema`."""

    def __init__(self, kind: "CustomKind", spec: CustomResourceDefinitionVersion) -> None:
        self.kind = kind
        self.spec = spec
        self.name = spec.name
        self.api_version = f"{kind.group}/{spec.name}"
        self.has_status = spec.HasField("subresources") and spec.subresources.HasField("status")
        self.has_scale = spec.HasField("subresources") and spec.subresources.HasField("scale")
        labels = [field.jsonPath.removeprefix(".") for field in spec.selectableFields]
        names = kind.definition.status.acceptedNames
        self.resource = CustomResource(
            kind.plural,
            kind.name,
            self.api_version,
            CustomObject,
            custom_service(spec.name, kind.plural, kind.group),
            customobjects_pb2,
            namespaced=kind.namespaced,
            short_names=tuple(names.shortNames),
            schema=self,
            list_kind=names.listKind or kind.definition.spec.names.listKind,
            singular=names.singular or kind.definition.spec.names.singular,
            categories=tuple(names.categories),
            readers={label: partial(self._read_selectable, label) for label in labels},
        )

    @cached_property
    def form(self) -> Mapping[str, Any]:
        """The version as in the JSON of the definition."""
        return to_dict(self.spec)

    @property
    def deprecation_warning(self) -> str:
        """The warning of requests for this version, if it is deprecated."""
        return self.spec.deprecationWarning or f"{self.api_version} {self.kind.name} is deprecated"

    @cached_property
    def schema(self) -> StructuralSchema:
        return compile_schema(self.form.get("schema", {}).get("openAPIV3Schema", {}))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.form)

    @cached_property
    def _type(self) -> Type:
        return type_of(self.schema)

    def has_versions(self, *api_versions: str) -> bool:
        return all(api_version in self.kind.versions for api_version in api_versions)

    def served_versions(self) -> Mapping[str, CustomResource]:
        return {version.api_version: version.resource for version in self.kind.versions.values() if version.spec.served}

    def ownership_type(self) -> Type:
        return self._type

    def find_unknown_fields(self, obj: dict[str, Any]) -> list[str]:
        if self.kind.preserves_unknown_fields:
            return []
        unknown = prune(obj, self.schema)
        return sorted((*unknown, *coerce_metadata(obj, self.schema)[1]))

    def normalize(self, form: dict[str, Any]) -> None:
        """Remove unknown fields of an object in this version, and set defaults, in place."""
        if not self.kind.preserves_unknown_fields:
            prune(form, self.schema)
        drop_invalid_nulls(form, self.schema)
        set_defaults(form, self.schema)

    def to_served(self, obj: CustomObject) -> dict[str, Any]:
        stored = self.kind.version_of(obj.apiVersion) or self
        form = stored.normalized(obj)
        if stored is not self and not self.kind.preserves_unknown_fields:
            prune(form, self.schema)
        form["apiVersion"] = self.api_version
        return dict(sorted(form.items()))

    def normalized(self, obj: CustomObject) -> dict[str, Any]:
        """Return the JSON form of an object in this version without unknown fields, and with defaults."""
        form = {"apiVersion": obj.apiVersion, "kind": obj.kind, "metadata": to_dict(obj.metadata), **read_content(obj)}
        self.normalize(form)
        coerce_metadata(form, self.schema, drop_invalid=True)
        return form

    def pruned(self, form: dict[str, Any]) -> dict[str, Any]:
        """Remove the fields of an object that the schema of this version does not declare, in place, and return it."""
        if not self.kind.preserves_unknown_fields:
            prune(form, self.schema)
        coerce_metadata(form, self.schema, drop_invalid=True)
        return form

    def to_served_object(self, obj: CustomObject) -> CustomObject:
        """Return an object of any version in this version."""
        result = CustomObject(metadata=obj.metadata, apiVersion=self.api_version, kind=obj.kind)
        result.content = write_content(self.to_served(obj))
        return result

    def to_stored_object(self, obj: CustomObject) -> CustomObject:
        """Return an object in this version in the form in which it is stored."""
        storage = self.kind.storage
        if storage is self:
            return obj
        form = {"apiVersion": storage.api_version, "kind": obj.kind, "metadata": {}, **read_content(obj)}
        if not self.kind.preserves_unknown_fields:
            prune(form, storage.schema)
        return CustomObject(metadata=obj.metadata, apiVersion=storage.api_version, kind=obj.kind, content=write_content(form))

    def _read_selectable(self, label: str, obj: CustomObject) -> str:
        return selectable_values(self.to_served(obj), self.form).get(label, "")


class CustomKind:
    """The kind of one version of a definition."""

    def __init__(self, definition: CustomResourceDefinition) -> None:
        spec = definition.spec
        self.definition = definition
        self.group = spec.group
        self.plural = spec.names.plural
        self.name = spec.names.kind
        self.namespaced = spec.scope == "Namespaced"
        self.preserves_unknown_fields = spec.preserveUnknownFields
        self.uid = definition.metadata.uid
        self.is_terminating = has_condition(definition, TERMINATING)
        self.versions: Mapping[str, CustomVersion] = {
            f"{spec.group}/{version.name}": CustomVersion(self, version) for version in spec.versions
        }
        self.storage = next(version for version in self.versions.values() if version.spec.storage)

    @property
    def qualified(self) -> str:
        """The name of the definition: "widgets.example.com"."""
        return f"{self.plural}.{self.group}"

    @property
    def served(self) -> list[CustomVersion]:
        return [version for version in self.versions.values() if version.spec.served]

    @property
    def converts_by_webhook(self) -> bool:
        return self.definition.spec.conversion.strategy == "Webhook"

    def version_of(self, api_version: str) -> CustomVersion | None:
        return self.versions.get(api_version)


def kind_of(definition: CustomResourceDefinition) -> CustomKind | None:
    """Return the kind that the API serves by a definition; None if it is not established."""
    if not has_condition(definition, ESTABLISHED) or not any(version.storage for version in definition.spec.versions):
        return None
    return CustomKind(definition)
