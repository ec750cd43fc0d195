"""The environment variables of services, as of the start of a container.

For a service "web-1" with the address 10.96.0.7 and a port 80 named "http":

    WEB_1_SERVICE_HOST=10.96.0.7
    WEB_1_SERVICE_PORT=80                 the first port
    WEB_1_SERVICE_PORT_HTTP=80            each port with a name
    WEB_1_PORT=tcp://10.96.0.7:80         the first port
    WEB_1_PORT_80_TCP=tcp://10.96.0.7:80  each port, also _PROTO, _PORT and _ADDR

A container gets the variables of the services in its namespace, unless its pod has `enableServiceLinks: false`, and those of
the service `kubernetes` in the namespace `default`. Services without a cluster IP have none.

Source: pkg/kubelet/envvars and getServiceEnvVarMap in pkg/kubelet/kubelet_pods.go of Kubernetes 1.36.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from pinnace.api.core_v1_pb2 import Pod, Service
from pinnace.client.informer import Index, Informer
from pinnace.client.resource import ResourceClient
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

MASTER_NAMESPACE, MASTER_SERVICE = "default", "kubernetes"


class VariableSource(Protocol):
    """Returns the variables of the services for the containers of a pod."""

    def __call__(self, pod: Pod) -> Mapping[str, str]: ...


def no_services(pod: Pod) -> Mapping[str, str]:
    return {}


class ServiceVariables:
    """A copy of all services. Implements Variables."""

    def __init__(self, client: ResourceClient[Service], clock: Clock = SYSTEM_CLOCK) -> None:
        self._informer: Informer[Service] = Informer(client, clock=clock)
        self._by_namespace: Index[Service] = Index(lambda service: service.metadata.namespace)
        self._informer.add_handler(self._by_namespace.apply_deltas)
        self.run = self._informer.run

    @property
    def synced(self) -> bool:
        """The services have been read. Containers are not started before."""
        return bool(self._informer.revision)

    @property
    def healthy(self) -> str | None:
        return self._informer.healthy

    def __call__(self, pod: Pod) -> Mapping[str, str]:
        services = {}
        master = self._informer.store.get(f"{MASTER_NAMESPACE}/{MASTER_SERVICE}")
        if master is not None:
            services[MASTER_SERVICE] = master
        if pod.spec.enableServiceLinks or not pod.spec.HasField("enableServiceLinks"):
            services.update((item.metadata.name, item) for item in self._by_namespace.under(pod.metadata.namespace).values())
        return {name: value for _, service in sorted(services.items()) for name, value in variables_of(service)}


def variables_of(service: Service) -> Iterator[tuple[str, str]]:
    """Yield the variables of a service."""
    address, ports = service.spec.clusterIP, service.spec.ports
    if address in ("", "None") or service.spec.type == "ExternalName" or not ports:
        return
    prefix = _variable_name(service.metadata.name)
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0].port)
    for port in ports:
        if port.name:
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port.name)}", str(port.port)
    host = f"[{address}]" if ":" in address else address
    for index, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        url = f"{protocol.lower()}://{host}:{port.port}"
        if not index:
            yield f"{prefix}_PORT", url
        each = f"{prefix}_PORT_{port.port}_{protocol.upper()}"
        yield each, url
        yield f"{each}_PROTO", protocol.lower()
        yield f"{each}_PORT", str(port.port)
        yield f"{each}_ADDR", address


def _variable_name(name: str) -> str:
    return name.upper().replace("-", "_")
