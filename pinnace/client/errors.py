"""What a call to the API server can raise.

    ApiError                    carries the server's Refusal: code, reason, message, violations
    +-- NotFound
    +-- AlreadyExists
    +-- Conflict                ABORTED: a stale resourceVersion or a precondition; read again and retry
    +-- Invalid                 INVALID_ARGUMENT: `violations` has everything that is wrong
    +-- Expired                 OUT_OF_RANGE: the revision or page token is gone; list again
    +-- FailedPrecondition      the system is not in the state that the call requires; a repetition does not help
    |   +-- Fenced              another leader has been elected; stop
    |   +-- HistoryChanged      etcd was restored from a backup: state from before is invalid; start over
    +-- Forbidden
    +-- Unauthenticated
    +-- Exhausted               RESOURCE_EXHAUSTED: etcd is out of space, a message too large, a disruption budget used up, or
    |                           the API server out of memory
    +-- Unavailable             no server, or a server that cannot serve now; nothing happened
    |   +-- Timeout             the deadline passed without an answer (of a read, or before anything was sent)
    |   +-- OutcomeUnknown      a write was sent and its answer lost: it may have happened; read before you repeat it
    +-- Unimplemented           no API server that can be reached knows the method: all are older than this client
    +-- Internal                a bug of the server, or of this library; or an answer that cannot be read

gRPC's errors are turned into these in one place, `from_rpc`.
"""

from collections.abc import Collection

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from pinnace.api.status import DETAILS_KEY, Code, Refusal, Violation, decode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import REQUEST_ID_KEY

_NO_CONNECTION = "failed to connect to all addresses"
"""The beginning of gRPC's message when it had no connection for a call, because the server had closed it. Calls that were sent
fail with other messages.

Source: https://github.com/grpc/grpc/issues/20217 (the log of such a call: "LB pick returned TRANSIENT_FAILURE")
"""

STORAGE_UNAVAILABLE = "StorageUnavailable"
"""The reason in the refusal of a server that cannot reach etcd."""


class ApiError(Exception):
    """The base class of all errors that the client library raises for a call."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.request_id = ""
        """The id of the call in the API server's logs; "" if it is not known: for items of a batch, and if no server
        answered."""
        self.in_doubt = False
        """The answer to an earlier attempt was lost: that attempt may have had an effect, and caused this error."""

    @property
    def code(self) -> Code:
        return self.refusal.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as "NamespaceNotFound"; "" if no API server answered."""
        return self.refusal.reason

    @property
    def message(self) -> str:
        return self.refusal.message

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.refusal.violations

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same call may succeed. If set, the call had no effect: the server says so, or it was not
        sent."""
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
    """The error that a Status stands for: of a call, or of one item of a batch."""
    return from_refusal(decode(status))


def error_of(item: BatchItem) -> ApiError | None:
    """The error of one item of a batch; None if it succeeded."""
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
    """The error of a failed call, from the server's details or, without them, from gRPC's status."""
    trailers = error.trailing_metadata() or grpc.aio.Metadata()
    failure = _told(trailers.get(DETAILS_KEY)) or _untold(error)
    failure.request_id = trailers.get(REQUEST_ID_KEY, "")
    return failure


def _told(details: bytes | None) -> ApiError | None:
    try:
        return from_status(status_pb2.Status.FromString(details)) if details is not None else None
    except DecodeError:
        return None


def _untold(error: grpc.aio.AioRpcError) -> ApiError:
    number = error.code().value[0]
    if error.code() is grpc.StatusCode.CANCELLED:  # by the peer: it closes its connections
        number = Code.UNAVAILABLE
    message = error.details() or error.code().name
    return from_refusal(Refusal(Code(number), "", message, retry_after=0.0 if message.startswith(_NO_CONNECTION) else None))


def asked_to_wait(error: BaseException | None) -> float:
    """Seconds after which the server wants to be asked again, at the earliest."""
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0


def lacks_storage(error: BaseException) -> bool:
    """Whether the server says that it does not reach etcd."""
    return isinstance(error, Unavailable) and error.reason == STORAGE_UNAVAILABLE


def unavailable(message: str) -> Unavailable:
    """Nothing was sent."""
    return Unavailable(Refusal(Code.UNAVAILABLE, "", message))


def unknown_method(failure: ApiError) -> bool:
    """Does the server not have it? A kubelet that lacks what an API server asked of it is told with a reason."""
    return isinstance(failure, Unimplemented) and not failure.reason


def unimplemented(method: str, servers: Collection[str]) -> Unimplemented:
    """Nothing happened. `method` is like "/pinnace.v1.Pods/Get"; `servers` are those that do not know it."""
    service, _, name = method.rpartition("/")
    what = f"{service.rpartition('.')[2].lower()}.{name}"
    message = f"the API server at {', '.join(servers)} does not know {what}: it is older than this client"
    hint = "upgrade the API servers first: see docs/upgrading.md"
    return Unimplemented(Refusal(Code.UNIMPLEMENTED, "", message, metadata=(("hint", hint),)))


def unreadable(method: str, server: str) -> Internal:
    """What was answered is no message, or not that of the method. `method` is like "/pinnace.v1.Pods/Get"."""
    message = f"what the API server at {server} answered to {method} cannot be read, though it did what was asked"
    return Internal(Refusal(Code.INTERNAL, "", message))


def fenced(message: str) -> Fenced:
    """Nothing was sent."""
    return Fenced(Refusal(Code.FAILED_PRECONDITION, "Fenced", message))


def timed_out(message: str) -> Timeout:
    """Nothing was sent."""
    return Timeout(Refusal(Code.DEADLINE_EXCEEDED, "", message))


def unanswered(server: str) -> Timeout:
    return Timeout(Refusal(Code.DEADLINE_EXCEEDED, "", f"no answer from the API server at {server} in time"))


def outcome_unknown(cause: ApiError) -> OutcomeUnknown:
    if isinstance(cause, OutcomeUnknown):  # the server said so itself
        return cause
    message = f"the outcome is unknown, it may have happened: {cause.message}; read before you repeat it"
    return OutcomeUnknown(Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message))
