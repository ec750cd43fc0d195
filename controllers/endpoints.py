"""The endpoints controller: mirrors the EndpointSlices of each service to one Endpoints object, for clients that do not read
slices. The decisions are pure.

    slices of a service (controllers/endpointslice.py) --> subsets, at most CAPACITY addresses --> Endpoints

Slices are the only source: no pod is selected a second time, and a change of many pods is one write. The Endpoints of a service
with more than LARGE addresses are written at most once every PAUSE seconds, because each write contains all addresses.

The Endpoints of the service `kubernetes` contain the gateways. Endpoints of services without a selector belong to users.

Source: pkg/controller/endpoint/endpoints_controller.go of Kubernetes 1.36.
"""

import ipaddress
import math
from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import EndpointAddress, EndpointPort, Endpoints, EndpointSubset, Pod, Service
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointSlice
from pinnace.api.resources import DEFAULT_NAMESPACE, ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, store_key
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import KUBERNETES_SERVICE, SERVICE_LABEL
from pinnace.client.errors import ApiError, NotFound, OutcomeUnknown
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.endpointslice import HEADLESS_LABEL, service_key_of_slice
from pinnace.controllers.pods import pod_ready_since
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object
from pinnace.controllers.writes import Expectations

CAPACITY = 1000
LARGE, PAUSE = 100, 1.0
MANAGED_BY_LABEL, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
SKIP_MIRROR_LABEL = "endpointslice.kubernetes.io/skip-mirror"
OVER_CAPACITY, TRUNCATED = "endpoints.kubernetes.io/over-capacity", "truncated"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
KUBERNETES_KEY = f"{DEFAULT_NAMESPACE}/{KUBERNETES_SERVICE}"


def mirrored_service_key(each: EndpointSlice) -> str:
    """Return the "namespace/name" of the service whose Endpoints contain the slice, for an index; "" if there is none."""
    metadata = each.metadata
    if (metadata.namespace, metadata.labels.get(SERVICE_LABEL)) == (DEFAULT_NAMESPACE, KUBERNETES_SERVICE):
        return KUBERNETES_KEY
    return service_key_of_slice(each)


def build_subsets(service: Service, slices: Iterable[EndpointSlice]) -> list[EndpointSubset]:
    """Return the subsets: one for each set of ports, with sorted addresses of the service's first IP family."""
    family = next(iter(service.spec.ipFamilies), "IPv6" if ":" in service.spec.clusterIP else "IPv4")
    includes_terminating = service.spec.publishNotReadyAddresses
    groups: dict[tuple[bytes, ...], EndpointSubset] = {}
    for each in slices:
        if each.addressType != family or (service.spec.ports and not each.ports):
            continue  # no container has one of the named ports
        ports = sorted((_convert_port(port) for port in each.ports), key=lambda port: (port.port, port.name, port.protocol))
        key = tuple(port.SerializeToString(deterministic=True) for port in ports)
        subset = groups.setdefault(key, EndpointSubset(ports=ports))
        for endpoint in each.endpoints:
            if endpoint.conditions.terminating and not includes_terminating:
                continue
            into = subset.addresses if endpoint.conditions.ready else subset.notReadyAddresses
            into.extend(_convert_endpoint(endpoint, address) for address in endpoint.addresses)
    subsets = [subset for subset in groups.values() if subset.addresses or subset.notReadyAddresses]
    for subset in subsets:
        for addresses in (subset.addresses, subset.notReadyAddresses):
            addresses.sort(key=_address_order)
    return sorted(subsets, key=lambda subset: [(port.port, port.name) for port in subset.ports])


def _convert_port(port: Any) -> EndpointPort:
    made = EndpointPort(name=port.name, port=port.port, protocol=port.protocol)
    if port.HasField("appProtocol"):
        made.appProtocol = port.appProtocol
    return made


def _convert_endpoint(endpoint: Endpoint, address: str) -> EndpointAddress:
    made = EndpointAddress(ip=address, hostname=endpoint.hostname)
    if endpoint.HasField("targetRef"):
        made.targetRef.CopyFrom(endpoint.targetRef)
    if endpoint.HasField("nodeName"):
        made.nodeName = endpoint.nodeName
    return made


def _address_order(address: EndpointAddress) -> tuple[bytes, str]:
    return ipaddress.ip_address(address.ip).packed, address.targetRef.uid


def truncate_subsets(subsets: Sequence[EndpointSubset], capacity: int = CAPACITY) -> bool:
    """Remove addresses over the capacity in place: those that are not ready first, in proportion from each subset. Return
    whether there were any."""
    ready = sum(len(subset.addresses) for subset in subsets)
    unready = sum(len(subset.notReadyAddresses) for subset in subsets)
    if ready + unready <= capacity:
        return False
    keeps_unready = ready <= capacity
    most, total = (capacity - ready, unready) if keeps_unready else (capacity, ready)
    left = most
    for subset in subsets:
        addresses = subset.notReadyAddresses if keeps_unready else subset.addresses
        kept = min(left, math.ceil(len(addresses) / total * most))
        del addresses[kept:]
        left -= len(addresses)
        if not keeps_unready:
            del subset.notReadyAddresses[:]
    return True


