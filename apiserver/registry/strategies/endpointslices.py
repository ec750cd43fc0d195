"""Slices of endpoints: kept as they come."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.endpointslices import validate_slice, validate_slice_update
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.status import Violation


class EndpointSliceStrategy(Strategy[EndpointSlice]):
    def prepare_create(self, obj: EndpointSlice) -> None:
        _set_defaults(obj)

    def validate(self, obj: EndpointSlice) -> list[Violation]:
        return validate_slice(obj)

    def prepare_update(self, obj: EndpointSlice, old: EndpointSlice) -> None:
        _set_defaults(obj)

    def validate_update(self, obj: EndpointSlice, old: EndpointSlice) -> list[Violation]:
        return validate_slice_update(obj, old)


def _set_defaults(endpoint_slice: EndpointSlice) -> None:
    for port in endpoint_slice.ports:
        port.protocol = port.protocol or "TCP"
        if not port.HasField("name"):
            port.name = ""
