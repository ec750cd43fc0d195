"""Conversion between the types of the storage interface and etcd's messages, and classification of etcd's errors.

The conversions are pure functions on the path of every write. This is the only module that reads etcd's error texts.

Sources: etcd's api/v3rpc/rpctypes/error.go (the texts, which are the same in 3.4, 3.5 and 3.6) and
server/etcdserver/v3_server.go (errors before the proposal to raft: the request did not happen and will not).
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import grpc
from aetcd.rpc import Compare, TxnRequest

from pinnace.apiserver.storage.interface import (
    Committed,
    CompareFailed,
    Guard,
    KeyChange,
    KeyValue,
    LeaseNotFound,
    OutOfSpace,
    StorageError,
    TooLarge,
    Write,
)

_CREATE: int = Compare.CompareTarget.Value("CREATE")
_MOD: int = Compare.CompareTarget.Value("MOD")

ALL_KEYS = b"\0"
"""As key and range_end: all keys."""

NEVER_LEFT = ("failed to connect to all addresses", "DNS resolution failed")
"""Prefixes of gRPC's error when there was no connection for the request."""
NOT_PROPOSED = ("etcdserver: no leader", "etcdserver: not capable", "etcdserver: too many requests")
TRANSIENT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
TOO_LARGE = (
    "etcdserver: request is too large",
    "etcdserver: too many operations in txn request",
    "grpc: received message larger than max",
)


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all keys that start with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else ALL_KEYS


def compared_keys(writes: Iterable[Write]) -> list[str]:
    """Return all keys that the transaction compares, in the order of its failure branch: written keys first."""
    keys = {write.key: None for write in writes}
    for write in writes:
        for guard in write.guards:
            keys[guard.key] = None
    return list(keys)


def encode_transaction(writes: Sequence[Write]) -> Any:
    """Return a transaction that runs all writes if all compares hold, and otherwise reads all compared keys.

    The fields are set in place, which takes a third of the time of nested constructors, which copy (1.4 against 5.2 us per
    write).
    """
    request = TxnRequest()
    add_compare, add_success, add_failure = request.compare.add, request.success.add, request.failure.add
    guards: set[Guard] = set()
    for write in writes:
        key = write.key.encode()
        compare = add_compare()
        compare.target, compare.key, compare.mod_revision = _MOD, key, write.expected
        add_failure().request_range.key = key
        if write.value is None:
            add_success().request_delete_range.key = key
        else:
            put = add_success().request_put
            put.key = key
            put.value = write.value
            if write.lease:
                put.lease = write.lease
            elif write.expected:
                put.ignore_lease = True
        guards.update(write.guards)
    for guard in guards:
        if guard.mod_revision:  # a mod_revision belongs to one version, so it also implies the create_revision
            add_compare(target=_MOD, key=guard.key.encode(), mod_revision=guard.mod_revision)
        else:
            add_compare(target=_CREATE, key=guard.key.encode(), create_revision=guard.create_revision)
    for compared in compared_keys(writes)[len(writes) :]:
        add_failure().request_range.key = compared.encode()
    return request


def decode_transaction(response: Any, writes: Sequence[Write]) -> Committed | CompareFailed:
    if response.succeeded:
        return Committed(response.header.revision)
    current = (decode_first(answer.response_range) for answer in response.responses)
    return CompareFailed(response.header.revision, dict(zip(compared_keys(writes), current, strict=True)))


def decode_first(response: Any) -> KeyValue | None:
    return decode_key_value(response.kvs[0]) if response.kvs else None


def decode_key_value(kv: Any) -> KeyValue:
    return KeyValue(_decode_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def decode_event(event: Any) -> KeyChange:
    kv = event.kv
    if event.type:  # DELETE
        return KeyChange(_decode_text(kv.key), None, 0, kv.mod_revision)
    return KeyChange(_decode_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _decode_text(key: bytes) -> str:
    """Decode a key. The watch covers all keys, and other programs may have written keys that are not UTF-8."""
    return key.decode(errors="replace")


class MemberFailure(Enum):
    """Failures of a member that do not depend on the request."""

    NOT_DONE = "the member did not accept the request: try another member"
    LOST = "the response is lost: the request may have happened, or may still happen"


class RevisionCompacted(Exception):
    """A read or a compaction at a compacted revision. etcd does not report the oldest remaining revision."""


def classify_error(error: grpc.aio.AioRpcError) -> MemberFailure | StorageError | RevisionCompacted:
    """Return a Trouble, or the exception to raise."""
    text = error.details() or ""
    if text.startswith(NEVER_LEFT) or text in NOT_PROPOSED:
        return MemberFailure.NOT_DONE
    match text:
        case "etcdserver: mvcc: database space exceeded":
            return OutOfSpace("etcd is out of space; compact and defragment it, or raise --quota-backend-bytes")
        case "etcdserver: mvcc: required revision has been compacted":
            return RevisionCompacted()
        case "etcdserver: requested lease not found":
            return LeaseNotFound("the lease has expired or was revoked")
    if text.startswith(TOO_LARGE):
        return TooLarge(f"{text}; check --max-request-bytes and --max-txn-ops of etcd: the defaults or more are required")
    if error.code() in TRANSIENT:
        return MemberFailure.LOST
    return StorageError(describe_rpc_error(error))


def describe_rpc_error(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
