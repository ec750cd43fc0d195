"""DNS for services: a server for the cluster's domain. Records are computed from the informers at each query.

    web.default.svc.cluster.local              A    cluster IP; of a headless service, the addresses of its ready endpoints
    _http._tcp.web.default.svc.cluster.local   SRV  port and name; of a headless service, one record for each endpoint
    web-0.web.default.svc.cluster.local        A    an endpoint, by its hostname or by its address with dashes
    1.0.250.127.in-addr.arpa                   PTR  the name of a service or endpoint

A service of type ExternalName has a CNAME. Names that do not exist get NXDOMAIN, existing names without such a record get an
empty answer, both with a SOA record for TTL seconds. Names outside the domain are refused: the server does not forward queries.

Source: https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

import asyncio
import logging
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Protocol, cast

from dnslib import AAAA, CLASS, CNAME, PTR, QTYPE, RCODE, RR, SOA, SRV, TXT, A, DNSError, DNSHeader, DNSRecord
from prometheus_client import Counter

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointSlice
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta
from proxy.plan import Frontend

log = logging.getLogger(__name__)

TTL = 5
"""Seconds, as CoreDNS' default."""
UDP_SIZE = 512
MAX_UDP_SIZE = 1232
"""The size of a datagram that is not fragmented. Source: https://www.dnsflagday.net/2020/"""
TCP_TIMEOUT = 10.0
"""Seconds within which a client must send a query."""
MAX_TCP = 100
QUERIES = Counter("pinnace_proxy_dns_queries", "Number of DNS queries by response code.", ("rcode",))


class Source(Protocol):
    """The objects."""

    @property
    def services(self) -> Mapping[str, Service]:
        """By "namespace/name"."""
        ...

    @property
    def synced(self) -> bool: ...

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        """The slices of "namespace/name" by UID."""
        ...

    def names_of(self, address: str) -> Iterable[str]:
        """The keys of the services that have this address, or an endpoint with it."""
        ...


