"""The errors of API calls.

    ApiError                    contains the server's Refusal: code, reason, message, violations
    +-- NotFound
    +-- AlreadyExists
    +-- Conflict                ABORTED: stale resourceVersion or failed precondition; read again and retry
    +-- Invalid                 INVALID_ARGUMENT: `violations` lists all invalid fields
    +-- Expired                 OUT_OF_RANGE: the revision or page token has been compacted; list again
    +-- FailedPrecondition      the call is not allowed in the current state; a retry does not help
    |   +-- Fenced              another leader has been elected; stop
    |   +-- HistoryChanged      etcd was restored from a backup: earlier state is invalid; start over
    +-- Forbidden
    +-- Unauthenticated
    +-- Exhausted               RESOURCE_EXHAUSTED: etcd out of space, message too large, disruption budget used up, or API
    |                           server out of memory
    +-- Unavailable             no server is reachable, or the server cannot serve now; the call had no effect
    |   +-- Timeout             the deadline passed without a response to a read, or before the call was sent
    |   +-- OutcomeUnknown      a write was sent and its response lost: it may have succeeded; read before you retry
    +-- Unimplemented           no reachable API server implements the method: all are older than this client
    +-- Internal                a bug in the server or this library, or a malformed response

`from_rpc` converts gRPC errors to these classes.
"""

from collections.abc import Collection, Sequence

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from pinnace.api.status import DETAILS_KEY, Code, Refusal, Violation, decode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import REQUEST_ID_KEY

_NO_CONNECTION = "failed to connect to all addresses"
"""The start of gRPC's message if it had no connection for a call, because the server had closed it. Calls that were sent fail
with other messages.

Source: https://github.com/grpc/grpc/issues/20217 (the log contains "LB pick returned TRANSIENT_FAILURE" for such a call)
"""

STORAGE_UNAVAILABLE = "StorageUnavailable"
"""The reason in the refusal of a server that cannot reach etcd."""
_CORE_ERROR = "Internal error from Core"
"""The status that grpc.aio (1.8x) sets if a message is written to a stream that the server has just ended. The status from the
server is lost."""


