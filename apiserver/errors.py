"""The errors of the API server: the exception `Rejected`, which carries a `Refusal`; constructors for the usual refusals, in
Kubernetes' words; and the translation of every other exception to a refusal.

Rejected                     its refusal
CacheError
+-- Expired                  OUT_OF_RANGE        list again
+-- SlowWatcher              ABORTED             resume
+-- ShuttingDown             UNAVAILABLE         resume elsewhere, at once
+-- CacheBehind              UNAVAILABLE         retry
+-- BadToken                 INVALID_ARGUMENT
+-- FutureRevision           INVALID_ARGUMENT    retry, if the revision will exist
+-- HistoryChanged           FAILED_PRECONDITION start again from a list
SelectorError                INVALID_ARGUMENT
StorageError                 see apiserver.errors.from_storage
MemoryError, OSError for
lack of a resource           RESOURCE_EXHAUSTED  retry, or ask for less; a write: UNAVAILABLE, OutcomeUnknown
anything else                INTERNAL            a bug; logged with its traceback
"""

import errno
import logging
from collections.abc import Sequence
from typing import Any

from apiserver.cacher.store import BadToken, CacheBehind, Expired, FutureRevision, HistoryChanged, ShuttingDown, SlowWatcher
from apiserver.storage.interface import Compacted, OutcomeUnknown, OutOfSpace, StorageError, TooLarge
from pinnace.api.resources import Resource
from pinnace.api.selectors import SelectorError
from pinnace.api.status import Code, Refusal, Violation, summarize
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import CallsRefused

RETRY_AFTER = 0.1
"""Seconds after which a client may retry a call that failed because etcd was not available."""


MAX_VIOLATIONS = 4000
"""Bytes of violations in a refusal. Many peers refuse trailers of more than 8 KiB, and trailers may be base64-encoded."""


UNREADABLE = "StorageReadError"


class Rejected(Exception):
    """The request is refused; nothing was written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def not_found(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "NotFound", f'{resource.plural} "{name}" not found')


def unreadable(resource: Resource[Any], name: str) -> Refusal:
    """The stored value cannot be parsed, or is nested too deep. The reason is Kubernetes'."""
    message = f'{resource.plural} "{name}" cannot be decoded from etcd: lists and watches leave it out'
    hint = f"if the object is not needed, delete its key in etcd, below {resource.prefix}"
    return Refusal(Code.INTERNAL, UNREADABLE, message, metadata=(("hint", hint),))


def already_exists(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.ALREADY_EXISTS, "AlreadyExists", f'{resource.plural} "{name}" already exists')


def stale(resource: Resource[Any], name: str, given: str, now: int) -> Refusal:
    message = f'{resource.plural} "{name}": resourceVersion {given} is stale, now {now}'
    return Refusal(Code.ABORTED, "Conflict", message, metadata=(("resourceVersion", str(now)),))


def uid_mismatch(resource: Resource[Any], name: str, given: str, now: str) -> Refusal:
    message = f'{resource.plural} "{name}": the UID in the precondition is {given}, the UID of the object is {now}'
    return Refusal(Code.ABORTED, "UIDMismatch", message)


def contended(resource: Resource[Any], name: str) -> Refusal:
    message = f'{resource.plural} "{name}": too many concurrent writes of this object; try again'
    return Refusal(Code.ABORTED, "Contended", message, retry_after=RETRY_AFTER)


def invalid(resource: Resource[Any], name: str, violations: Sequence[Violation]) -> Refusal:
    """A refusal with as many of the violations as fit into MAX_VIOLATIONS, and the number of the rest. An object may have
    thousands of violations. Kubernetes returns all of them."""
    told, room = list[Violation](), MAX_VIOLATIONS
    for violation in violations:
        room -= len(violation.field.encode()) + len(violation.message.encode()) + 16
        if room < 0:
            told.append(Violation("", f"... and {len(violations) - len(told):,} more"))
            break
        told.append(violation)
    message = f'{resource.kind} "{name}" is invalid: {summarize(told)}'
    return Refusal(Code.INVALID_ARGUMENT, "Invalid", message, violations=tuple(told))


def too_much(resource: Resource[Any], name: str, most: int) -> Refusal:
    message = f'{resource.plural} "{name}": more than {most:,} items in its lists and maps'
    return Refusal(Code.INVALID_ARGUMENT, "TooLarge", message)


def bad_request(message: str, hint: str = "") -> Refusal:
    """`hint`: what to do, if correcting the request is not enough."""
    return Refusal(Code.INVALID_ARGUMENT, "BadRequest", message, metadata=(("hint", hint),) if hint else ())


def forbidden(message: str) -> Refusal:
    return Refusal(Code.PERMISSION_DENIED, "Forbidden", message)