@dataclass(slots=True)
class AddressIndex:
    """The services by address, and by the addresses of their endpoints."""

    _names: dict[str, dict[str, int]] = field(default_factory=dict)

    def names(self, address: str) -> Iterable[str]:
        return self._names.get(address, ())

    def follow_services(self, deltas: Sequence[Delta[Service]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            self._change(delta, _service_addresses)

    def follow_slices(self, deltas: Sequence[Delta[EndpointSlice]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            self._change(delta, _slice_addresses)

    def _change(self, delta: Delta[Any], addresses: Any) -> None:
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


def _slice_addresses(each: EndpointSlice) -> Iterator[tuple[str, str]]:
    if name := each.metadata.labels.get("kubernetes.io/service-name", ""):
        for endpoint in each.endpoints:
            for address in endpoint.addresses:
                yield f"{each.metadata.namespace}/{name}", address


def _cluster_ips(service: Service) -> list[str]:
    found = dict.fromkeys((service.spec.clusterIP, *service.spec.clusterIPs))
    return [each for each in found if each not in ("", "None")]


@dataclass(frozen=True, slots=True)
class Answer:
    """`records`: name and data. `extra`: records of the additional section."""

    rcode: int = RCODE.NOERROR
    records: Sequence[tuple[str, Any]] = ()
    extra: Sequence[tuple[str, Any]] = ()


NOTHING = Answer(RCODE.NXDOMAIN)
EMPTY = Answer()


class Resolver:
    """Answers questions about one domain, such as "cluster.local"."""

    def __init__(self, source: Source, domain: str) -> None:
        self._source = source
        self.domain = domain.strip(".").lower()
        self._zone = tuple(self.domain.split("."))

    def answer(self, name: str, kind: str) -> Answer:
        """Return the records of a name, for example kind "A". Names are case-insensitive."""
        if not self._source.synced:
            return Answer(RCODE.SERVFAIL)
        labels = tuple(name.rstrip(".").lower().split("."))
        if labels[-1:] == ("arpa",):
            return self._reverse(labels, kind)
        if labels[-len(self._zone) :] != self._zone:
            return Answer(RCODE.REFUSED)
        rest = labels[: -len(self._zone)]
        if rest == ("dns-version",):
            return Answer(records=[(name, TXT("1.1.0"))]) if kind in ("TXT", "ANY") else EMPTY
        if not rest or rest == ("svc",):
            return EMPTY
        if rest[-1] != "svc":
            return NOTHING
        return self._service(name, rest[:-1], kind)

    def _service(self, name: str, labels: Sequence[str], kind: str) -> Answer:
        if len(labels) == 1:
            return EMPTY if any(key.startswith(f"{labels[0]}/") for key in self._source.services) else NOTHING
        *prefix, service_name, namespace = labels
        key = f"{namespace}/{service_name}"
        service = self._source.services.get(key)
        if service is None:
            return NOTHING
        full = self._name(key)
        if service.spec.type == "ExternalName":
            return Answer(records=[(name, CNAME(service.spec.externalName))]) if not prefix else NOTHING
        headless = service.spec.clusterIP == "None"
        if not prefix:
            found = [each for one in self._endpoints(key) for each in one.addresses] if headless else _cluster_ips(service)
            return Answer(records=_addresses(name, dict.fromkeys(found), kind))
        if len(prefix) == 2 and prefix[0].startswith("_") and prefix[1].startswith("_"):
            return self._srv(name, service, full, prefix[0][1:], prefix[1][1:], kind)
        if len(prefix) == 1 and headless:
            found = [each for one in self._endpoints(key) if prefix[0] in _hostnames(one) for each in one.addresses]
            return Answer(records=_addresses(name, dict.fromkeys(found), kind)) if found else NOTHING
        return NOTHING

    def _srv(self, name: str, service: Service, full: str, port: str, protocol: str, kind: str) -> Answer:
        key = f"{service.metadata.namespace}/{service.metadata.name}"
        records: list[tuple[str, Any]] = []
        extra: list[tuple[str, Any]] = []
        if service.spec.clusterIP != "None":
            for each in service.spec.ports:
                if each.name.lower() == port and (each.protocol or "TCP").lower() == protocol:
                    records.append((name, SRV(0, 100, each.port, full)))
                    extra += _addresses(full, _cluster_ips(service), "ANY")
        else:
            for part in self._source.slices_of(key).values():
                for number in part.ports:
                    if number.name.lower() != port or (number.protocol or "TCP").lower() != protocol:
                        continue
                    for endpoint in part.endpoints:
                        if _ready(endpoint):
                            target = f"{_hostnames(endpoint)[0]}.{full}"
                            records.append((name, SRV(0, 100, number.port, target)))
                            extra += _addresses(target, endpoint.addresses, "ANY")
        if not records:
            return NOTHING
        return Answer(records=records, extra=extra) if kind in ("SRV", "ANY") else EMPTY

    def _reverse(self, labels: Sequence[str], kind: str) -> Answer:
        address = _reversed(labels)
        if address is None:
            return NOTHING
        name = ".".join(labels)
        found: list[tuple[str, Any]] = []
        for key in self._source.names_of(address):
            service = self._source.services.get(key)
            if service is None:
                continue
            if address in _cluster_ips(service):
                found.append((name, PTR(self._name(key))))
            elif service.spec.clusterIP == "None":
                found += [
                    (name, PTR(f"{_hostnames(each)[0]}.{self._name(key)}"))
                    for each in self._endpoints(key)
                    if address in each.addresses
                ]
        if not found:
            return NOTHING
        return Answer(records=found) if kind in ("PTR", "ANY") else EMPTY

    def _name(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{name}.{namespace}.svc.{self.domain}"

    def _endpoints(self, key: str) -> Iterator[Endpoint]:
        for each in self._source.slices_of(key).values():
            yield from filter(_ready, each.endpoints)


def _ready(endpoint: Endpoint) -> bool:
    return endpoint.conditions.ready if endpoint.conditions.HasField("ready") else True


def _hostnames(endpoint: Endpoint) -> list[str]:
    """Return the names of an endpoint. Records that refer to it use the first one."""
    dashed = [each.replace(".", "-").replace(":", "-") for each in endpoint.addresses]
    return [endpoint.hostname, *dashed] if endpoint.hostname else dashed


def _addresses(name: str, addresses: Iterable[str], kind: str) -> list[tuple[str, Any]]:
    found = [(ip_address(each).version, each) for each in addresses]
    return [
        (name, A(each) if version == 4 else AAAA(each))
        for version, each in found
        if kind in ("ANY", "A" if version == 4 else "AAAA")
    ]


def _reversed(labels: Sequence[str]) -> str | None:
    parts = list(reversed(labels[:-2]))
    try:
        if labels[-2:] == ("in-addr", "arpa"):
            return str(ip_address(".".join(parts)))
        if labels[-2:] == ("ip6", "arpa"):
            return str(ip_address(":".join("".join(parts[at : at + 4]) for at in range(0, 32, 4))))
    except ValueError:
        return None
    return None


def respond(resolver: Resolver, query: bytes, *, limit: bool) -> bytes | None:
    """Return the response to a query, or None if it is no query. `limit`: truncate it to the size that a datagram may have."""
    try:
        request = DNSRecord.parse(query)
    except (DNSError, ValueError, IndexError, UnicodeError):
        if len(query) < 12 or query[2] & 0x80:
            return None
        QUERIES.labels("FORMERR").inc()
        return bytes(DNSRecord(DNSHeader(id=int.from_bytes(query[:2], "big"), qr=1, rcode=RCODE.FORMERR)).pack())
    if request.header.qr:
        return None
    reply = request.reply(ra=0, aa=1)
    if request.header.opcode != 0 or len(request.questions) != 1:
        reply.header.rcode = RCODE.NOTIMP if request.header.opcode != 0 else RCODE.FORMERR
    else:
        question = request.questions[0]
        kind = QTYPE.get(question.qtype, "")
        found = resolver.answer(str(question.qname), kind)
        reply.header.rcode = found.rcode
        for name, data in found.records:
            reply.add_answer(_record(name, data))
        for name, data in found.extra:
            reply.add_ar(_record(name, data))
        if not found.records and found.rcode in (RCODE.NOERROR, RCODE.NXDOMAIN):
            zone = resolver.domain
            times = (1, 7200, 1800, 86400, TTL)  # serial, refresh, retry, expire, minimum
            reply.add_auth(_record(zone, SOA(f"ns.dns.{zone}", f"hostmaster.{zone}", times)))
    QUERIES.labels(RCODE.get(reply.header.rcode, "OTHER")).inc()
    packed = bytes(reply.pack())
    if limit:
        sizes = [each.edns_len for each in request.ar if each.rtype == QTYPE.OPT]
        if len(packed) > max(UDP_SIZE, min(sizes[0] if sizes else UDP_SIZE, MAX_UDP_SIZE)):
            return bytes(reply.truncate().pack())
    return packed


def _record(name: str, data: Any) -> Any:
    return RR(name, getattr(QTYPE, type(data).__name__), CLASS.IN, TTL, data)


def _frontends(host: str, port: int) -> tuple[Frontend, Frontend]:
    return Frontend(host, port, "UDP"), Frontend(host, port, "TCP")


def _descriptor(transport: asyncio.DatagramTransport) -> int:
    return int(transport.get_extra_info("socket").fileno())


class DnsServer:
    """Serves a resolver over UDP and TCP."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None
        self._open = 0
        self._descriptors: dict[Frontend, int] = {}

    @property
    def descriptors(self) -> dict[Frontend, int]:
        """The descriptors of the listening sockets."""
        return self._descriptors

    async def start(self, host: str, port: int, inherited: dict[Frontend, socket.socket] | None = None) -> None:
        """`inherited`: see Userspace. Raises OSError."""
        loop = asyncio.get_running_loop()
        sockets = inherited if inherited is not None else {}
        udp, tcp = (sockets.pop(each, None) for each in _frontends(host, port))
        try:
            self._udp, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self._resolver),
                **({"sock": udp} if udp is not None else {"local_addr": (host, port), "reuse_port": True}),
            )
            where = {"sock": tcp} if tcp is not None else {"host": host, "port": port, "reuse_port": True}
            self._tcp = await asyncio.start_server(self._serve, **where)
            self._descriptors = dict(
                zip(_frontends(host, port), (_descriptor(self._udp), self._tcp.sockets[0].fileno()), strict=True)
            )
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --dns") from None

    def stop(self) -> None:
        self._descriptors = {}
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            while self._open <= MAX_TCP:
                async with asyncio.timeout(TCP_TIMEOUT):
                    size = int.from_bytes(await reader.readexactly(2), "big")
                    answer = respond(self._resolver, await reader.readexactly(size), limit=False)
                    if answer is None:
                        return
                    writer.write(len(answer).to_bytes(2, "big") + answer)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open -= 1
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = respond(self._resolver, data, limit=True)
        if answer is not None:
            with suppress(OSError):
                self._transport.sendto(answer, addr)
