"""Errors of the API server: the exception `Rejected`, constructors of common refusals with Kubernetes' messages, and the
conversion of exceptions to refusals:

Rejected                     its refusal
CacheError
+-- RevisionExpired           OUT_OF_RANGE        list again
+-- SlowWatcher              ABORTED             resume
+-- ShuttingDown             UNAVAILABLE         resume at another replica immediately
+-- CacheBehind              UNAVAILABLE         retry
+-- InvalidContinueToken                 INVALID_ARGUMENT
+-- FutureRevision           INVALID_ARGUMENT    retry when the revision exists
+-- HistoryChanged           FAILED_PRECONDITION list again
SelectorError                INVALID_ARGUMENT
StorageError                 see from_storage
MemoryError, OSError with
an errno of SHORT_OF         RESOURCE_EXHAUSTED  retry, or set a smaller limit; for writes: UNAVAILABLE, OutcomeUnknown
any other exception          INTERNAL            report a bug; the traceback is logged
"""

import errno
import logging
from collections.abc import Sequence
from typing import Any

from pinnace.api.resources import Resource
from pinnace.api.selectors import SelectorError
from pinnace.api.status import (
    APPLY_CONFLICT,
    INVALID_KIND,
    PRECONDITION_KIND,
    TOO_LARGE,
    UNMERGEABLE,
    UNTYPED,
    Code,
    Refusal,
    Violation,
    conflict_message,
    summarize,
)
from pinnace.apiserver.cacher.store import (
    CacheBehind,
    FutureRevision,
    HistoryChanged,
    InvalidContinueToken,
    RevisionExpired,
    ShuttingDown,
    SlowWatcher,
)
from pinnace.apiserver.storage.interface import CommitOutcomeUnknown, Compacted, OutOfSpace, StorageError, TooLarge
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import CallsRefused

RETRY_AFTER = 0.1
"""Seconds after which a client can retry a call when etcd or the watch cache was unavailable."""


MAX_VIOLATIONS = 4000
"""Maximum size of the violations in a refusal, in bytes. Many HTTP/2 peers reject trailers above 8 KiB, and gRPC encodes
binary trailers as base64."""


UNREADABLE = "StorageReadError"
OVERTAKEN = Refusal(
    Code.ABORTED, "Overtaken", "an object that admission depends on has changed, please retry", retry_after=RETRY_AFTER
)
"""A guard that an admission plugin added to the write failed (pinnace.apiserver.registry.admission)."""
log = logging.getLogger(__name__)
FUTURE_RETRY = 1.0
"""Seconds after which a client can retry a request with a future resourceVersion, as in Kubernetes."""
SHORT_OF = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
"""The exhausted resource, by errno."""
SHORT_RETRY = 1.0
"""Seconds after which a client can retry a call that failed because a resource of the server was exhausted."""
SHORTAGE_LOG_INTERVAL = 10.0
"""Minimum seconds between two log lines about the same resource. Under memory pressure every call can fail."""


