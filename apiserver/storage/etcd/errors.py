"""What went wrong, from what gRPC says. The only place where etcd's error texts are read.

Sources: etcd's api/v3rpc/rpctypes/error.go (the texts, the same in 3.4, 3.5 and 3.6) and server/etcdserver/v3_server.go (which
of them come before a request is proposed to raft: those did not happen, and will not).
"""

from enum import Enum

import grpc

from apiserver.storage.interface import LeaseNotFound, OutOfSpace, StorageError, TooLarge


class Trouble(Enum):
    """Failures of a member, not of the request."""

    NOT_DONE = "it did not take the request: try another member"
    LOST = "the answer is lost: the request may have been done, or may still be"


class RevisionCompacted(Exception):
    """A read or a compaction at a revision that is gone. etcd does not say which is the oldest one left."""


NEVER_LEFT = ("failed to connect to all addresses", "DNS resolution failed")
"""How gRPC begins when it had no connection to send the request on."""
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


def classify(error: grpc.aio.AioRpcError) -> Trouble | StorageError | RevisionCompacted:
    """A Trouble, or the exception to raise."""
    text = error.details() or ""
    if text.startswith(NEVER_LEFT) or text in NOT_PROPOSED:
        return Trouble.NOT_DONE
    match text:
        case "etcdserver: mvcc: database space exceeded":
            return OutOfSpace("etcd is out of space; compact and defragment it, or raise --quota-backend-bytes")
        case "etcdserver: mvcc: required revision has been compacted":
            return RevisionCompacted()
        case "etcdserver: requested lease not found":
            return LeaseNotFound("the lease has expired or was revoked")
    if text.startswith(TOO_LARGE):
        return TooLarge(f"{text}; does etcd run with less than its default --max-request-bytes or --max-txn-ops?")
    if error.code() in TRANSIENT:
        return Trouble.LOST
    return StorageError(describe(error))


def describe(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
