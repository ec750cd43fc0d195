"""What the API server's exceptions say to the one who called: each is translated here, once.

Rejected (registry)          as it says
CacheError
+-- Expired                  OUT_OF_RANGE        list again
+-- SlowWatcher              ABORTED             resume
+-- ShuttingDown             UNAVAILABLE         resume elsewhere, at once
+-- CacheBehind              UNAVAILABLE         try again
+-- BadToken                 INVALID_ARGUMENT
+-- FutureRevision           INVALID_ARGUMENT    try again, if it is a revision that will come
+-- HistoryChanged           FAILED_PRECONDITION begin anew
SelectorError                INVALID_ARGUMENT
StorageError                 see apiserver.errors.from_storage
MemoryError, OSError for
want of a resource           RESOURCE_EXHAUSTED      try again, or ask for less; a write: UNAVAILABLE, OutcomeUnknown
anything else                INTERNAL, logged with its traceback: it is a bug
"""

import errno
import logging

from apiserver import errors
from apiserver.cacher.errors import BadToken, CacheBehind, Expired, FutureRevision, HistoryChanged, ShuttingDown, SlowWatcher
from apiserver.errors import Rejected
from apiserver.storage.interface import Compacted, StorageError
from pinnace.api.selectors import SelectorError
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import CallsRefused

log = logging.getLogger(__name__)

FUTURE_RETRY = 1.0
"""Seconds after which a revision of the future may be there, as in Kubernetes."""


SHORT_OF = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
"""What the machine lacks when a call of the system fails so."""
SHORT_RETRY = 1.0
"""Seconds after which there may be enough again."""
QUIET = 10.0
"""Seconds between two log lines about the same shortage: under memory pressure every call may meet it."""


def to_refusal(error: Exception, method: str, *, writes: bool = False) -> Refusal:
    """`writes`: of a write that may have been carried out when the server met what it did not expect."""
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
            return Refusal(Code.UNAVAILABLE, "CacheBehind", str(error), retry_after=errors.RETRY_AFTER)
        case FutureRevision():
            facts = (("resourceVersion", str(error.now)),)
            return Refusal(
                Code.INVALID_ARGUMENT, "ResourceVersionTooLarge", str(error), retry_after=FUTURE_RETRY, metadata=facts
            )
        case HistoryChanged():
            return Refusal(Code.FAILED_PRECONDITION, "HistoryChanged", str(error))
        case BadToken() | SelectorError():
            return errors.bad_request(str(error))
        case StorageError():
            return errors.from_storage(error)
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
        message = f"the outcome is unknown, it may have happened: the API server is out of {lack}; read before you repeat it"
        return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
    message = f"the API server is out of {lack}; ask for less at once (limit), or try again later"
    return Refusal(Code.RESOURCE_EXHAUSTED, "InsufficientResources", message, retry_after=SHORT_RETRY)


def shutting_down() -> Refusal:
    return Refusal(Code.UNAVAILABLE, "ShuttingDown", "the API server is shutting down: use another one", retry_after=0.0)


def not_loaded() -> Refusal:
    message = "the API server has just started and does not know the cluster's state yet"
    return Refusal(Code.UNAVAILABLE, "NotReady", message, retry_after=errors.RETRY_AFTER)


def _expired(oldest: int) -> Refusal:
    message = f"the resourceVersion is too old, the oldest that is left is {oldest}"
    return Refusal(Code.OUT_OF_RANGE, "Expired", message, metadata=(("compactRevision", str(oldest)),))
