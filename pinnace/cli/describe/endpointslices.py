"""All about a slice of endpoints.

Source: kubectl, pkg/describe, EndpointSliceDescriber.
"""

from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Rows, Value
from pinnace.printers.services import UNSET


def describe(endpoint_slice: EndpointSlice) -> Fields:
    return {
        **head(endpoint_slice.metadata),
        "AddressType": endpoint_slice.addressType,
        "Ports": Rows(("Name", "Port", "Protocol"), [_port(port) for port in endpoint_slice.ports]),
        "Endpoints": {str(index): _endpoint(each) for index, each in enumerate(endpoint_slice.endpoints)},
    }


def _port(port: EndpointPort) -> tuple[str, str, str]:
    return port.name or UNSET, str(port.port) if port.HasField("port") else UNSET, port.protocol


def _endpoint(endpoint: Endpoint) -> Fields:
    ready = str(endpoint.conditions.ready).lower() if endpoint.conditions.HasField("ready") else UNSET
    fields: dict[str, Value] = {"Addresses": ", ".join(endpoint.addresses), "Ready": ready}
    target = endpoint.targetRef
    told = (
        ("Hostname", endpoint.hostname),
        ("TargetRef", f"{target.kind}/{target.name}" if target.name else ""),
        ("NodeName", endpoint.nodeName),
        ("Zone", endpoint.zone),
    )
    return fields | {label: text for label, text in told if text}
