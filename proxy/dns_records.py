"""The DNS records of a cluster, computed from the informers' objects at each query, as by CoreDNS' plugin `kubernetes`.

    web.default.svc.cluster.local              A    cluster IP; of a headless service, the addresses of its ready endpoints
                                               SRV  all ports
    _http._tcp.web.default.svc.cluster.local   SRV  one port; of a headless service, one record for each endpoint
    web-0.web.default.svc.cluster.local        A    an endpoint, by its hostname, or without one by its address with dashes
    kubernetes.default.svc.cluster.local       A    the gateway, if no such service exists
    10-0-0-1.default.pod.cluster.local         A    10.0.0.1, whether or not there is such a pod (CoreDNS: `pods insecure`)
    1.0.250.127.in-addr.arpa                   PTR  the name of a service or endpoint

A service of type ExternalName has a CNAME, and the records of its target if that is in the domain. Names that do not exist get
NXDOMAIN, existing names without such a record get an empty answer, both with a SOA record for TTL seconds. A headless service
without ready endpoints does not exist. Names outside the domain are refused: the server does not forward queries.

Source: https://github.com/kubernetes/dns/blob/master/docs/specification.md and
https://github.com/coredns/coredns/tree/master/plugin/kubernetes
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any, NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Namespace, Service
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointSlice
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta
from pinnace.proxy.dns_message import DnsRecord, Rcode, RecordType, encode_name
from pinnace.proxy.limits import DNS_CNAMES

TTL = 5
"""Seconds, as CoreDNS' default."""
_SOA_TIMES = (1, 7200, 1800, 86400, TTL)
"""Serial, refresh, retry, expire, minimum."""
_GATEWAY = "default/kubernetes"


class DnsSource(Protocol):
    """The objects. The DNS server reads them in its own thread while another thread replaces them: it gets single objects, and
    copies a mapping at once, which the interpreter does without an interruption."""

    @property
    def services(self) -> Mapping[str, Service]:
        """By "namespace/name"."""
        ...

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """By name."""
        ...

    @property
    def synced(self) -> bool: ...

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        """The slices of "namespace/name" by UID."""
        ...

    def services_with_address(self, address: str) -> Iterable[str]:
        """The keys of the services that have this address, or an endpoint with it."""
        ...


