"""The endpoints of services that webhooks name: a ready endpoint of the service's EndpointSlices, chosen at random.

The API server connects to the endpoint itself, so webhooks need no service proxy. A service with the type ExternalName is its
external name.

Source: pkg/util/proxy of k8s.io/apiserver (ResolveEndpoint), with the messages of Kubernetes 1.36.
"""

import random
from collections.abc import Iterator

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import ENDPOINT_SLICES, SERVICES
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.webhooks.client import NoEndpoint, ServiceTarget


class EndpointResolver:
    def __init__(self, services: ResourceCache[Service], slices: ResourceCache[EndpointSlice], rng: random.Random) -> None:
        self._services = services
        self._slices = slices
        self._rng = rng

    def resolve(self, target: ServiceTarget) -> tuple[str, int]:
        """Return the host and port of an endpoint. Raises NoEndpoint."""
        entry = self._services.get(SERVICES.key(target.namespace, target.name))
        if entry is None:
            raise NoEndpoint(f'service "{target.name}" not found')
        service = entry.obj
        if service.spec.type == "ExternalName":
            return service.spec.externalName, target.port
        port = next((port for port in service.spec.ports if port.port == target.port), None)
        if port is None:
            raise NoEndpoint(f'no service port {target.port} found for service "{target.name}"')
        endpoints = list(self._ready_endpoints(target, port.name))
        if not endpoints:
            raise NoEndpoint(f'no endpoints available for service "{target.name}"')
        return self._rng.choice(endpoints)

    def _ready_endpoints(self, target: ServiceTarget, port_name: str) -> Iterator[tuple[str, int]]:
        selection = SelectionPredicate.parse(ENDPOINT_SLICES, target.namespace, f"{SERVICE_LABEL}={target.name}", "")
        for entry in self._slices.select(selection):
            endpoint_slice: EndpointSlice = entry.obj
            ports = [port.port for port in endpoint_slice.ports if port.name == port_name and port.HasField("port")]
            for endpoint in endpoint_slice.endpoints:
                if ports and endpoint.addresses and (endpoint.conditions.ready or not endpoint.conditions.HasField("ready")):
                    yield endpoint.addresses[0], ports[0]
