"""The endpoint slice controller: maintains the addresses of each service's pods. The decisions are pure.

    pods of a service --> endpoints, grouped by address type and ports --> slices

A slice has at most CAPACITY endpoints of one group. An endpoint stays in its slice. New endpoints first fill slices that change
anyway, and then new slices. The last incomplete slice is merged into another slice if it has room. This limits the number of
changed slices, because each change is sent to every node. Slices of ports that no longer exist are reused for new groups. A
service without endpoints has one empty slice.

Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#distribution-of-endpointslices
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from pinnace.api.core_v1_pb2 import Node, Pod, Service, ServicePort
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.meta_v1_pb2 import LabelSelector as SelectorMessage
from pinnace.api.pods import ended
from pinnace.api.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES, store_key
from pinnace.api.scalars import STRING
from pinnace.api.selectors import NOTHING, LabelSelector, from_message
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.api.wellknown import SERVICE_LABEL, ZONE_LABEL
from pinnace.client.errors import ApiError, NotFound, OutcomeUnknown
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.ownership import new_controller_ref
from pinnace.controllers.pods import is_pod_ready, pod_node_name
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object
from pinnace.controllers.writes import Expectations


class EndpointGroup(NamedTuple):
    """The common properties of all endpoints of a slice. `ports` are serialized in order, for comparison."""

    address_type: str
    ports: tuple[bytes, ...]


def group_endpoints(
    service: Service, pods: Iterable[Pod], zone_of: Callable[[str], str]
) -> dict[EndpointGroup, list[Endpoint]]:
    """Return the endpoints by group. `pods` are the selected pods. `zone_of` returns the zone of a node, or an empty string."""
    groups: dict[EndpointGroup, list[Endpoint]] = {}
    for pod in pods:
        if ended(pod) or not pod.status.podIP:
            continue
        group = EndpointGroup("IPv6" if ":" in pod.status.podIP else "IPv4", tuple(_endpoint_ports(service, pod)))
        groups.setdefault(group, []).append(build_endpoint(service, pod, zone_of(pod.spec.nodeName)))
    return groups


def build_endpoint(service: Service, pod: Pod, zone: str) -> Endpoint:
    made = Endpoint(addresses=[pod.status.podIP])
    terminating = pod.metadata.HasField("deletionTimestamp")
    made.conditions.serving = is_pod_ready(pod)
    made.conditions.terminating = terminating
    made.conditions.ready = service.spec.publishNotReadyAddresses or (is_pod_ready(pod) and not terminating)
    target = made.targetRef
    target.kind, target.namespace, target.name, target.uid = (
        "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid,
    )  # fmt: skip
    if pod.spec.hostname and pod.spec.subdomain == service.metadata.name:
        made.hostname = pod.spec.hostname
    if pod.spec.nodeName:
        made.nodeName = pod.spec.nodeName
    if zone:
        made.zone = zone
    return made


def _endpoint_ports(service: Service, pod: Pod) -> Iterable[bytes]:
    for service_port in service.spec.ports:
        number = _find_port(service_port, pod)
        if number is not None:
            port = EndpointPort(name=service_port.name, protocol=service_port.protocol, port=number)
            if service_port.HasField("appProtocol"):
                port.appProtocol = service_port.appProtocol
            yield port.SerializeToString(deterministic=True)


def _find_port(port: ServicePort, pod: Pod) -> int | None:
    """Return the target port. A named port is looked up in the containers and then in the sidecars; None if it is missing.

    Source: FindPort in https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/endpointslice/utils.go
    """
    if port.targetPort.type != STRING:
        return port.targetPort.intVal or port.port
    sidecars = (init_container for init_container in pod.spec.initContainers if init_container.restartPolicy == "Always")
    result = (
        container_port.containerPort
        for container in (*pod.spec.containers, *sidecars)
        for container_port in container.ports
        if (container_port.name, container_port.protocol or "TCP") == (port.targetPort.strVal, port.protocol or "TCP")
    )
    return next(result, None)


CAPACITY = 100
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS_LABEL = "service.kubernetes.io/headless"


@dataclass(slots=True)
class SliceChanges:
    """The slices to write. Updated slices are copies."""

    create: list[EndpointSlice] = field(default_factory=list)
    update: list[EndpointSlice] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def plan_slice_changes(
    service: Service, wanted: Mapping[EndpointGroup, Sequence[Endpoint]], existing: Iterable[EndpointSlice]
) -> SliceChanges:
    """Return the changes for the wanted endpoints. `existing` are the managed slices of services with this name.

    Slices of an earlier service with the same name are left to the garbage collector.
    """
    by_group: dict[EndpointGroup, list[EndpointSlice]] = {group: [] for group in wanted or [_empty_group(service)]}
    result = SliceChanges()
    for endpoint_slice in sorted(existing, key=lambda endpoint_slice: endpoint_slice.metadata.name):
        (
            by_group.get(_group_of(endpoint_slice), result.delete) if _is_owned(service, endpoint_slice) else result.delete
        ).append(endpoint_slice)
    for group, slices in by_group.items():
        _distribute_endpoints(service, group, wanted.get(group, ()), slices, result)
    return _reuse_deleted_slices(service, result)


def _is_owned(service: Service, each: EndpointSlice) -> bool:
    return any(owner.uid == service.metadata.uid for owner in each.metadata.ownerReferences)


def _distribute_endpoints(
    service: Service, group: EndpointGroup, endpoints: Sequence[Endpoint], slices: Sequence[EndpointSlice], found: SliceChanges
) -> None:
    left = {item.targetRef.uid: item for item in endpoints}
    kept = [[left.pop(one.targetRef.uid) for one in slice_.endpoints if one.targetRef.uid in left] for slice_ in slices]
    new = list(left.values())
    changed = [_updated_slice(service, each, own) != each for each, own in zip(slices, kept, strict=True)]
    for index in sorted((index for index, does in enumerate(changed) if does), key=lambda index: -len(kept[index])):
        room = CAPACITY - len(kept[index])
        kept[index] += new[:room]
        new = new[room:]
    made = [new[start : start + CAPACITY] for start in range(0, len(new), CAPACITY)]
    if made and (fullest := _fullest_slice_with_room(kept, changed, len(made[-1]))) is not None:
        kept[fullest] += made.pop()
    if not endpoints and not slices:
        made = [[]]
    found.create += [_build_slice(service, group, item) for item in made]
    empty = [index for index, own in enumerate(kept) if not own]
    doomed = set(empty if endpoints else empty[1:])
    for index, each in enumerate(slices):
        if index in doomed:
            found.delete.append(each)
        elif (after := _updated_slice(service, each, kept[index])) != each:
            found.update.append(after)


def _fullest_slice_with_room(kept: Sequence[Sequence[Endpoint]], changed: Sequence[bool], count: int) -> int | None:
    """Return the fullest unchanged slice with room for `count` endpoints, or None. A complete slice is never merged."""
    if count == CAPACITY:
        return None
    fits = [index for index, own in enumerate(kept) if not changed[index] and len(own) + count <= CAPACITY]
    return max(fits, key=lambda index: len(kept[index]), default=None)


def _reuse_deleted_slices(service: Service, found: SliceChanges) -> SliceChanges:
    """Update slices to delete instead of creating slices. This saves a write, and watchers see no intermediate state."""
    kept = SliceChanges(update=found.update)
    spare: dict[str, list[EndpointSlice]] = {}
    for endpoint_slice in found.delete:
        (spare.setdefault(endpoint_slice.addressType, []) if _is_owned(service, endpoint_slice) else kept.delete).append(
            endpoint_slice
        )
    for made in found.create:
        if olds := spare.get(made.addressType):
            after = _updated_slice(service, olds.pop(0), made.endpoints)
            del after.ports[:]
            after.ports.extend(made.ports)
            kept.update.append(after)
        else:
            kept.create.append(made)
    kept.delete += chain.from_iterable(spare.values())
    return kept


def _empty_group(service: Service) -> EndpointGroup:
    """Return the group of the empty slice of a service without endpoints."""
    family = next(iter(service.spec.ipFamilies), "IPv6" if ":" in service.spec.clusterIP else "IPv4")
    return EndpointGroup(family, ())


def _group_of(each: EndpointSlice) -> EndpointGroup:
    return EndpointGroup(each.addressType, tuple(port.SerializeToString(deterministic=True) for port in each.ports))


def _build_slice(service: Service, group: EndpointGroup, endpoints: Sequence[Endpoint]) -> EndpointSlice:
    made = EndpointSlice(addressType=group.address_type, ports=[EndpointPort.FromString(port) for port in group.ports])
    made.metadata.generateName, made.metadata.namespace = f"{service.metadata.name}-", service.metadata.namespace
    made.metadata.ownerReferences.append(new_controller_ref(SERVICES, service))
    made.metadata.labels.update(_slice_labels(service))
    made.endpoints.extend(endpoints)
    return made


def _updated_slice(service: Service, each: EndpointSlice, endpoints: Sequence[Endpoint]) -> EndpointSlice:
    after = EndpointSlice()
    after.CopyFrom(each)
    del after.endpoints[:]
    after.endpoints.extend(endpoints)
    after.metadata.labels.clear()
    after.metadata.labels.update(_slice_labels(service))
    return after


def _slice_labels(service: Service) -> dict[str, str]:
    """Return the labels of a slice: the service's labels, and the labels that identify the service and this controller."""
    labels = {**service.metadata.labels, SERVICE_LABEL: service.metadata.name, MANAGED_BY_LABEL: MANAGER}
    labels.pop(HEADLESS_LABEL, None)
    if service.spec.clusterIP == "None":
        labels[HEADLESS_LABEL] = ""
    return labels


