"""Services in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printService.
"""

from pinnace.api.core_v1_pb2 import Service, ServicePort
from pinnace.printers.ages import since
from pinnace.printers.columns import NONE, Columns, format_labels


def row(service: Service, now: float) -> tuple[str, ...]:
    spec = service.spec
    return (
        service.metadata.name,
        spec.type,
        spec.clusterIP or NONE,
        external(service),
        ",".join(map(_port, spec.ports)) or NONE,
        since(service.metadata.creationTimestamp, now),
        format_labels(spec.selector) or NONE,
    )


COLUMNS = Columns(
    headers=("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"),
    wide=("SELECTOR",),
    row=row,
)


def external(service: Service) -> str:
    """How the service is reached from outside."""
    spec = service.spec
    match spec.type:
        case "ExternalName":
            return spec.externalName
        case "LoadBalancer":
            balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
            return ",".join((*balanced, *spec.externalIPs)) or "<pending>"
        case _:
            return ",".join(spec.externalIPs) or NONE


def _port(port: ServicePort) -> str:
    """ "80/TCP", "80:30080/TCP"."""
    return f"{port.port}{f':{port.nodePort}' if port.nodePort else ''}/{port.protocol}"
