"""API versions of a kind: the conversion between the form in which objects are stored and other forms in which they are served.

    stored, v1                           served, events.k8s.io/v1
    Event.involvedObject = 2      <-->   Event.regarding = 8
    Event.reportingComponent = 14 <-->   Event.reportingController = 4

A version differs from the stored form in the names and numbers of top-level fields only. Each field of one form is a field of
the other. Every kind has its stored version, whose conversion changes nothing. Autoscalers have a conversion of their own
(pinnace.api.autoscaling), because their versions differ inside of the spec.

Source: https://github.com/kubernetes/kubernetes/tree/master/pkg/apis/events/v1
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from google.protobuf.message import Message

from pinnace.api import autoscaling
from pinnace.api.codec import unknown_fields
from pinnace.api.resources import (
    EVENTS,
    EVENTS_V1,
    HORIZONTAL_POD_AUTOSCALERS,
    HORIZONTAL_POD_AUTOSCALERS_V1,
    CustomResource,
    Resource,
)
from pinnace.api.selectors import FIELDS, FieldSelector, parse_fields


@dataclass(frozen=True, eq=False)
class Conversion:
    """The conversion between a version and the stored form."""

    served: Resource[Any]
    stored: Resource[Any]
    stored_names: Mapping[str, str] = field(default_factory=dict)
    """The stored names of the fields that have other names in the version."""
    unselectable: Collection[str] = ()
    """The stored names of selectable fields that the version cannot select."""

    @property
    def is_identity(self) -> bool:
        return self.served is self.stored

    @property
    def is_structural(self) -> bool:
        """Whether the version differs in more than the names of fields."""
        return False

    @property
    def served_names(self) -> Mapping[str, str]:
        """The inverse of `stored_names`."""
        return {stored: served for served, stored in self.stored_names.items()}

    def to_stored(self, obj: Any, present: Any = None) -> Any:
        """Return the stored form. Fields of `present`, the stored object, that no version defines are kept."""
        if self.is_identity:
            return obj
        result = _convert_message(obj, self.stored.message(), self.stored_names)
        if present is not None:
            result.MergeFrom(unknown_fields(present))
        return result

    def to_served(self, obj: Any) -> Any:
        """Return the form of the version."""
        return obj if self.is_identity else _convert_message(obj, self.served.message(), self.served_names)

    def to_ownable(self, obj: Any) -> Any:
        """Return the form of the version with only the fields that can have owners."""
        return self.to_served(obj)

    def stored_selector(self, text: str) -> str:
        """Convert a field selector of the version. Raises SelectorError."""
        if self.is_identity or not text:
            return text
        reads = FIELDS[self.stored.plural]
        names = {self._served_path(name): name for name in reads if name not in self.unselectable}
        selector = parse_fields(text, {served: reads[stored] for served, stored in names.items()})
        return str(
            FieldSelector(tuple(replace(requirement, name=names[requirement.name]) for requirement in selector.requirements))
        )

    def _served_path(self, path: str) -> str:
        name, dot, rest = path.partition(".")
        return f"{self.served_names.get(name, name)}{dot}{rest}"


def _convert_message(source: Message, target: Any, names: Mapping[str, str]) -> Any:
    """Fill a message from one of another type. `names`: the names of fields that have other names in the target."""
    for descriptor, value in source.ListFields():
        name = names.get(descriptor.name, descriptor.name)
        if descriptor.message_type is None:
            setattr(target, name, value)
        else:
            child = getattr(target, name)
            child.SetInParent()
            child.MergeFromString(value.SerializeToString())
    return target


_EVENTS_V1 = Conversion(
    EVENTS_V1,
    EVENTS,
    {
        "regarding": "involvedObject",
        "note": "message",
        "reportingController": "reportingComponent",
        "deprecatedSource": "source",
        "deprecatedFirstTimestamp": "firstTimestamp",
        "deprecatedLastTimestamp": "lastTimestamp",
        "deprecatedCount": "count",
    },
    unselectable=("source",),
)


@dataclass(frozen=True, eq=False)
class _AutoscalerConversion(Conversion):
    @property
    def is_structural(self) -> bool:
        return True

    def to_stored(self, obj: Any, present: Any = None) -> Any:
        result: Any = autoscaling.to_v2(obj)
        if present is not None:
            result.MergeFrom(unknown_fields(present))
        return result

    def to_served(self, obj: Any) -> Any:
        return autoscaling.to_v1(obj)

    def to_ownable(self, obj: Any) -> Any:
        """Without the annotations that stand for the status."""
        result = autoscaling.to_v1(obj)
        autoscaling.drop_status_annotations(result)
        return result


_CONVERSIONS = (_EVENTS_V1, _AutoscalerConversion(HORIZONTAL_POD_AUTOSCALERS_V1, HORIZONTAL_POD_AUTOSCALERS))
SERVED_VERSIONS = tuple(conversion.served for conversion in _CONVERSIONS)
"""The versions that are not the stored ones of their kinds."""


def conversion_of(resource: Resource[Any]) -> Conversion:
    """Return the conversion of a version to the stored form. Versions of custom kinds have their own one
    (pinnace.apiextensions.kinds)."""
    if isinstance(resource, CustomResource):
        return Conversion(resource, resource)
    return _built_in_conversion(resource)


@cache
def _built_in_conversion(resource: Resource[Any]) -> Conversion:
    return next((conversion for conversion in _CONVERSIONS if conversion.served is resource), Conversion(resource, resource))


def conversion_to(resource: Resource[Any], api_version: str) -> Conversion | None:
    """Return the conversion of a version of the same kind. `resource`: any version. None: there is no such version."""
    if isinstance(resource, CustomResource):
        return Conversion(resource, resource) if resource.api_version == api_version else None
    return _built_in_conversion_to(resource, api_version)


@cache
def _built_in_conversion_to(resource: Resource[Any], api_version: str) -> Conversion | None:
    stored = conversion_of(resource).stored
    versions = (stored, *(conversion.served for conversion in _CONVERSIONS if conversion.stored is stored))
    return next((conversion_of(version) for version in versions if version.api_version == api_version), None)


@dataclass(frozen=True, eq=False)
class _CustomConversion(Conversion):
    """The conversion between two versions of a custom kind."""

    def to_stored(self, obj: Any, present: Any = None) -> Any:
        return self.stored.schema.to_served_object(obj)  # type: ignore[attr-defined]  # versions of custom kinds have one

    def to_served(self, obj: Any) -> Any:
        return self.served.schema.to_served_object(obj)  # type: ignore[attr-defined]  # versions of custom kinds have one


def served_versions(resource: Resource[Any]) -> tuple[str, ...]:
    """Return the API versions in which the objects of a resource are served."""
    if isinstance(resource, CustomResource):
        return tuple(resource.schema.served_versions()) if resource.schema is not None else (resource.api_version,)
    stored = conversion_of(resource).stored
    return (stored.api_version, *(item.served.api_version for item in _CONVERSIONS if item.stored is stored))


def conversion_between(resource: Resource[Any], api_version: str) -> Conversion | None:
    """Return the conversion between the form of the objects in writes of a resource and a served version. Unlike with
    `conversion_to`, writes of a custom kind have the form of their version."""
    if not isinstance(resource, CustomResource) or api_version == resource.api_version:
        return conversion_to(resource, api_version)
    other = resource.schema.served_versions().get(api_version) if resource.schema is not None else None
    return _CustomConversion(other, resource) if other is not None else None


def renamed_fields(resource: Resource[Any], source: str, target: str) -> Mapping[str, str] | None:
    """Return the names in the API version `target` of the fields that have other names in `source`. None: the kind of the
    resource does not have both versions."""
    if isinstance(resource, CustomResource):
        return {} if resource.schema is None or resource.schema.has_versions(source, target) else None
    return _renamed_fields(resource, source, target)


@cache
def _renamed_fields(resource: Resource[Any], source: str, target: str) -> Mapping[str, str] | None:
    before, after = conversion_to(resource, source), conversion_to(resource, target)
    if before is None or after is None:
        return None
    if before is after:
        return {}
    stored = {*before.stored_names.values(), *after.stored_names.values()}
    return {before.served_names.get(name, name): after.served_names.get(name, name) for name in stored}
