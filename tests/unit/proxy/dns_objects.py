"""Objects of a small cluster for DNS."""

from collections.abc import Iterable, Mapping

from pinnace.api.core_v1_pb2 import Namespace, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.informer import Delta
from pinnace.proxy.dns_records import AddressIndex, Resolver
from pinnace.proxy.plan import service_key_of_slice
from tests.unit.proxy.objects import make_service, make_slice

PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]


class Objects:
    synced = True
    namespaces: Mapping[str, Namespace] = {name: Namespace() for name in ("default", "empty")}

    def __init__(self) -> None:
        listed = [
            make_service("web", ports=PORTS),
            make_service("db", clusterIP="None", ports=PORTS),
            make_service("out", clusterIP="", type="ExternalName", externalName="example.org"),
            make_service("six", clusterIP="fd00::1", clusterIPs=["fd00::1", "127.250.0.6"]),
            make_service("big", clusterIP="None"),
            make_service("huge", clusterIP="None"),
            make_service("idle", clusterIP="None", ports=PORTS),
            make_service("alias", clusterIP="", type="ExternalName", externalName="web.default.svc.cluster.local."),
            make_service("loop", clusterIP="", type="ExternalName", externalName="loop.default.svc.cluster.local"),
        ]
        self.services: Mapping[str, Service] = {f"default/{item.metadata.name}": item for item in listed}
        self.slices = [
            make_slice({"ip": "127.0.0.2"}, service="web", ports=PORTS),
            make_slice(
                {"ip": "127.0.0.3", "hostname": "db-0"},
                {"ip": "127.0.0.4"},
                {"ip": "127.0.0.5", "ready": False},
                service="db", name="db-1", ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
            ),
            make_slice(*({"ip": f"127.1.0.{number}"} for number in range(60)), service="big", name="big-1"),
            make_slice(
                *({"ip": f"127.2.{number // 250}.{number % 250}"} for number in range(5_000)), service="huge", name="huge-1"
            ),
            make_slice({"ip": "127.0.0.7", "ready": False}, service="idle", name="idle-1", ports=PORTS),
        ]  # fmt: skip
        self.index = AddressIndex()
        self.index.follow_services([Delta(ADDED, item, None) for item in listed])
        self.index.follow_slices([Delta(ADDED, slice_, None) for slice_ in self.slices])

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        return {slice_.metadata.uid: slice_ for slice_ in self.slices if service_key_of_slice(slice_) == service}

    def services_with_address(self, address: str) -> Iterable[str]:
        return self.index.names_of_address(address)


RESOLVER = Resolver(Objects(), "cluster.local", ("127.0.0.1", 6443))
