"""Slices of endpoints in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printEndpointSlice.
"""

from collections.abc import Sequence

from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns

_SHOWN = 3
UNSET = "<unset>"


def row(endpoint_slice: EndpointSlice, now: float) -> tuple[str, ...]:
    addresses = [address for endpoint in endpoint_slice.endpoints for address in endpoint.addresses]
    ports = [str(port.port) if port.HasField("port") else "*" for port in endpoint_slice.ports]
    return (
        endpoint_slice.metadata.name,
        endpoint_slice.addressType,
        some(ports),
        some(addresses),
        since(endpoint_slice.metadata.creationTimestamp, now),
    )


COLUMNS = Columns(
    headers=("NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"),
    wide=(),
    row=row,
)


def some(texts: Sequence[str]) -> str:
    """ "a,b,c + 2 more..."."""
    shown, more = ",".join(texts[:_SHOWN]) or UNSET, len(texts) - _SHOWN
    return f"{shown} + {more} more..." if more > 0 else shown
