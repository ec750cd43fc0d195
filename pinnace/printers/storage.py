"""The tables of services, endpoint slices, IP addresses, service CIDRs, volumes, claims, storage classes and CSI nodes.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Iterable, Mapping, Sequence

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, Service, ServicePort
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.networking_v1_pb2 import IPAddress, ServiceCIDR
from pinnace.api.pods import class_of
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.storage_v1_pb2 import CSINode, StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.printers.columns import NONE, Columns, format_age, format_labels, is_set


def service_row(service: Service, now: float) -> tuple[str, ...]:
    spec = service.spec
    return (
        service.metadata.name,
        spec.type,
        spec.clusterIP or NONE,
        external_addresses(service),
        ",".join(map(_format_port, spec.ports)) or NONE,
        format_age(service.metadata.creationTimestamp, now),
        format_labels(spec.selector) or NONE,
    )


SERVICES = Columns(
    headers=("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"),
    wide=("SELECTOR",),
    row=service_row,
)


def external_addresses(service: Service) -> str:
    """The external addresses of the service."""
    spec = service.spec
    match spec.type:
        case "ExternalName":
            return spec.externalName
        case "LoadBalancer":
            balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
            return ",".join((*balanced, *spec.externalIPs)) or "<pending>"
        case _:
            return ",".join(spec.externalIPs) or NONE


def _format_port(port: ServicePort) -> str:
    """ "80/TCP", "80:30080/TCP"."""
    return f"{port.port}{f':{port.nodePort}' if port.nodePort else ''}/{port.protocol}"


def ip_address_row(address: IPAddress, now: float) -> tuple[str, ...]:
    parent = address.spec.parentRef
    kind = f"{parent.group}.{parent.resource}" if parent.group else parent.resource
    reference = "/".join(filter(None, (kind, parent.namespace, parent.name)))
    return (address.metadata.name, reference or NONE, format_age(address.metadata.creationTimestamp, now))


IP_ADDRESSES = Columns(headers=("NAME", "PARENTREF", "AGE"), wide=(), row=ip_address_row)


def service_cidr_row(cidr: ServiceCIDR, now: float) -> tuple[str, ...]:
    return (cidr.metadata.name, ",".join(cidr.spec.cidrs), format_age(cidr.metadata.creationTimestamp, now))


SERVICE_CIDRS = Columns(headers=("NAME", "CIDRS", "AGE"), wide=(), row=service_cidr_row)

_SHOWN = 3
UNSET = "<unset>"


def endpoint_slice_row(endpoint_slice: EndpointSlice, now: float) -> tuple[str, ...]:
    addresses = [address for endpoint in endpoint_slice.endpoints for address in endpoint.addresses]
    ports = [str(port.port) if port.HasField("port") else "*" for port in endpoint_slice.ports]
    return (
        endpoint_slice.metadata.name,
        endpoint_slice.addressType,
        join_first(ports),
        join_first(addresses),
        format_age(endpoint_slice.metadata.creationTimestamp, now),
    )


ENDPOINT_SLICES = Columns(
    headers=("NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"),
    wide=(),
    row=endpoint_slice_row,
)


def join_first(texts: Sequence[str]) -> str:
    """ "a,b,c + 2 more..."."""
    shown, more = ",".join(texts[:_SHOWN]) or UNSET, len(texts) - _SHOWN
    return f"{shown} + {more} more..." if more > 0 else shown


UNSET_FIELD = "<unset>"
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def format_access_modes(modes: Iterable[str]) -> str:
    """ "RWO,ROX", in kubectl's order."""
    given = set(modes)
    return ",".join(short for mode, short in _SHORT.items() if mode in given)


def format_storage_size(amounts: Mapping[str, Quantity]) -> str:
    """The size of storage; empty if unknown."""
    return amounts["storage"].string if "storage" in amounts else ""


def object_phase(metadata: ObjectMeta, word: str) -> str:
    return "Terminating" if is_set(metadata.deletionTimestamp) else word


def volume_row(volume: PersistentVolume, now: float) -> tuple[str, ...]:
    spec, claim = volume.spec, volume.spec.claimRef
    return (
        volume.metadata.name,
        format_storage_size(spec.capacity),
        format_access_modes(spec.accessModes),
        spec.persistentVolumeReclaimPolicy,
        object_phase(volume.metadata, volume.status.phase),
        f"{claim.namespace}/{claim.name}" if claim.name else "",
        class_of(volume),
        spec.volumeAttributesClassName or UNSET_FIELD,
        volume.status.reason,
        format_age(volume.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET_FIELD,
    )


PERSISTENT_VOLUMES = Columns(
    headers=(
        "NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS",
        "REASON", "AGE",
    ),
    wide=("VOLUMEMODE",),
    row=volume_row,
)  # fmt: skip


def claim_row(claim: PersistentVolumeClaim, now: float) -> tuple[str, ...]:
    spec, status = claim.spec, claim.status
    bound = bool(spec.volumeName)
    return (
        claim.metadata.name,
        object_phase(claim.metadata, status.phase),
        spec.volumeName,
        format_storage_size(status.capacity) if bound else "",
        format_access_modes(status.accessModes) if bound else "",
        class_of(claim),
        spec.volumeAttributesClassName or UNSET_FIELD,
        format_age(claim.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET_FIELD,
    )


PERSISTENT_VOLUME_CLAIMS = Columns(
    headers=("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "AGE"),
    wide=("VOLUMEMODE",),
    row=claim_row,
)


def storage_class_row(storage_class: StorageClass, now: float) -> tuple[str, ...]:
    meta = storage_class.metadata
    return (
        f"{meta.name} (default)" if meta.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true" else meta.name,
        storage_class.provisioner,
        storage_class.reclaimPolicy or "Delete",
        storage_class.volumeBindingMode or "Immediate",
        "true" if storage_class.allowVolumeExpansion else "false",
        format_age(meta.creationTimestamp, now),
    )


STORAGE_CLASSES = Columns(
    headers=("NAME", "PROVISIONER", "RECLAIMPOLICY", "VOLUMEBINDINGMODE", "ALLOWVOLUMEEXPANSION", "AGE"),
    wide=(),
    row=storage_class_row,
)


def csi_node_row(node: CSINode, now: float) -> tuple[str, ...]:
    return node.metadata.name, str(len(node.spec.drivers)), format_age(node.metadata.creationTimestamp, now)


CSI_NODES = Columns(headers=("NAME", "DRIVERS", "AGE"), wide=(), row=csi_node_row)