def service_key_of_slice(each: EndpointSlice) -> str:
    """Return the "namespace/name" of the slice's service for an index, or an empty string if another controller manages it."""
    labels = each.metadata.labels
    if labels.get(MANAGED_BY_LABEL) != MANAGER or not labels.get(SERVICE_LABEL):
        return ""
    return f"{each.metadata.namespace}/{labels[SERVICE_LABEL]}"


def service_selector(service: Service) -> LabelSelector:
    """Return the selector. A service without a selector selects no pods; its endpoints are managed elsewhere."""
    wanted = service.spec.selector
    return from_message(SelectorMessage(matchLabels=wanted)) if wanted else NOTHING


class EndpointSliceController:
    name = "endpointslice"
    workers = 8
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(ENDPOINT_SLICES)
        self._services = informers.store(SERVICES)
        self._selecting = informers.selecting(SERVICES, service_selector)
        self._pods = informers.labelled(PODS)
        self._pods_by_node = informers.index(PODS, pod_node_name)
        self._nodes = informers.store(NODES)
        self._slices = informers.index(ENDPOINT_SLICES, service_key_of_slice)
        self._expectations = Expectations(informers)
        self._missing_nodes: dict[str, set[str]] = {}
        """By service, the missing nodes of its selected pods."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(SERVICES, key_of_object),
            WatchedResource(PODS, self._keys_of_pod),
            WatchedResource(ENDPOINT_SLICES, _keys_of_slice),
            WatchedResource(NODES, self._keys_of_node),
        )

    async def sync(self, key: str) -> float | None:
        """Sync the slices of a service. The garbage collector deletes the slices of a deleted service."""
        await self._expectations.wait_until_met(key)
        self._missing_nodes.pop(key, None)
        service = self._services.get(key)
        if service is None or not service.spec.selector or service.spec.type == "ExternalName":
            return None
        if service.metadata.HasField("deletionTimestamp"):
            return None
        pods = self._select_reachable_pods(key, service)
        wanted = plan_slice_changes(
            service, group_endpoints(service, pods, self._zone_of_node), self._slices.under(key).values()
        )
        for endpoint_slice in wanted.create:
            await self._create_slice(key, endpoint_slice)
        for endpoint_slice in wanted.update:
            self._expect_write(key, await self._client.update(endpoint_slice))
        for endpoint_slice in wanted.delete:
            metadata = endpoint_slice.metadata
            try:
                self._expect_write(key, await self._client.delete(metadata.name, metadata.namespace, uid=metadata.uid))
            except NotFound:
                continue
        return None

    def _select_reachable_pods(self, key: str, service: Service) -> list[Pod]:
        """Return the selected pods without pods of missing nodes, whose state is unknown.

        A service with publishNotReadyAddresses includes them.
        """
        pods = self._pods.select(service.metadata.namespace, service_selector(service).matches)
        missed = {name for pod in pods if (name := pod.spec.nodeName) and name not in self._nodes}
        if not missed or service.spec.publishNotReadyAddresses:
            return pods
        self._missing_nodes[key] = missed
        return [pod for pod in pods if pod.spec.nodeName not in missed]

    async def _create_slice(self, key: str, each: EndpointSlice) -> None:
        try:
            self._expect_write(key, await self._client.create(each))
        except OutcomeUnknown:
            await self._expectations.expect_lost_write(key, self._client)
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                raise

    def _expect_write(self, key: str, stored: EndpointSlice) -> None:
        self._expectations.expect_version(key, ENDPOINT_SLICES, stored.metadata.resourceVersion)

    def _zone_of_node(self, node: str) -> str:
        result = self._nodes.get(node)
        return _node_zone(result) if result is not None else ""

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the services that select the pod now or before the change."""
        namespace, pods = delta.obj.metadata.namespace, [pod for pod in (delta.obj, delta.old) if pod is not None]
        return {
            store_key(service) for pod in pods for service in self._selecting.objects_selecting(namespace, pod.metadata.labels)
        }

    def _keys_of_node(self, delta: Delta[Node]) -> Iterable[str]:
        """Return the services to sync after a change of a node.

        An added node concerns the services that miss it. A changed node concerns services only if its zone changes.
        """
        name = delta.obj.metadata.name
        if delta.kind == ADDED:
            yield from [key for key, missed in self._missing_nodes.items() if name in missed]
        elif delta.kind == DELETED or (delta.old is not None and _node_zone(delta.old) != _node_zone(delta.obj)):
            for pod in self._pods_by_node.under(name).values():
                yield from self._keys_of_pod(Delta(DELETED, pod, None))


def _node_zone(node: Node) -> str:
    return node.metadata.labels.get(ZONE_LABEL, "")


def _keys_of_slice(delta: Delta[EndpointSlice]) -> Iterable[str]:
    """Return the service of the slice now and before the change. If the label is removed, the previous service lacks a
    slice."""
    return {
        key
        for endpoint_slice in (delta.obj, delta.old)
        if endpoint_slice is not None and (key := service_key_of_slice(endpoint_slice))
    }
