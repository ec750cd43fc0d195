"""The controller of API services: objects that list the served versions of API groups, and whether they are available.

    built-in versions            an object each, with the label automanaged=onstart
    versions of definitions      an object each, with the label automanaged=true, while a definition serves the version
    objects of users             the condition Available; there is no aggregation layer, so their services receive no requests

Source: pkg/controllers of k8s.io/kube-aggregator 1.36, and pkg/controlplane/controller/crdregistration of Kubernetes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api import conditions
from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.apiregistration_v1_pb2 import APIService
from pinnace.api.core_v1_pb2 import Namespace, Service
from pinnace.api.groups import CUSTOM, LOCAL, Priorities, name_of
from pinnace.api.resources import (
    API_SERVICES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    SERVICES,
    SYSTEM_NAMESPACE,
    store_key,
)
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.client.errors import AlreadyExists, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object
from pinnace.controllers.writes import Expectations

AUTOMANAGED_LABEL, ON_START, ALWAYS = "kube-aggregator.kubernetes.io/automanaged", "onstart", "true"
AVAILABLE = "Available"


def build_local_api_service(name: str, priorities: Priorities, label: str) -> APIService:
    """Return the object of a version that the API servers themselves serve."""
    version, _, group = name.partition(".")
    made = APIService()
    made.metadata.name = name
    made.metadata.labels[AUTOMANAGED_LABEL] = label
    made.spec.group, made.spec.version = group, version
    made.spec.groupPriorityMinimum, made.spec.versionPriority = priorities
    return made


def api_service_names_of_definition(definition: CustomResourceDefinition) -> set[str]:
    """Return the names of the versions that a definition serves."""
    return {name_of(definition.spec.group, version.name) for version in definition.spec.versions if version.served}


def availability_of_remote(service: APIService, exists: bool) -> tuple[str, str]:
    """Return reason and message of the condition of an object with a service."""
    target = f'service/{service.spec.service.name} in "{service.spec.service.namespace}"'
    if not exists:
        return "ServiceNotFound", f"{target} is not present"
    return "FailedDiscoveryCheck", f"failing or missing response from {target}: this cluster has no aggregation layer"


class APIServiceController:
    name = "apiservice"
    workers = 2
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(API_SERVICES)
        self._clock = shared.clock
        self._api_services = informers.store(API_SERVICES)
        self._definitions = informers.store(CUSTOM_RESOURCE_DEFINITIONS)
        self._services = informers.store(SERVICES)
        self._expectations = Expectations(informers)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(API_SERVICES, key_of_object),
            WatchedResource(CUSTOM_RESOURCE_DEFINITIONS, _keys_of_definition),
            WatchedResource(SERVICES, self._keys_of_service),
            WatchedResource(NAMESPACES, _keys_of_built_in_versions),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        present = self._api_services.get(key)
        if present is None:
            if key in LOCAL:
                await self._create(key, build_local_api_service(key, LOCAL[key], ON_START))
            elif self._is_custom(key):
                await self._create(key, build_local_api_service(key, CUSTOM, ALWAYS))
        elif present.spec.HasField("service"):
            await self._set_available(key, present)
        elif present.metadata.labels.get(AUTOMANAGED_LABEL) == ALWAYS and not self._is_custom(key):
            try:
                self._expect_write(key, await self._client.delete(key, uid=present.metadata.uid))
            except NotFound:
                return None
        return None

    def _is_custom(self, name: str) -> bool:
        return any(
            name in api_service_names_of_definition(definition)
            for definition in self._definitions.values()
            if not definition.metadata.HasField("deletionTimestamp")
        )

    async def _create(self, key: str, api_service: APIService) -> None:
        try:
            self._expect_write(key, await self._client.create(api_service))
        except AlreadyExists:
            return

    async def _set_available(self, key: str, present: APIService) -> None:
        target = present.spec.service
        reason, message = availability_of_remote(present, f"{target.namespace}/{target.name}" in self._services)
        changed = APIService()
        changed.CopyFrom(present)
        conditions.set_condition(changed.status.conditions, AVAILABLE, "False", reason, message, self._clock.time())
        if changed.status == present.status:
            return
        try:
            self._expect_write(key, await self._client.update_status(changed))
        except NotFound:
            return

    def _expect_write(self, key: str, stored: APIService) -> None:
        self._expectations.expect_version(key, API_SERVICES, stored.metadata.resourceVersion)

    def _keys_of_service(self, delta: Delta[Service]) -> Iterable[str]:
        """Return the API services that name a service which comes or goes."""
        if delta.kind == MODIFIED:
            return ()
        key = store_key(delta.obj)
        return [
            name
            for name, api_service in self._api_services.items()
            if api_service.spec.HasField("service")
            and f"{api_service.spec.service.namespace}/{api_service.spec.service.name}" == key
        ]


def _keys_of_definition(delta: Delta[CustomResourceDefinition]) -> Iterable[str]:
    names = api_service_names_of_definition(delta.obj)
    return names | api_service_names_of_definition(delta.old) if delta.old is not None else names


def _keys_of_built_in_versions(delta: Delta[Namespace]) -> Iterable[str]:
    """Return the built-in versions at the start of a term: the namespace kube-system always exists."""
    return LOCAL if delta.obj.metadata.name == SYSTEM_NAMESPACE and delta.old is None else ()
