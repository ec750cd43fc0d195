"""The endpoint slice controller."""

from collections.abc import Iterable, Sequence
from typing import Any

from controllers.controller import Shared, Watch, itself
from controllers.endpointslices.endpoints import grouped
from controllers.endpointslices.slices import MANAGED_BY_LABEL, MANAGER, changes
from controllers.expectations import Expectations
from controllers.places import node_of
from controllers.workqueue import MAX_BACKOFF
from pinnace.api.core_v1_pb2 import Node, Pod, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.meta_v1_pb2 import LabelSelector as SelectorMessage
from pinnace.api.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES, store_key
from pinnace.api.selectors import NOTHING, LabelSelector, from_message
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.api.wellknown import SERVICE_LABEL, ZONE_LABEL
from pinnace.client.errors import ApiError, NotFound, OutcomeUnknown
from pinnace.client.informer import Delta


def service_of(each: EndpointSlice) -> str:
    """For an index: "namespace/name" of the service whose slice it is; empty: it is not managed here."""
    labels = each.metadata.labels
    if labels.get(MANAGED_BY_LABEL) != MANAGER or not labels.get(SERVICE_LABEL):
        return ""
    return f"{each.metadata.namespace}/{labels[SERVICE_LABEL]}"


def selector_of(service: Service) -> LabelSelector:
    """A service without a selector has its endpoints from elsewhere."""
    wanted = service.spec.selector
    return from_message(SelectorMessage(matchLabels=wanted)) if wanted else NOTHING


class EndpointSliceController:
    name = "endpointslice"
    workers = 8
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        informers = shared.informers
        self._client = shared.client.of(ENDPOINT_SLICES)
        self._services = informers.store(SERVICES)
        self._selecting = informers.selecting(SERVICES, selector_of)
        self._pods = informers.labelled(PODS)
        self._bound = informers.index(PODS, node_of)
        self._nodes = informers.store(NODES)
        self._slices = informers.index(ENDPOINT_SLICES, service_of)
        self._expectations = Expectations(informers)
        self._missed: dict[str, set[str]] = {}
        """By service: the nodes that are not there, of pods that it would have."""

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(SERVICES, itself),
            Watch(PODS, self._of_pod),
            Watch(ENDPOINT_SLICES, _of_slice),
            Watch(NODES, self._of_node),
        )

    async def sync(self, key: str) -> float | None:
        """The slices of a service that is gone are the garbage collector's."""
        await self._expectations.met(key)
        self._missed.pop(key, None)
        service = self._services.get(key)
        if service is None or not service.spec.selector or service.spec.type == "ExternalName":
            return None
        if service.metadata.HasField("deletionTimestamp"):
            return None
        pods = self._reachable(key, service)
        wanted = changes(service, grouped(service, pods, self._zone_of), self._slices.under(key).values())
        for each in wanted.create:
            await self._create(key, each)
        for each in wanted.update:
            self._wrote(key, await self._client.update(each))
        for each in wanted.delete:
            metadata = each.metadata
            try:
                self._wrote(key, await self._client.delete(metadata.name, metadata.namespace, uid=metadata.uid))
            except NotFound:
                continue
        return None

    def _reachable(self, key: str, service: Service) -> list[Pod]:
        """The pods that it selects, without those whose node is gone: nobody tells any more how they are. A service that
        publishes pods that are not ready has them all the same."""
        pods = self._pods.select(service.metadata.namespace, selector_of(service).matches)
        missed = {name for pod in pods if (name := pod.spec.nodeName) and name not in self._nodes}
        if not missed or service.spec.publishNotReadyAddresses:
            return pods
        self._missed[key] = missed
        return [pod for pod in pods if pod.spec.nodeName not in missed]

    async def _create(self, key: str, each: EndpointSlice) -> None:
        try:
            self._wrote(key, await self._client.create(each))
        except OutcomeUnknown:
            await self._expectations.lost(key, self._client)
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                raise

    def _wrote(self, key: str, stored: EndpointSlice) -> None:
        self._expectations.wrote(key, ENDPOINT_SLICES, stored.metadata.resourceVersion)

    def _zone_of(self, node: str) -> str:
        found = self._nodes.get(node)
        return _zone(found) if found is not None else ""

    def _of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """The services that select it now or did."""
        namespace, pods = delta.obj.metadata.namespace, [pod for pod in (delta.obj, delta.old) if pod is not None]
        return {store_key(each) for pod in pods for each in self._selecting.that_select(namespace, pod.metadata.labels)}

    def _of_node(self, delta: Delta[Node]) -> Iterable[str]:
        """Little where a term begins: the services are looked at then anyhow. A node that changes concerns services only if its
        zone does, which endpoints repeat."""
        name = delta.obj.metadata.name
        if delta.kind == ADDED:
            yield from [key for key, missed in self._missed.items() if name in missed]
        elif delta.kind == DELETED or (delta.old is not None and _zone(delta.old) != _zone(delta.obj)):
            for pod in self._bound.under(name).values():
                yield from self._of_pod(Delta(DELETED, pod, None))


def _zone(node: Node) -> str:
    return node.metadata.labels.get(ZONE_LABEL, "")


def _of_slice(delta: Delta[EndpointSlice]) -> Iterable[str]:
    """The service whose slice it is now, and the one whose it was: that one lacks it when its label is taken away."""
    return {key for each in (delta.obj, delta.old) if each is not None and (key := service_of(each))}