class Rejected(Exception):
    """The request is refused. Nothing was written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.warnings: Sequence[str] = ()
        """The warnings of the refused call, which are set at its end."""


def not_found(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "NotFound", f'{resource.plural} "{name}" not found')


def undecodable_object(resource: Resource[Any], name: str) -> Refusal:
    """The stored value cannot be parsed, or is nested too deeply. The reason is the one that Kubernetes uses."""
    message = f'{resource.plural} "{name}" cannot be decoded from etcd: lists and watches omit it'
    hint = f"if the object is not needed, delete its key in etcd, below {resource.prefix}"
    return Refusal(Code.INTERNAL, UNREADABLE, message, metadata=(("hint", hint),))


def already_exists(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.ALREADY_EXISTS, "AlreadyExists", f'{resource.plural} "{name}" already exists')


def stale_resource_version(resource: Resource[Any], name: str, given: str, now: int) -> Refusal:
    message = f'{resource.plural} "{name}": resourceVersion {given} is stale, the current one is {now}'
    return Refusal(Code.ABORTED, "Conflict", message, metadata=(("resourceVersion", str(now)),))


def uid_mismatch(resource: Resource[Any], name: str, given: str, now: str) -> Refusal:
    message = f'{resource.plural} "{name}": the UID in the precondition is {given}, the UID of the object is {now}'
    return Refusal(Code.ABORTED, "UIDMismatch", message)


def precondition_failed(resource: Resource[Any], name: str, precondition: str, given: str, now: str) -> Refusal:
    """`precondition`: UID or ResourceVersion. Kubernetes names the kind here, where other conflicts name the resource."""
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    what = "deleted and then recreated" if precondition == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {qualified} "{name}": the {precondition} in the precondition ({given}) does not '
        f"match the {precondition} in record ({now}). The object might have been {what}"
    )
    reason = "UIDMismatch" if precondition == "UID" else "Conflict"
    return Refusal(Code.ABORTED, reason, message, metadata=((PRECONDITION_KIND, resource.kind),))


def contended_object(resource: Resource[Any], name: str) -> Refusal:
    message = f'{resource.plural} "{name}": too many concurrent writes of this object, please retry'
    return Refusal(Code.ABORTED, "Contended", message, retry_after=RETRY_AFTER)


def invalid(resource: Resource[Any], name: str, violations: Sequence[Violation], kind: str = "") -> Refusal:
    """The refusal contains the first violations, up to MAX_VIOLATIONS bytes, and the number of the omitted ones. (Kubernetes
    returns all violations.) `kind`: the kind in the message, if it is not that of the resource."""
    shown = _truncate_violations(violations)
    message = f'{kind or resource.kind} "{name}" is invalid: {summarize(shown)}'
    metadata = ((INVALID_KIND, kind),) if kind and kind != resource.kind else ()
    return Refusal(Code.INVALID_ARGUMENT, "Invalid", message, violations=tuple(shown), metadata=metadata)


def _truncate_violations(violations: Sequence[Violation]) -> list[Violation]:
    shown, room = list[Violation](), MAX_VIOLATIONS
    for violation in violations:
        room -= len(violation.field.encode()) + len(violation.message.encode()) + 16
        if room < 0:
            shown.append(Violation("", f"... and {len(violations) - len(shown):,} more"))
            break
        shown.append(violation)
    return shown


def too_many_items(resource: Resource[Any], name: str, most: int) -> Refusal:
    message = f'{resource.plural} "{name}": too many items in lists and maps: at most {most:,}'
    return Refusal(Code.INVALID_ARGUMENT, "TooManyItems", message)


def bad_request(message: str, hint: str = "") -> Refusal:
    """`hint`: the remedy, if it is not obvious from the message."""
    return Refusal(Code.INVALID_ARGUMENT, "BadRequest", message, metadata=(("hint", hint),) if hint else ())


def untyped_configuration(message: str) -> Refusal:
    """Return the refusal of an applied configuration whose fields do not match the schema."""
    return Refusal(Code.INVALID_ARGUMENT, UNTYPED, message)


def unmergeable_patch(message: str) -> Refusal:
    """Return the refusal of a strategic merge patch that cannot be merged into the object."""
    return Refusal(Code.INVALID_ARGUMENT, UNMERGEABLE, message)


def apply_conflict(conflicts: Sequence[Violation]) -> Refusal:
    """Each conflict contains a field and the manager that owns it."""
    shown = _truncate_violations(conflicts)
    return Refusal(Code.ABORTED, APPLY_CONFLICT, conflict_message(conflicts), violations=tuple(shown))


def forbidden(message: str) -> Refusal:
    return Refusal(Code.PERMISSION_DENIED, "Forbidden", message)


def fenced_term(election: str, token: int) -> Refusal:
    message = f'fencing token {token} of election "{election}" is not current: stop leading'
    return Refusal(Code.FAILED_PRECONDITION, "Fenced", message)


def client_disconnected() -> Refusal:
    """The refusal in the audit log for a cancelled call. The caller does not receive it."""
    return Refusal(
        Code.UNAVAILABLE,
        "OutcomeUnknown",
        "the client cancelled the call before the response: the write may have succeeded",
    )


def storage_refusal(error: StorageError) -> Refusal:
    """Return the refusal for an error of the storage."""
    match error:
        case CommitOutcomeUnknown():
            message = f"the outcome of the request is unknown: {error}; read the object before you retry"
            return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
        case OutOfSpace():
            message = "etcd is out of space: only reads and deletes work; compact, defragment and disarm the alarm"
            return Refusal(Code.RESOURCE_EXHAUSTED, "OutOfSpace", message)
        case TooLarge():
            return Refusal(Code.INVALID_ARGUMENT, TOO_LARGE, f"the object is too large to store: {error}")
        case _:
            return Refusal(Code.UNAVAILABLE, "StorageUnavailable", f"etcd: {error}", retry_after=RETRY_AFTER)


def to_refusal(error: Exception, method: str, *, writes: bool = False) -> Refusal:
    """Return the refusal for an exception. `method`: its name in the log. `writes`: true if the call may have written before
    the error; then the outcome is unknown."""
    if exhausted := _exhausted_resource(error):
        return _shortage_refusal(exhausted, method, writes)
    match error:
        case Rejected():
            return error.refusal
        case RevisionExpired():
            return _expired_error(error.oldest)
        case Compacted():
            return _expired_error(error.compact_revision)
        case SlowWatcher():
            message = f"the watcher is too slow and its queue is full; resume from resourceVersion {error.resume}"
            facts = (("resourceVersion", str(error.resume)),)
            return Refusal(Code.ABORTED, "SlowWatcher", message, retry_after=0.0, metadata=facts)
        case ShuttingDown():
            return shutting_down()
        case CacheBehind():
            return Refusal(Code.UNAVAILABLE, "CacheBehind", str(error), retry_after=RETRY_AFTER)
        case FutureRevision():
            facts = (("resourceVersion", str(error.now)),)
            return Refusal(
                Code.INVALID_ARGUMENT, "ResourceVersionTooLarge", str(error), retry_after=FUTURE_RETRY, metadata=facts
            )
        case HistoryChanged():
            return Refusal(Code.FAILED_PRECONDITION, "HistoryChanged", str(error))
        case InvalidContinueToken() | SelectorError():
            return bad_request(str(error))
        case StorageError():
            return storage_refusal(error)
        case _:
            log.exception("%s: internal error", method, exc_info=error)
            return Refusal(Code.INTERNAL, "InternalError", f"internal error: {type(error).__name__}: {error}")


def _exhausted_resource(error: BaseException) -> str:
    """Return the exhausted resource; "" if the error has another cause."""
    match error:
        case MemoryError():
            return "memory"
        case OSError():
            return SHORT_OF.get(error.errno or 0, "")
        case BaseExceptionGroup():
            return next(filter(None, map(_exhausted_resource, error.exceptions)), "")
        case _:
            return ""


class _ShortageLog:
    """Logs each exhausted resource at most once per QUIET seconds, with the number of refused calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}
        self._calls: dict[str, int] = {}

    def log_shortage(self, exhausted: str, method: str) -> None:
        now = self._clock.monotonic()
        self._calls[exhausted] = self._calls.get(exhausted, 0) + 1
        if now - self._logged.get(exhausted, -SHORTAGE_LOG_INTERVAL) >= SHORTAGE_LOG_INTERVAL:
            self._logged[exhausted] = now
            count = self._calls.pop(exhausted)
            refused = CallsRefused(exhausted, count, method).extra
            log.error("out of %s: %d calls refused, most recently %s", exhausted, count, method, extra=refused)


_shortages = _ShortageLog(SYSTEM_CLOCK)


def _shortage_refusal(exhausted: str, method: str, writes: bool) -> Refusal:
    _shortages.log_shortage(exhausted, method)
    if writes:
        message = (
            f"the outcome of the request is unknown: the API server is out of {exhausted}; read the object before you retry"
        )
        return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
    message = f"the API server is out of {exhausted}; set a smaller limit, or retry later"
    return Refusal(Code.RESOURCE_EXHAUSTED, "InsufficientResources", message, retry_after=SHORT_RETRY)


def shutting_down() -> Refusal:
    return Refusal(Code.UNAVAILABLE, "ShuttingDown", "the API server is shutting down: use another replica", retry_after=0.0)


def cache_not_loaded() -> Refusal:
    message = "the API server is not ready: it is loading the state of the cluster"
    return Refusal(Code.UNAVAILABLE, "NotReady", message, retry_after=RETRY_AFTER)


def _expired_error(oldest: int) -> Refusal:
    message = f"too old resource version: the oldest available one is {oldest}"
    return Refusal(Code.OUT_OF_RANGE, "Expired", message, metadata=(("compactRevision", str(oldest)),))