def fenced(election: str, token: int) -> Refusal:
    message = f'token {token} does not lead election "{election}" any more: stand down'
    return Refusal(Code.FAILED_PRECONDITION, "Fenced", message)


OVERTAKEN = Refusal(
    Code.ABORTED, "Overtaken", "an object that admission relied on has changed; try again", retry_after=RETRY_AFTER
)
"""A guard of admission failed (apiserver.registry.admission)."""


def caller_left() -> Refusal:
    """For the audit log: the caller does not receive it."""
    return Refusal(
        Code.UNAVAILABLE, "OutcomeUnknown", "the caller cancelled the call before it was answered: it may have happened"
    )


def from_storage(error: StorageError) -> Refusal:
    """The refusal for an error of the storage."""
    match error:
        case OutcomeUnknown():
            message = f"the outcome of the request is unknown: {error}; read the object before you retry"
            return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
        case OutOfSpace():
            message = "etcd is out of space: reads and deletes work; compact, defragment and disarm the alarm"
            return Refusal(Code.RESOURCE_EXHAUSTED, "OutOfSpace", message)
        case TooLarge():
            return Refusal(Code.INVALID_ARGUMENT, "TooLarge", f"the object is too large to store: {error}")
        case _:
            return Refusal(Code.UNAVAILABLE, "StorageUnavailable", f"etcd: {error}", retry_after=RETRY_AFTER)


log = logging.getLogger(__name__)

FUTURE_RETRY = 1.0
"""Seconds after which a client may ask for a future revision again, as in Kubernetes."""


SHORT_OF = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
"""The resource that is exhausted, by errno of a system call."""
SHORT_RETRY = 1.0
"""Seconds after which a call that failed for lack of a resource may be retried."""
QUIET = 10.0
"""Seconds between two log lines about the same shortage. Under memory pressure every call may fail."""


def to_refusal(error: Exception, method: str, *, writes: bool = False) -> Refusal:
    """The refusal for an exception. `method`: for the log. `writes`: the call may have written before the error, so its
    outcome is unknown."""
    if lack := _lack(error):
        return _short(lack, method, writes)
    match error:
        case Rejected():
            return error.refusal
        case Expired():
            return _expired(error.oldest)
        case Compacted():
            return _expired(error.compact_revision)
        case SlowWatcher():
            message = f"the reader fell behind and its queue overflowed; resume from resourceVersion {error.resume}"
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
        case BadToken() | SelectorError():
            return bad_request(str(error))
        case StorageError():
            return from_storage(error)
        case _:
            log.exception("%s: a bug", method, exc_info=error)
            return Refusal(Code.INTERNAL, "InternalError", f"internal error: {type(error).__name__}: {error}")


def _lack(error: BaseException) -> str:
    """What there was too little of; "" if that is not what happened."""
    match error:
        case MemoryError():
            return "memory"
        case OSError():
            return SHORT_OF.get(error.errno or 0, "")
        case BaseExceptionGroup():
            return next(filter(None, map(_lack, error.exceptions)), "")
        case _:
            return ""


class _Shortages:
    """Logs each kind of shortage once in QUIET seconds, with the number of calls that met it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}
        self._calls: dict[str, int] = {}

    def met(self, lack: str, method: str) -> None:
        now = self._clock.monotonic()
        self._calls[lack] = self._calls.get(lack, 0) + 1
        if now - self._logged.get(lack, -QUIET) >= QUIET:
            self._logged[lack] = now
            count = self._calls.pop(lack)
            refused = CallsRefused(lack, count, method).extra
            log.error("out of %s: %d calls refused, the last one to %s", lack, count, method, extra=refused)


_shortages = _Shortages(SYSTEM_CLOCK)


def _short(lack: str, method: str, writes: bool) -> Refusal:
    _shortages.met(lack, method)
    if writes:
        message = f"the outcome of the request is unknown: the API server is out of {lack}; read the object before you retry"
        return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
    message = f"the API server is out of {lack}; ask for less at once (limit), or try again later"
    return Refusal(Code.RESOURCE_EXHAUSTED, "InsufficientResources", message, retry_after=SHORT_RETRY)


def shutting_down() -> Refusal:
    return Refusal(Code.UNAVAILABLE, "ShuttingDown", "the API server is shutting down: use another one", retry_after=0.0)


def not_loaded() -> Refusal:
    message = "the API server has just started and does not know the cluster's state yet"
    return Refusal(Code.UNAVAILABLE, "NotReady", message, retry_after=RETRY_AFTER)


def _expired(oldest: int) -> Refusal:
    message = f"the resourceVersion is too old, the oldest that is left is {oldest}"
    return Refusal(Code.OUT_OF_RANGE, "Expired", message, metadata=(("compactRevision", str(oldest)),))
