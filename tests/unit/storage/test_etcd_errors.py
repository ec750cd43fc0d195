"""etcd's texts. That etcd really says so is tested with a real one (tests/contract, tests/integration)."""

import grpc
import pytest
from grpc import StatusCode

from pinnace.apiserver.storage.etcd.codec import MemberFailure, RevisionCompacted, classify_error
from pinnace.apiserver.storage.interface import LeaseNotFound, OutOfSpace, StorageError, TooLarge


def error(code: StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: UNKNOWN: Connection refused"),
        (StatusCode.UNAVAILABLE, "DNS resolution failed for etcd:2379"),
        (StatusCode.UNAVAILABLE, "etcdserver: no leader"),
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
    ],
)
def test_errors_of_requests_that_were_not_done(code: StatusCode, text: str) -> None:
    assert classify_error(error(code, text)) is MemberFailure.NOT_DONE


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (StatusCode.UNAVAILABLE, "Socket closed"),
        (StatusCode.UNAVAILABLE, "keepalive watchdog timeout"),
        (StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
        (StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
        (StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (StatusCode.UNKNOWN, "context canceled"),
        (StatusCode.INTERNAL, "RST_STREAM"),
    ],
)
def test_errors_of_requests_with_unknown_outcome(code: StatusCode, text: str) -> None:
    assert classify_error(error(code, text)) is MemberFailure.LOST


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", OutOfSpace),
        (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", RevisionCompacted),
        (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", LeaseNotFound),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", TooLarge),
        (StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (2097255 vs. 2097152)", TooLarge),
        (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", StorageError),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", StorageError),
    ],
)
def test_errors_that_the_request_caused(code: StatusCode, text: str, kind: type[Exception]) -> None:
    assert type(classify_error(error(code, text))) is kind