class ApiError(Exception):
    """The base class of all errors of API calls."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.request_id = ""
        """The ID of the request in the API server's logs, or "" if it is unknown: for items of a batch, and if no server
        responded."""
        self.warnings: Sequence[str] = ()
        """The warnings of the refused call."""
        self.in_doubt = False
        """Whether the response to an earlier attempt was lost. That attempt may have had an effect that caused this error."""

    @property
    def code(self) -> Code:
        return self.refusal.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as "NamespaceNotFound", or "" if no API server responded."""
        return self.refusal.reason

    @property
    def message(self) -> str:
        return self.refusal.message

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.refusal.violations

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the call is retried. If it is set, the call had no effect: the response confirms this, or the
        call was not sent."""
        return self.refusal.retry_after

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self.refusal.metadata


class NotFound(ApiError):
    pass


class AlreadyExists(ApiError):
    pass


class Conflict(ApiError):
    pass


class Invalid(ApiError):
    pass


class Expired(ApiError):
    pass


class FailedPrecondition(ApiError):
    pass


class Fenced(FailedPrecondition):
    pass


class HistoryChanged(FailedPrecondition):
    pass


class Forbidden(ApiError):
    pass


class Unauthenticated(ApiError):
    pass


class Exhausted(ApiError):
    pass


class Unavailable(ApiError):
    pass


class Timeout(Unavailable):
    pass


class OutcomeUnknown(Unavailable):
    pass


class Unimplemented(ApiError):
    pass


class Internal(ApiError):
    pass


_BY_CODE: dict[Code, type[ApiError]] = {
    Code.INVALID_ARGUMENT: Invalid,
    Code.DEADLINE_EXCEEDED: Timeout,
    Code.NOT_FOUND: NotFound,
    Code.ALREADY_EXISTS: AlreadyExists,
    Code.PERMISSION_DENIED: Forbidden,
    Code.RESOURCE_EXHAUSTED: Exhausted,
    Code.FAILED_PRECONDITION: FailedPrecondition,
    Code.ABORTED: Conflict,
    Code.OUT_OF_RANGE: Expired,
    Code.UNIMPLEMENTED: Unimplemented,
    Code.UNAVAILABLE: Unavailable,
    Code.UNAUTHENTICATED: Unauthenticated,
}


def from_status(status: status_pb2.Status) -> ApiError:
    """Return the error for a Status of a call or of an item of a batch."""
    return from_refusal(decode(status))


def error_of(item: BatchItem) -> ApiError | None:
    """Return the error of an item of a batch, or None if the item succeeded."""
    return from_status(item.error) if item.HasField("error") else None


def from_refusal(refusal: Refusal) -> ApiError:
    if refusal.code is Code.UNAVAILABLE and refusal.reason == "OutcomeUnknown":
        return OutcomeUnknown(refusal)
    if refusal.code is Code.FAILED_PRECONDITION and refusal.reason == "Fenced":
        return Fenced(refusal)
    if refusal.code is Code.FAILED_PRECONDITION and refusal.reason == "HistoryChanged":
        return HistoryChanged(refusal)
    return _BY_CODE.get(refusal.code, Internal)(refusal)


def from_rpc(error: grpc.aio.AioRpcError) -> ApiError:
    """Return the error of a failed call, from the server's details or, if there are none, from gRPC's status."""
    trailers = error.trailing_metadata() or grpc.aio.Metadata()
    failure = _refusal_error(trailers.get(DETAILS_KEY)) or _transport_error(error)
    failure.request_id = trailers.get(REQUEST_ID_KEY, "")
    return failure


def _refusal_error(details: bytes | None) -> ApiError | None:
    try:
        return from_status(status_pb2.Status.FromString(details)) if details is not None else None
    except DecodeError:
        return None


def _transport_error(error: grpc.aio.AioRpcError) -> ApiError:
    number, message = error.code().value[0], error.details() or error.code().name
    if error.code() is grpc.StatusCode.CANCELLED or message == _CORE_ERROR:  # the server closed the connection, or the stream
        number = Code.UNAVAILABLE
    return from_refusal(Refusal(Code(number), "", message, retry_after=0.0 if message.startswith(_NO_CONNECTION) else None))


def requested_delay(error: BaseException | None) -> float:
    """Return the seconds to wait before the next attempt, as requested by the server."""
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0


def lacks_storage(error: BaseException) -> bool:
    """Return whether the server reported that etcd is unreachable."""
    return isinstance(error, Unavailable) and error.reason == STORAGE_UNAVAILABLE


def unavailable_error(message: str) -> Unavailable:
    """Return the error of a call that was not sent."""
    return Unavailable(Refusal(Code.UNAVAILABLE, "", message))


def unknown_method(failure: ApiError) -> bool:
    """Return whether the server does not implement the method. If a kubelet does not implement it, the error has a reason."""
    return isinstance(failure, Unimplemented) and not failure.reason


def unimplemented_error(method: str, servers: Collection[str]) -> Unimplemented:
    """Return the error of a call that no server implements. `method` has the form "/pinnace.v1.Pods/Get"."""
    service, _, name = method.rpartition("/")
    what = f"{service.rpartition('.')[2].lower()}.{name}"
    message = f"the API server at {', '.join(servers)} does not implement {what}: it is older than this client"
    hint = "upgrade the API servers before the clients: see docs/upgrading.md"
    return Unimplemented(Refusal(Code.UNIMPLEMENTED, "", message, metadata=(("hint", hint),)))


def unreadable_response_error(method: str, server: str) -> Internal:
    """Return the error of a call whose response cannot be decoded. `method` has the form "/pinnace.v1.Pods/Get"."""
    message = f"cannot decode the response of the API server at {server} to {method}; the request was processed"
    return Internal(Refusal(Code.INTERNAL, "", message))


def fenced_error(message: str) -> Fenced:
    """Return the error of a call that was not sent because the term of its leader has ended."""
    return Fenced(Refusal(Code.FAILED_PRECONDITION, "Fenced", message))


def conflict_error(message: str) -> Conflict:
    """Return the error of a write that has to wait for another write."""
    return Conflict(Refusal(Code.ABORTED, "Conflict", message))


def timed_out(message: str) -> Timeout:
    """Return the error of a call that was not sent in time."""
    return Timeout(Refusal(Code.DEADLINE_EXCEEDED, "", message))


def unanswered_error(server: str) -> Timeout:
    return Timeout(Refusal(Code.DEADLINE_EXCEEDED, "", f"no response from the API server at {server} in time"))


def outcome_unknown(cause: ApiError) -> OutcomeUnknown:
    if isinstance(cause, OutcomeUnknown):  # reported by the server
        return cause
    message = f"the outcome of the request is unknown: {cause.message}; read the object before you retry"
    return OutcomeUnknown(Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message))
