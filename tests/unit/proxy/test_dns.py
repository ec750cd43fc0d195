"""Names and answers, compared with those of CoreDNS' plugin `kubernetes`. dnslib parses the answers."""

import struct

import pytest
from dnslib import EDNS0, QTYPE, RCODE, DNSBuffer, DNSHeader, DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.proxy.dns import answer_query
from pinnace.proxy.dns_message import encode_name
from pinnace.proxy.dns_records import TTL, AddressIndex
from tests.unit.proxy.dns_objects import RESOLVER
from tests.unit.proxy.objects import make_service, make_slice


def ask(name: str, kind: str = "A") -> DNSRecord:
    return parsed(DNSRecord.question(name, kind).pack())


def parsed(query: bytes, *, limit: bool = True) -> DNSRecord:
    answer = answer_query(RESOLVER, query, limit=limit)
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
                "0 50 8080 db-0.db.default.svc.cluster.local.",
                "0 50 8080 127-0-0-4.db.default.svc.cluster.local.",
            ],
        ),
        ("1.0.250.127.in-addr.arpa", "PTR", ["web.default.svc.cluster.local."]),
        ("3.0.0.127.in-addr.arpa", "PTR", ["db-0.db.default.svc.cluster.local."]),
        ("dns-version.cluster.local", "TXT", ['"1.1.0"']),
        ("default.svc.cluster.local", "A", []),
        ("empty.svc.cluster.local", "A", []),
        ("127-0-0-2.web.default.svc.cluster.local", "A", ["127.0.0.2"]),
        ("_http._tcp.web.default.svc.cluster.local", "A", ["127.250.0.1"]),
        ("alias.default.svc.cluster.local", "A", ["web.default.svc.cluster.local.", "127.250.0.1"]),
        ("loop.default.svc.cluster.local", "A", ["loop.default.svc.cluster.local."] * 8),
        ("kubernetes.default.svc.cluster.local", "A", ["127.0.0.1"]),
        ("_https._tcp.kubernetes.default.svc.cluster.local", "SRV", ["0 100 6443 kubernetes.default.svc.cluster.local."]),
        ("10-0-0-1.default.pod.cluster.local", "A", ["10.0.0.1"]),
        ("10-0-0-1.empty.pod.cluster.local", "A", ["10.0.0.1"]),
        ("fd00--1.default.pod.cluster.local", "AAAA", ["fd00::1"]),
        ("fd00--1.default.pod.cluster.local", "A", []),
        ("default.pod.cluster.local", "A", []),
    ],
)
def test_records_of_services_and_endpoints(name: str, kind: str, expected: list[str]) -> None:
    answer = ask(name, kind)
    assert answer.header.rcode == RCODE.NOERROR and answer.header.aa
    assert sorted(str(item.rdata) for item in answer.rr) == sorted(expected)
    assert all(item.ttl == TTL for item in answer.rr)
    if not expected:
        assert [QTYPE[item.rtype] for item in answer.auth] == ["SOA"]


