"""The wire format of DNS: parses queries and encodes answers.

A query comes from anybody. Its sections are counted before anything else is read, its options are not parsed, and a compressed
name is accepted only where a record is skipped. So the cost of a query is constant, and the cost of an answer is linear in the
records that fit into it: the encoder stops at the size limit.

Source: RFC 1035, RFC 6891 (EDNS). https://github.com/miekg/dns has the rules of acceptance and truncation that CoreDNS uses.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pinnace.proxy.limits import DNS_MAX_QUERY, DNS_MAX_RECORDS

UDP_SIZE = 512
MAX_UDP_SIZE = 1232
"""Bytes of a datagram that is not fragmented. Source: https://www.dnsflagday.net/2020/"""
MAX_SIZE = 65_535
"""Bytes of a message over TCP."""
IN, ANY_CLASS = 1, 255

_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_DESIRED, _CHECKING_DISABLED = 0x8000, 0x0400, 0x0200, 0x0100, 0x0010
_OPCODE = 0x7800
_DNSSEC_OK = 0x8000
_POINTER = 0xC000
_MAX_NAME, _MAX_LABEL = 255, 63


class RecordType(IntEnum):
    """Types of records."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33
    OPT = 41
    IXFR = 251
    AXFR = 252
    ANY = 255


class Rcode(IntEnum):
    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


@dataclass(frozen=True, slots=True)
class Edns:
    """The OPT record of a query. `size`: the bytes of a datagram that the client accepts."""

    size: int
    version: int
    dnssec: bool


@dataclass(frozen=True, slots=True)
class DnsQuery:
    """`error`: the answer to a query without a valid question or OPT record."""

    id: int
    flags: int
    labels: tuple[str, ...] = ()
    """The name in lower case."""
    kind: int = 0
    klass: int = IN
    question: bytes = b""
    """The question section as the client sent it."""
    edns: Edns | None = None
    error: Rcode = Rcode.NOERROR


class DnsRecord(NamedTuple):
    """`data`: the record's data before `target`, a name that ends it, such as that of SRV. Names have no final dot."""

    name: str
    kind: RecordType
    data: bytes = b""
    target: str | None = None


def parse_query(message: bytes) -> DnsQuery | None:
    """Parse a query. Return None for a message that gets no answer, because it is no query."""
    if len(message) < _HEADER.size:
        return None
    identity, flags, *counts = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        return None
    if flags & _OPCODE:
        return DnsQuery(identity, flags, error=Rcode.NOTIMP)
    if counts[0] != 1 or any(count > most for count, most in zip(counts, DNS_MAX_RECORDS, strict=True)):
        return DnsQuery(identity, flags, error=Rcode.FORMERR)
    if len(message) > DNS_MAX_QUERY:
        return DnsQuery(identity, flags, error=Rcode.FORMERR)
    try:
        return _parse_sections(identity, flags, message, sum(counts[1:]))
    except (IndexError, struct.error, ValueError):
        return DnsQuery(identity, flags, error=Rcode.FORMERR)


def _parse_sections(identity: int, flags: int, message: bytes, records: int) -> DnsQuery:
    """Raises IndexError, struct.error, ValueError."""
    labels, at = _parse_name(message, _HEADER.size)
    kind, klass = struct.unpack_from("!HH", message, at)
    at += 4
    question = message[_HEADER.size : at]
    edns: Edns | None = None
    for _ in range(records):
        root = message[at] == 0
        at = _skip_name(message, at)
        record, size, extended, length = _RECORD.unpack_from(message, at)
        at += _RECORD.size + length
        if at > len(message):
            raise ValueError("a record exceeds the message")
        if record == RecordType.OPT:
            if edns is not None or not root:
                raise ValueError("more than one OPT record, or one with a name")
            edns = Edns(size, extended >> 16 & 0xFF, bool(extended & _DNSSEC_OK))
    return DnsQuery(
        identity, flags, labels, kind, klass, question, edns, Rcode.BADVERS if edns and edns.version else Rcode.NOERROR
    )


def _parse_name(message: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """Parse a name that is not compressed. Return its labels and the offset behind it."""
    labels: list[str] = []
    start = at
    while length := message[at]:
        if length > _MAX_LABEL or at + length - start > _MAX_NAME:
            raise ValueError("invalid name")
        labels.append(message[at + 1 : at + 1 + length].decode("latin-1").lower())
        at += 1 + length
    return tuple(labels), at + 1


def _skip_name(message: bytes, at: int) -> int:
    while length := message[at]:
        if length >= _POINTER >> 8:
            return at + 2
        at += 1 + length
    return at + 1


def encode_answer(
    query: DnsQuery,
    rcode: Rcode,
    answers: Sequence[DnsRecord] = (),
    authority: Sequence[DnsRecord] = (),
    additional: Sequence[DnsRecord] = (),
    *,
    ttl: int,
    datagram: bool,
) -> bytes:
    """Encode the answer to a query. `ttl`: seconds. `datagram`: limit it to the size that the client accepts.

    If not all records fit, the answer has the records that do, and TC. Then the client asks again over TCP.
    """
    opt = b"" if query.edns is None else _encode_opt(query.edns, rcode)
    size = MAX_SIZE
    if datagram:
        size = max(UDP_SIZE, min(query.edns.size if query.edns is not None else UDP_SIZE, MAX_UDP_SIZE))
    out = bytearray(_HEADER.size) + query.question
    offsets = {".".join(query.labels): _HEADER.size} if not any("." in label for label in query.labels) else {}
    counts, truncated = [0, 0, 0], False
    for section, records in enumerate((answers, authority, additional)):
        for record in records:
            encoded = _encode_record(record, len(out), offsets, ttl)
            if len(out) + len(encoded) + len(opt) > size:
                truncated = True
                break
            out += encoded
            counts[section] += 1
        if truncated:
            break
    flags = _RESPONSE | query.flags & (_OPCODE | _RECURSION_DESIRED | _CHECKING_DISABLED) | rcode & 0xF
    if rcode in (Rcode.NOERROR, Rcode.NXDOMAIN):
        flags |= _AUTHORITATIVE
    if truncated:
        flags |= _TRUNCATED
    _HEADER.pack_into(out, 0, query.id, flags, 1 if query.question else 0, counts[0], counts[1], counts[2] + bool(opt))
    return bytes(out + opt)


def _encode_opt(edns: Edns, rcode: Rcode) -> bytes:
    extended = rcode >> 4 << 24 | (_DNSSEC_OK if edns.dnssec else 0)
    return b"\0" + _RECORD.pack(RecordType.OPT, MAX_UDP_SIZE, extended, 0)


def _encode_record(record: DnsRecord, at: int, offsets: dict[str, int], ttl: int) -> bytes:
    """Encode a record for this offset. A name that is known is a pointer, and a target becomes known."""
    known = offsets.get(record.name)
    name = encode_name(record.name) if known is None else (_POINTER | known).to_bytes(2, "big")
    data = record.data
    if record.target is not None:
        target_at = at + len(name) + _RECORD.size + len(data)
        if target_at < _POINTER ^ 0xFFFF:
            offsets.setdefault(record.target, target_at)
        data += encode_name(record.target)
    return name + _RECORD.pack(record.kind, IN, ttl, len(data)) + data


def encode_name(name: str) -> bytes:
    return _encode_labels(name.split(".")) if name else b"\0"


def _encode_labels(labels: Iterable[str]) -> bytes:
    parts = [label.encode("latin-1")[:_MAX_LABEL] for label in labels]
    return b"".join(bytes((len(part),)) + part for part in parts) + b"\0"
