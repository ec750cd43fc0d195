import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from dnslib import QTYPE, RCODE, DNSRecord

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from proxy.dns import TTL, AddressIndex, DnsServer, Resolver, respond
from proxy.plan import service_of
from tests.conftest import free_port
from tests.unit.proxy.objects import make_service, make_slice

PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]


class Objects:
    synced = True

    def __init__(self) -> None:
        listed = [
            make_service("web", ports=PORTS),
            make_service("db", clusterIP="None", ports=PORTS),
            make_service("out", clusterIP="", type="ExternalName", externalName="example.org"),
            make_service("six", clusterIP="fd00::1", clusterIPs=["fd00::1", "127.250.0.6"]),
            make_service("big", clusterIP="None"),
        ]
        self.services: Mapping[str, Service] = {f"default/{each.metadata.name}": each for each in listed}
        self.slices = [
            make_slice({"ip": "127.0.0.2"}, service="web", ports=PORTS),
            make_slice(
                {"ip": "127.0.0.3", "hostname": "db-0"},
                {"ip": "127.0.0.4"},
                {"ip": "127.0.0.5", "ready": False},
                service="db", name="db-1", ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
            ),
            make_slice(*({"ip": f"127.1.0.{each}"} for each in range(100)), service="big", name="big-1"),
        ]  # fmt: skip
        self.index = AddressIndex()
        self.index.follow_services([Delta(ADDED, each, None) for each in listed])
        self.index.follow_slices([Delta(ADDED, each, None) for each in self.slices])

    def slices_of(self, service: str) -> Mapping[str, EndpointSlice]:
        return {each.metadata.uid: each for each in self.slices if service_of(each) == service}

    def names_of(self, address: str) -> Iterable[str]:
        return self.index.names(address)


OBJECTS = Objects()
RESOLVER = Resolver(OBJECTS, "cluster.local")


def ask(name: str, kind: str = "A") -> DNSRecord:
    answer = respond(RESOLVER, DNSRecord.question(name, kind).pack(), limit=True)
    assert answer is not None
    return DNSRecord.parse(answer)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("web.default.svc.cluster.local", "A", ["127.250.0.1"]),
        ("WEB.Default.svc.cluster.local.", "A", ["127.250.0.1"]),
        ("web.default.svc.cluster.local", "AAAA", []),
        ("six.default.svc.cluster.local", "AAAA", ["fd00::1"]),
        ("six.default.svc.cluster.local", "A", ["127.250.0.6"]),
        ("db.default.svc.cluster.local", "A", ["127.0.0.3", "127.0.0.4"]),
        ("db-0.db.default.svc.cluster.local", "A", ["127.0.0.3"]),
        ("127-0-0-4.db.default.svc.cluster.local", "A", ["127.0.0.4"]),
        ("out.default.svc.cluster.local", "A", ["example.org."]),
        ("_http._tcp.web.default.svc.cluster.local", "SRV", ["0 100 80 web.default.svc.cluster.local."]),
        (
            "_http._tcp.db.default.svc.cluster.local",
            "SRV",
            [
                "0 100 8080 db-0.db.default.svc.cluster.local.",
                "0 100 8080 127-0-0-4.db.default.svc.cluster.local.",
            ],
        ),
        ("1.0.250.127.in-addr.arpa", "PTR", ["web.default.svc.cluster.local."]),
        ("3.0.0.127.in-addr.arpa", "PTR", ["db-0.db.default.svc.cluster.local."]),
        ("dns-version.cluster.local", "TXT", ['"1.1.0"']),
        ("default.svc.cluster.local", "A", []),
    ],
)
def test_records_of_services_and_endpoints(name: str, kind: str, expected: list[str]) -> None:
    answer = ask(name, kind)
    assert answer.header.rcode == RCODE.NOERROR and answer.header.aa
    assert sorted(str(each.rdata) for each in answer.rr) == sorted(expected)
    assert all(each.ttl == TTL for each in answer.rr)
    if not expected:
        assert [QTYPE[each.rtype] for each in answer.auth] == ["SOA"]


@pytest.mark.parametrize(
    "name",
    [
        "none.default.svc.cluster.local",
        "web.none.svc.cluster.local",
        "none.svc.cluster.local",
        "a.web.default.svc.cluster.local",
        "127-0-0-5.db.default.svc.cluster.local",  # not ready
        "_http._udp.web.default.svc.cluster.local",
        "web.cluster.local",
        "9.0.0.127.in-addr.arpa",
        "2.0.0.127.in-addr.arpa",  # an endpoint of a service that is not headless
        "x.in-addr.arpa",
    ],
)
def test_unknown_names_get_nxdomain_with_a_short_ttl(name: str) -> None:
    answer = ask(name)
    assert answer.header.rcode == RCODE.NXDOMAIN
    assert answer.auth[0].ttl == TTL and answer.auth[0].rdata.times[-1] == TTL


def test_other_domains_are_refused() -> None:
    assert ask("example.org").header.rcode == RCODE.REFUSED


def test_srv_answers_contain_addresses() -> None:
    assert [str(each.rdata) for each in ask("_http._tcp.db.default.svc.cluster.local", "SRV").ar] == ["127.0.0.3", "127.0.0.4"]


def test_answers_that_exceed_a_datagram_are_truncated() -> None:
    assert ask("big.default.svc.cluster.local").header.tc
    whole = respond(RESOLVER, DNSRecord.question("big.default.svc.cluster.local").pack(), limit=False)
    assert whole is not None and len(DNSRecord.parse(whole).rr) == 100


@pytest.mark.parametrize("query", [b"", b"\0" * 5, b"\x12\x34" + b"\xff" * 40, bytes(100)])
def test_malformed_queries_are_answered_or_ignored(query: bytes) -> None:
    answer = respond(RESOLVER, query, limit=True)
    assert answer is None or DNSRecord.parse(answer).header.rcode in (RCODE.FORMERR, RCODE.NOTIMP)


def test_index_follows_changes() -> None:
    index, old, new = AddressIndex(), make_service("a"), make_service("a", clusterIP="127.250.0.2")
    index.follow_services([Delta(ADDED, old, None)])
    index.follow_services([Delta(MODIFIED, new, old)])
    assert list(index.names("127.250.0.1")) == [] and list(index.names("127.250.0.2")) == ["default/a"]
    one, two = make_slice({"ip": "1"}, service="a"), make_slice({"ip": "1"}, service="a", name="two")
    index.follow_slices([Delta(ADDED, one, None), Delta(ADDED, two, None), Delta(DELETED, one, one)])
    assert list(index.names("1")) == ["default/a"]
    index.follow_slices([Delta(DELETED, two, two)])
    assert list(index.names("1")) == []


async def test_udp_and_tcp_have_the_same_answers() -> None:
    server, port = DnsServer(RESOLVER), free_port()
    await server.start("127.0.0.1", port)
    query = DNSRecord.question("web.default.svc.cluster.local")
    try:
        for tcp in (False, True):
            raw: Any = await asyncio.to_thread(query.send, "127.0.0.1", port, tcp, 5)
            assert str(DNSRecord.parse(raw).rr[0].rdata) == "127.250.0.1"
    finally:
        server.stop()