def build_endpoints(service: Service, slices: Iterable[EndpointSlice]) -> Endpoints:
    """Return the wanted object, without the trigger time."""
    made = Endpoints()
    made.metadata.name, made.metadata.namespace = service.metadata.name, service.metadata.namespace
    made.subsets.extend(build_subsets(service, slices))
    if store_key(service) == KUBERNETES_KEY:
        made.metadata.labels[SKIP_MIRROR_LABEL] = "true"
    else:
        made.metadata.labels.update({**service.metadata.labels, MANAGED_BY_LABEL: MANAGER})
        made.metadata.labels.pop(HEADLESS_LABEL, None)
        if service.spec.clusterIP == "None":
            made.metadata.labels[HEADLESS_LABEL] = ""
    if truncate_subsets(made.subsets):
        made.metadata.annotations[OVER_CAPACITY] = TRUNCATED
    return made


def ready_pods(endpoints: Endpoints) -> set[str]:
    """Return the "namespace/name" of the pods that are ready."""
    return {
        f"{address.targetRef.namespace}/{address.targetRef.name}"
        for subset in endpoints.subsets
        for address in subset.addresses
        if address.HasField("targetRef")
    }


class EndpointsController:
    name = "endpoint"
    workers = 4
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(ENDPOINTS)
        self._clock = shared.clock
        self._services = informers.store(SERVICES)
        self._endpoints = informers.store(ENDPOINTS)
        self._pods = informers.store(PODS)
        self._slices = informers.index(ENDPOINT_SLICES, mirrored_service_key)
        self._expectations = Expectations(informers)
        self._written: dict[str, float] = {}
        """When the Endpoints of large services were written, in monotonic seconds."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(SERVICES, key_of_object),
            WatchedResource(ENDPOINT_SLICES, _keys_of_slice),
            WatchedResource(ENDPOINTS, key_of_object),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        service, present = self._services.get(key), self._endpoints.get(key)
        if service is None or service.metadata.HasField("deletionTimestamp"):
            self._written.pop(key, None)
            if present is not None and MANAGED_BY_LABEL in present.metadata.labels and service is None:
                await self._delete(key, present)
            return None
        if key != KUBERNETES_KEY and (not service.spec.selector or service.spec.type == "ExternalName"):
            return None
        wanted = build_endpoints(service, self._slices.under(key).values())
        if present is not None and _is_current(present, wanted):
            return None
        now = self._clock.monotonic()
        if (wait := self._written.get(key, now - PAUSE) + PAUSE - now) > 0:
            return wait
        self._set_trigger_time(service, present, wanted)
        if present is not None:
            _keep_metadata(present, wanted)
            self._expect_write(key, await self._client.update(wanted))
        else:
            await self._create(key, wanted)
        if sum(len(subset.addresses) + len(subset.notReadyAddresses) for subset in wanted.subsets) > LARGE:
            self._written[key] = now
        return None

    def _set_trigger_time(self, service: Service, present: Endpoints | None, wanted: Endpoints) -> None:
        """Set the time of the change that causes the write: when the first of the added pods became ready, or for new Endpoints
        without pods when the service was created."""
        added = ready_pods(wanted) - (ready_pods(present) if present is not None else set())
        pods: list[Pod] = [self._pods[name] for name in added if name in self._pods]
        times = [since for pod in pods if (since := pod_ready_since(pod)) is not None]
        if not times and present is None:
            times = [service.metadata.creationTimestamp.seconds]
        if times:
            wanted.metadata.annotations[TRIGGER_TIME] = format_rfc3339(to_time(int(min(times))))

    async def _create(self, key: str, wanted: Endpoints) -> None:
        try:
            self._expect_write(key, await self._client.create(wanted))
        except OutcomeUnknown:
            await self._expectations.expect_lost_write(key, self._client)
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                raise

    async def _delete(self, key: str, present: Endpoints) -> None:
        metadata = present.metadata
        try:
            self._expect_write(key, await self._client.delete(metadata.name, metadata.namespace, uid=metadata.uid))
        except NotFound:
            return

    def _expect_write(self, key: str, stored: Endpoints) -> None:
        self._expectations.expect_version(key, ENDPOINTS, stored.metadata.resourceVersion)


def _is_current(present: Endpoints, wanted: Endpoints) -> bool:
    if present.metadata.annotations.get(OVER_CAPACITY) != wanted.metadata.annotations.get(OVER_CAPACITY):
        return False
    return bool(present.metadata.labels == wanted.metadata.labels and present.subsets == wanted.subsets)


def _keep_metadata(present: Endpoints, wanted: Endpoints) -> None:
    """Keep what the controller does not set."""
    annotations = dict(wanted.metadata.annotations)
    labels = dict(wanted.metadata.labels)
    wanted.metadata.CopyFrom(present.metadata)
    for name in (OVER_CAPACITY, TRIGGER_TIME):
        wanted.metadata.annotations.pop(name, None)
    wanted.metadata.annotations.update(annotations)
    wanted.metadata.labels.clear()
    wanted.metadata.labels.update(labels)


def _keys_of_slice(delta: Delta[EndpointSlice]) -> Iterable[str]:
    """Return the service of the slice now and before the change."""
    before = delta.old if delta.kind != DELETED else None
    return {key for each in (delta.obj, before) if each is not None and (key := mirrored_service_key(each))}