@dataclass(slots=True)
class AddressIndex:
    """The services by address, and by the addresses of their endpoints."""

    _names: dict[str, dict[str, int]] = field(default_factory=dict)

    def names_of_address(self, address: str) -> Iterable[str]:
        return tuple(self._names.get(address, ()))

    def follow_services(self, deltas: Sequence[Delta[Service]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            self._update_addresses(delta, _service_addresses)

    def follow_slices(self, deltas: Sequence[Delta[EndpointSlice]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            self._update_addresses(delta, _slice_addresses)

    def _update_addresses(self, delta: Delta[Any], addresses: Any) -> None:
        if delta.old is not None:
            for name, address in addresses(delta.old):
                counts = self._names[address]
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]
                if not counts:
                    del self._names[address]
        if delta.kind != DELETED:
            for name, address in addresses(delta.obj):
                counts = self._names.setdefault(address, {})
                counts[name] = counts.get(name, 0) + 1


def _service_addresses(service: Service) -> Iterator[tuple[str, str]]:
    for address in _cluster_ips(service):
        yield f"{service.metadata.namespace}/{service.metadata.name}", address


def _slice_addresses(part: EndpointSlice) -> Iterator[tuple[str, str]]:
    if name := part.metadata.labels.get("kubernetes.io/service-name", ""):
        for endpoint in part.endpoints:
            for address in endpoint.addresses:
                yield f"{part.metadata.namespace}/{name}", address


def _cluster_ips(service: Service) -> list[str]:
    addresses = dict.fromkeys((service.spec.clusterIP, *service.spec.clusterIPs))
    return [address for address in addresses if address not in ("", "None")]


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """`extra`: records of the additional section."""

    rcode: Rcode = Rcode.NOERROR
    records: Sequence[DnsRecord] = ()
    extra: Sequence[DnsRecord] = ()


NOTHING = DnsAnswer(Rcode.NXDOMAIN)
EMPTY = DnsAnswer()


class _Backend(NamedTuple):
    """An address and port behind a name. `name`: the name that SRV records have for it. `port` is 0 if it has none."""

    address: str
    port: int
    name: str


class Resolver:
    """Answers questions about one domain, such as "cluster.local"."""

    def __init__(self, source: DnsSource, domain: str, gateway: tuple[str, int] | None = None) -> None:
        """`gateway`: the address of the Kubernetes API."""
        self._source = source
        self.domain = domain.strip(".").lower()
        self._zone = tuple(self.domain.split("."))
        self._gateway = _gateway_service(*gateway) if gateway is not None else None

    @property
    def authority(self) -> DnsRecord:
        """The SOA record of the domain."""
        names = encode_name(f"ns.dns.{self.domain}") + encode_name(f"hostmaster.{self.domain}")
        return DnsRecord(self.domain, RecordType.SOA, names + b"".join(value.to_bytes(4, "big") for value in _SOA_TIMES))

    def answer(self, labels: Sequence[str], kind: int) -> DnsAnswer:
        """Return the records of a name, which is in lower case."""
        if not self._source.synced:
            return DnsAnswer(Rcode.SERVFAIL)
        if labels[-1:] == ("arpa",):
            return self._resolve_address(labels, kind)
        if not self._name_exists(labels) or kind in (RecordType.AXFR, RecordType.IXFR):
            return DnsAnswer(Rcode.REFUSED)
        return self._resolve_name(labels, kind, DNS_CNAMES)

    def _name_exists(self, labels: Sequence[str]) -> bool:
        return tuple(labels[-len(self._zone) :]) == self._zone

    def _resolve_name(self, labels: Sequence[str], kind: int, names: int) -> DnsAnswer:
        name, rest = ".".join(labels), tuple(labels[: -len(self._zone)])
        if rest == ("dns-version",):
            return (
                DnsAnswer(records=[DnsRecord(name, RecordType.TXT, b"\x051.1.0")])
                if kind in (RecordType.TXT, RecordType.ANY)
                else EMPTY
            )
        if not rest:
            return DnsAnswer(records=[self.authority]) if kind in (RecordType.SOA, RecordType.ANY) else EMPTY
        *prefix, branch = rest
        if branch not in ("svc", "pod"):
            return NOTHING
        if not prefix:
            return EMPTY
        if len(prefix) == 1:
            return EMPTY if prefix[-1] in self._source.namespaces else NOTHING
        return self._resolve_service(name, prefix, kind, names) if branch == "svc" else self._resolve_pod(name, prefix, kind)

    def _resolve_pod(self, name: str, labels: Sequence[str], kind: int) -> DnsAnswer:
        """Names of pods contain the address, so that no pod is looked up."""
        dashed, namespace = labels[0], labels[-1]
        dots = dashed.count("-") == 3 and "--" not in dashed
        try:
            address = ip_address(dashed.replace("-", "." if dots else ":"))
        except ValueError:
            return NOTHING
        if len(labels) > 2 or namespace not in self._source.namespaces:
            return NOTHING
        return DnsAnswer(records=_address_records(name, [str(address)], kind))

    def _resolve_service(self, name: str, labels: Sequence[str], kind: int, names: int) -> DnsAnswer:
        *prefix, service_name, namespace = labels
        key = f"{namespace}/{service_name}"
        service = self._source.services.get(key) or (self._gateway if key == _GATEWAY else None)
        if service is None or len(prefix) > 2:
            return NOTHING
        if service.spec.type == "ExternalName":
            return self._resolve_external_name(name, service, kind, names) if len(prefix) != 1 else NOTHING
        port, protocol = (part.removeprefix("_") for part in prefix) if len(prefix) == 2 else ("", "")
        if len(prefix) == 1 or service.spec.clusterIP == "None":
            endpoint = prefix[0] if len(prefix) == 1 else ""
            backends = list(self._resolve_endpoints(key, endpoint, port, protocol))
        else:
            backends = [
                _Backend(address, service_port.port, self._service_name(key))
                for service_port in service.spec.ports
                if _matches_port(service_port, port, protocol)
                for address in _cluster_ips(service)
            ]
        if not backends:
            return NOTHING
        records = _address_records(name, (backend.address for backend in backends), kind)
        if kind not in (RecordType.SRV, RecordType.ANY):
            return DnsAnswer(records=records)
        weight = max(1, 100 // len(backends)).to_bytes(2, "big")
        targets = dict.fromkeys((backend.name, backend.port) for backend in backends if backend.port)
        records += [
            DnsRecord(name, RecordType.SRV, b"\0\0" + weight + port.to_bytes(2, "big"), target) for target, port in targets
        ]
        extra = dict.fromkeys((backend.name, backend.address) for backend in backends if backend.port)
        return DnsAnswer(
            records=records,
            extra=[one for target, address in extra for one in _address_records(target, [address], RecordType.ANY)],
        )

    def _resolve_external_name(self, name: str, service: Service, kind: int, names: int) -> DnsAnswer:
        target = service.spec.externalName.rstrip(".").lower()
        if _is_address(target):
            return NOTHING
        records = [DnsRecord(name, RecordType.CNAME, target=target)]
        labels = tuple(target.split("."))
        if kind != RecordType.CNAME and self._name_exists(labels) and names > 1:
            more = self._resolve_name(labels, kind, names - 1)
            return DnsAnswer(records=[*records, *more.records], extra=more.extra)
        return DnsAnswer(records=records)

    def _resolve_endpoints(self, key: str, hostname: str, port: str, protocol: str) -> Iterator[_Backend]:
        """Yield the ready endpoints of a service. Empty arguments match all."""
        for part in tuple(self._source.slices_of(key).values()):
            ports = [endpoint_port.port for endpoint_port in part.ports if _matches_port(endpoint_port, port, protocol)]
            if not part.ports and not port:
                ports = [0]
            for endpoint in part.endpoints if ports else ():
                if not _is_ready(endpoint):
                    continue
                for address in endpoint.addresses:
                    name = endpoint.hostname or _address_label(address)
                    if hostname in ("", name):
                        yield from (_Backend(address, number, f"{name}.{self._service_name(key)}") for number in ports)

    def _resolve_address(self, labels: Sequence[str], kind: int) -> DnsAnswer:
        address = _parse_reverse_name(labels)
        if address is None:
            return NOTHING
        targets: dict[str, None] = {}
        for key in self._source.services_with_address(address):
            service = self._source.services.get(key)
            if service is None:
                continue
            if address in _cluster_ips(service):
                targets[self._service_name(key)] = None
            elif service.spec.clusterIP == "None":
                targets |= {
                    endpoint.name: None for endpoint in self._resolve_endpoints(key, "", "", "") if endpoint.address == address
                }
        if not targets:
            return NOTHING
        name = ".".join(labels)
        return (
            DnsAnswer(records=[DnsRecord(name, RecordType.PTR, target=target) for target in targets])
            if kind in (RecordType.PTR, RecordType.ANY)
            else EMPTY
        )

    def _service_name(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{name}.{namespace}.svc.{self.domain}"


def _gateway_service(host: str, port: int) -> Service:
    service = Service()
    service.spec.clusterIP = host
    service.spec.ports.add(name="https", protocol="TCP", port=port)
    return service


def _matches_port(port: Any, name: str, protocol: str) -> bool:
    """Compare a port of a service or slice. Empty arguments match all."""
    return name in ("", port.name.lower()) and protocol in ("", (port.protocol or "TCP").lower())


def _is_ready(endpoint: Endpoint) -> bool:
    return endpoint.conditions.ready if endpoint.conditions.HasField("ready") else True


def _address_label(address: str) -> str:
    return address.replace(".", "-").replace(":", "-")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _address_records(name: str, addresses: Iterable[str], kind: int) -> list[DnsRecord]:
    """Return A and AAAA records without duplicates."""
    records = []
    for address in dict.fromkeys(addresses):
        record_kind, family = (RecordType.AAAA, AF_INET6) if ":" in address else (RecordType.A, AF_INET)
        if kind in (RecordType.ANY, record_kind):
            records.append(DnsRecord(name, record_kind, inet_pton(family, address)))
    return records


def _parse_reverse_name(labels: Sequence[str]) -> str | None:
    parts = list(reversed(labels[:-2]))
    try:
        if labels[-2:] == ("in-addr", "arpa"):
            return str(ip_address(".".join(parts)))
        if labels[-2:] == ("ip6", "arpa") and len(parts) == 32:
            return str(IPv6Address(int("".join(parts), 16)))
    except ValueError:
        return None
    return None