@pytest.mark.parametrize(
    "name",
    [
        "none.default.svc.cluster.local",
        "web.none.svc.cluster.local",
        "none.svc.cluster.local",
        "a.web.default.svc.cluster.local",
        "127-0-0-5.db.default.svc.cluster.local",  # not ready
        "127-0-0-3.db.default.svc.cluster.local",  # it has a hostname
        "idle.default.svc.cluster.local",  # headless, and no endpoint is ready
        "10-0-0-1.none.pod.cluster.local",
        "10-0-0-256.default.pod.cluster.local",
        "web.default.pod.cluster.local",
        "a.10-0-0-1.default.pod.cluster.local",
        "a.b.c.web.default.svc.cluster.local",
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
    assert [str(item.rdata) for item in ask("_http._tcp.db.default.svc.cluster.local", "SRV").ar] == ["127.0.0.3", "127.0.0.4"]


def test_srv_records_name_the_port_and_share_the_weight() -> None:
    assert [str(item.rdata) for item in ask("web.default.svc.cluster.local", "SRV").rr] == [
        "0 100 80 web.default.svc.cluster.local."
    ]
    assert str(ask("big.default.svc.cluster.local", "SRV").rr[0].rdata) == "0 1 8080 127-1-0-0.big.default.svc.cluster.local."


def test_truncated_answer_keeps_the_question_and_the_records_that_fit() -> None:
    """Without the question, glibc, Go and c-ares drop the answer and never ask over TCP."""
    name = "big.default.svc.cluster.local"
    answer = ask(name)
    assert answer.header.tc and [str(item.qname) for item in answer.questions] == [f"{name}."]
    assert 0 < len(answer.rr) < 60
    large = DNSRecord.question(name)
    large.add_ar(EDNS0(udp_len=4096))
    assert len(parsed(large.pack()).rr) == 60
    whole = parsed(DNSRecord.question(name).pack(), limit=False)
    assert len(whole.rr) == 60 and not whole.header.tc


def test_answer_over_tcp_is_truncated_to_what_a_length_can_say() -> None:
    answer = parsed(DNSRecord.question("huge.default.svc.cluster.local").pack(), limit=False)
    assert answer.header.tc and 4_000 < len(answer.rr) < 5_000


@pytest.mark.parametrize("name", ["web.default.svc.cluster.local", "none.default.svc.cluster.local", "example.org"])
def test_answer_has_an_opt_record_if_the_query_has_one(name: str) -> None:
    assert ask(name).ar == []
    query = DNSRecord.question(name)
    query.add_ar(EDNS0(flags="do", udp_len=4096))
    (opt,) = parsed(query.pack()).ar
    assert opt.rtype == QTYPE.OPT and opt.edns_len == 1232 and opt.edns_do and not opt.edns_ver


def test_unknown_version_of_edns_is_refused() -> None:
    query = DNSRecord.question("web.default.svc.cluster.local")
    query.add_ar(EDNS0(version=1, udp_len=4096))
    answer = parsed(query.pack())
    (opt,) = answer.ar
    assert (answer.header.rcode, opt.edns_rcode, opt.edns_ver, answer.rr) == (0, 1, 0, [])


def test_flags_of_the_answer_are_those_of_a_server_without_recursion() -> None:
    query = DNSRecord.question("web.default.svc.cluster.local")
    query.header.bitmap |= 0x0370  # TC, RD, Z, AD, CD
    header = parsed(query.pack()).header
    assert (header.aa, header.tc, header.rd, header.ra, header.z, header.ad, header.cd) == (1, 0, 1, 0, 0, 0, 1)


def question(name: str = "web.default.svc.cluster.local", kind: int = 1, klass: int = 1) -> bytes:
    return encode_name(name) + struct.pack("!HH", kind, klass)


def message(*counts: int, flags: int = 0, body: bytes = b"") -> bytes:
    return struct.pack("!6H", 7, flags, *counts) + body


OPT = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)


@pytest.mark.parametrize(
    ("query", "rcode"),
    [
        (message(0, 0, 0, 0), RCODE.FORMERR),
        (message(2, 0, 0, 0, body=question() * 2), RCODE.FORMERR),
        (message(1, 0, 0, 3, body=question() + OPT * 3), RCODE.FORMERR),
        (message(1, 0, 0, 2, body=question() + OPT * 2), RCODE.FORMERR),
        (message(1, 0, 0, 1, body=question()), RCODE.FORMERR),
        (message(1, 2, 0, 0, body=question()), RCODE.FORMERR),
        (message(1, 0, 0, 0, body=b"\xc0\x0c\0\1\0\1"), RCODE.FORMERR),
        (message(1, 0, 0, 0, body=b"\x40" + b"a" * 64 + b"\0\0\1\0\1"), RCODE.FORMERR),
        (message(1, 0, 0, 0, body=(b"\x3f" + b"a" * 63) * 5 + b"\0\0\1\0\1"), RCODE.FORMERR),
        (message(1, 0, 0, 0, body=b"\x05abc"), RCODE.FORMERR),
        (message(1, 0, 0, 5_900, body=question() + OPT * 5_900), RCODE.FORMERR),
        (
            message(1, 0, 0, 1, body=question() + b"\0" + struct.pack("!HHIH", 41, 1232, 0, 60_000) + bytes(60_000)),
            RCODE.FORMERR,
        ),
        (message(1, 0, 0, 0, flags=0x2800, body=question()), RCODE.NOTIMP),
        (message(1, 0, 0, 0, body=question(klass=3)), RCODE.REFUSED),
        (message(1, 0, 0, 0, body=question("cluster.local", kind=252)), RCODE.REFUSED),
        (message(1, 0, 0, 0, body=b"\x0bweb.default\3svc\7cluster\5local\0\0\1\0\1"), RCODE.NXDOMAIN),
        (message(1, 0, 0, 0, body=b"\x02\xff\x2f" + question("default.svc.cluster.local")), RCODE.NXDOMAIN),
    ],
)
def test_hostile_queries_get_an_error(query: bytes, rcode: int) -> None:
    answer = answer_query(RESOLVER, query, limit=True)
    assert answer is not None
    header = DNSHeader.parse(DNSBuffer(answer))
    assert header.rcode == rcode and header.id == 7 and header.qr


@pytest.mark.parametrize("query", [b"", b"\0" * 5, message(1, 0, 0, 0, flags=0x8000, body=question())])
def test_messages_that_are_no_queries_get_no_answer(query: bytes) -> None:
    assert answer_query(RESOLVER, query, limit=True) is None


@given(st.binary(max_size=80), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_any_message_is_answered_or_ignored(body: bytes, counts: list[int]) -> None:
    answer = answer_query(RESOLVER, message(*counts, body=body), limit=True)
    assert answer is not None and len(answer) <= 1232


def test_index_follows_changes() -> None:
    index, old, new = AddressIndex(), make_service("a"), make_service("a", clusterIP="127.250.0.2")
    index.follow_services([Delta(ADDED, old, None)])
    index.follow_services([Delta(MODIFIED, new, old)])
    assert list(index.names_of_address("127.250.0.1")) == [] and list(index.names_of_address("127.250.0.2")) == ["default/a"]
    one, two = make_slice({"ip": "1"}, service="a"), make_slice({"ip": "1"}, service="a", name="two")
    index.follow_slices([Delta(ADDED, one, None), Delta(ADDED, two, None), Delta(DELETED, one, one)])
    assert list(index.names_of_address("1")) == ["default/a"]
    index.follow_slices([Delta(DELETED, two, two)])
    assert list(index.names_of_address("1")) == []
