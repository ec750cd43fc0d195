"""The resources that the gateway serves, with their discovery data. They are derived from `pinnace.api.resources`.

Kinds that pinnace does not implement but clients such as kube-scheduler watch are served as empty, read-only collections.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pinnace.api import resources
from pinnace.api.resources import Resource
from pinnace.apiextensions.kinds import CustomVersion

READ = ("get", "list", "watch")
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "pods",
            "services",
            "deployments",
            "replicasets",
            "statefulsets",
            "daemonsets",
            "jobs",
            "cronjobs",
            "horizontalpodautoscalers",
        ),
        ("all",),
    ),
    **dict.fromkeys(("customresourcedefinitions", "apiservices"), ("api-extensions",)),
    **{resource.plural: ("api-extensions",) for resource in resources.ALL if resource.group == "admissionregistration.k8s.io"},
}
"""Groups of resources by plural, such as those of `kubectl get all`."""
_DEPRECATED: Mapping[str, str] = {
    "endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
"""Warnings of all requests about a kind, by plural."""
_UNDISCOVERED = ("create", "patch", "update")
SCALED = ("deployments", "replicasets", "statefulsets")
"""The plurals with a `scale` subresource."""
METRICS_GROUP = "metrics.k8s.io"
PREFERRED = {"": 0, "apps": 1, "batch": 2}
"""The order of the first groups. Other groups follow in alphabetical order."""


@dataclass(frozen=True, slots=True)
class Subresource:
    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True)
class ApiResource:
    """A resource of a group and version. `resource` is None for a collection that is always empty."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    resource: Resource[Any] | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    custom: CustomVersion | None = None
    """The version of the custom kind that it is."""
    built_in_warning: str = ""

    @property
    def deprecation_warning(self) -> str:
        """The warning of each request; "" if the kind is not deprecated."""
        if self.custom is not None:
            return self.custom.deprecation_warning if self.custom.spec.deprecated else ""
        return self.built_in_warning

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular_name(self) -> str:
        if self.custom is not None:
            return self.custom.resource.singular
        return "" if self.group == METRICS_GROUP else self.kind.lower()

    @property
    def qualified_name(self) -> str:
        """The name in messages, for example "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def discovered_verbs(self) -> list[str]:
        """The verbs in discovery documents: without those that make no sense while the definition is being deleted."""
        if self.custom is not None and self.custom.kind.is_terminating:
            return [verb for verb in self.verbs if verb not in _UNDISCOVERED]
        return list(self.verbs)

    @property
    def has_protobuf(self) -> bool:
        """Whether clients can read and send the objects as protobuf."""
        return self.custom is None and self.resource is not resources.CUSTOM_RESOURCE_DEFINITIONS

    @cached_property
    def list_kind(self) -> str:
        return self.custom.resource.list_kind if self.custom is not None else f"{self.kind}List"


def _subresources_of(resource: Resource[Any]) -> Iterator[Subresource]:
    group, version = resource.group, resource.api_version.rpartition("/")[2]
    if "UpdateStatus" in resource.messages.DESCRIPTOR.services_by_name[resource.service.rpartition(".")[2]].methods_by_name:
        yield Subresource("status", resource.kind, ("get", "patch", "update"), group, version)
    if resource is resources.NAMESPACES:
        yield Subresource("finalize", resource.kind, ("update",), group, version)
    if resource.plural in SCALED:
        yield Subresource("scale", "Scale", ("get", "patch", "update"), "autoscaling", "v1")
    if resource is resources.PODS:
        yield Subresource("binding", "Binding", ("create",), "", "v1")
        yield Subresource("eviction", "Eviction", ("create",), "policy", "v1")
        yield Subresource("log", "Pod", ("get",), "", "v1")
        yield Subresource("exec", "PodExecOptions", ("create", "get"), "", "v1")
        yield Subresource("attach", "PodAttachOptions", ("create", "get"), "", "v1")
        yield Subresource("portforward", "PodPortForwardOptions", ("create", "get"), "", "v1")
        yield Subresource("ephemeralcontainers", "Pod", ("get", "patch", "update"), "", "v1")
        yield Subresource("resize", "Pod", ("get", "patch", "update"), "", "v1")
    if resource is resources.SERVICE_ACCOUNTS:
        yield Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1")


def _from_resource(resource: Resource[Any]) -> ApiResource:
    group, _, version = resource.api_version.rpartition("/")
    return ApiResource(
        group,
        version,
        resource.plural,
        resource.kind,
        resource.namespaced,
        tuple(verb for verb in ALL_VERBS if verb != "deletecollection" or resource is not resources.NAMESPACES),
        resource,
        resource.short_names,
        _CATEGORIES.get(resource.plural, ()),
        {subresource.name: subresource for subresource in _subresources_of(resource)},
        built_in_warning=_DEPRECATED.get(resource.plural, ""),
    )


def _empty_collection(
    group: str, plural: str, kind: str, *short_names: str, namespaced: bool = False, version: str = "v1"
) -> ApiResource:
    return ApiResource(group, version, plural, kind, namespaced, READ, short_names=short_names)


def _review_resource(group: str, kind: str, *, namespaced: bool = False) -> ApiResource:
    return ApiResource(group, "v1", f"{kind.lower()}s", kind, namespaced, ("create",))


def index_by_path(served: Iterable[ApiResource]) -> Mapping[tuple[str, str, str], ApiResource]:
    """Return the resources by group, version and plural. Raises ValueError if two of them have the same path."""
    resources_by_path: dict[tuple[str, str, str], ApiResource] = {}
    for resource in served:
        path = (resource.group, resource.version, resource.plural)
        if path in resources_by_path:
            raise ValueError(f"two resources have the path {'/'.join(filter(None, path))}")
        resources_by_path[path] = resource
    return resources_by_path


REVIEWS = (
    _review_resource("authentication.k8s.io", "SelfSubjectReview"),
    _review_resource("authentication.k8s.io", "TokenReview"),
    _review_resource("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review_resource("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review_resource("authorization.k8s.io", "SubjectAccessReview"),
    _review_resource("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
)
EMPTY = (
    _empty_collection("", "replicationcontrollers", "ReplicationController", "rc", namespaced=True),
    _empty_collection("storage.k8s.io", "csidrivers", "CSIDriver"),
    _empty_collection("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", namespaced=True),
    _empty_collection("storage.k8s.io", "volumeattachments", "VolumeAttachment"),
    _empty_collection("resource.k8s.io", "deviceclasses", "DeviceClass"),
    _empty_collection("resource.k8s.io", "resourceclaims", "ResourceClaim", namespaced=True),
    _empty_collection("resource.k8s.io", "resourceslices", "ResourceSlice"),
)
EVENTS_V1 = ApiResource(
    "events.k8s.io", "v1", "events", "Event", True, ALL_VERBS, resources.EVENTS_V1, resources.EVENTS_V1.short_names
)
"""The objects of the core group's events in their newer form."""
AUTOSCALERS_V1 = _from_resource(resources.HORIZONTAL_POD_AUTOSCALERS_V1)
"""Autoscalers in their older form."""
USAGE = (
    ApiResource(METRICS_GROUP, "v1", "nodes", "NodeMetrics", False, ("get", "list")),
    ApiResource(METRICS_GROUP, "v1", "pods", "PodMetrics", True, ("get", "list")),
    ApiResource(METRICS_GROUP, "v1beta1", "nodes", "NodeMetrics", False, ("get", "list")),
    ApiResource(METRICS_GROUP, "v1beta1", "pods", "PodMetrics", True, ("get", "list")),
)
ELECTIONS = ApiResource("pinnace.io", "v1", "elections", "Election", False, READ)
WHY = ApiResource(
    "pinnace.io", "v1", "pods", "Pod", True, (), subresources={"why": Subresource("why", "Why", ("get",), "pinnace.io", "v1")}
)
"""A resource that only has a subresource."""
SERVED: tuple[ApiResource, ...] = (
    *map(_from_resource, resources.ALL), EVENTS_V1, AUTOSCALERS_V1, *REVIEWS, *USAGE, *EMPTY, ELECTIONS, WHY
)  # fmt: skip
_VERSIONS = {(api_resource.group, api_resource.version) for api_resource in SERVED}
_BY_PATH = index_by_path(SERVED)
_KINDS = {(api_resource.group, api_resource.version, api_resource.kind) for api_resource in SERVED} | {
    (subresource.group, subresource.version, subresource.kind)
    for resource in SERVED
    for subresource in resource.subresources.values()
}
_BY_RESOURCE = {api_resource.resource: api_resource for api_resource in reversed(SERVED) if api_resource.resource is not None}


def find_resource(group: str, version: str, plural: str) -> ApiResource | None:
    return _BY_PATH.get((group, version, plural))


def is_kind(group: str, version: str, kind: str) -> bool:
    return (group, version, kind) in _KINDS


def api_resource_of(resource: Resource[Any]) -> ApiResource:
    return _BY_RESOURCE[resource]


def is_version(group: str, version: str) -> bool:
    return (group, version) in _VERSIONS


def versions_by_group() -> Mapping[str, tuple[str, ...]]:
    """Return the versions of each group in the order of discovery."""
    result: dict[str, list[str]] = {}
    for api_resource in SERVED:
        versions = result.setdefault(api_resource.group, [])
        if api_resource.version not in versions:
            versions.append(api_resource.version)
    names = sorted(result, key=lambda name: (PREFERRED.get(name, len(PREFERRED)), name))
    return {name: tuple(result[name]) for name in names}


def resources_in_version(group: str, version: str) -> list[ApiResource]:
    return sorted(
        (api_resource for api_resource in SERVED if (api_resource.group, api_resource.version) == (group, version)),
        key=lambda api_resource: api_resource.plural,
    )
