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
anything else                INTERNAL, logged with its traceback: it is a bug
"""

import logging

from apiserver import errors
from apiserver.cacher.errors import BadToken, CacheBehind, Expired, FutureRevision, HistoryChanged, ShuttingDown, SlowWatcher
from apiserver.errors import Rejected
from apiserver.storage.interface import Compacted, StorageError
from pinnace.api.selectors import SelectorError
from pinnace.api.status import Code, Refusal

log = logging.getLogger(__name__)

FUTURE_RETRY = 1.0
"""Seconds after which a revision of the future may be there, as in Kubernetes."""


def to_refusal(error: Exception, method: str) -> Refusal:
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


def shutting_down() -> Refusal:
    return Refusal(Code.UNAVAILABLE, "ShuttingDown", "the API server is shutting down: use another one", retry_after=0.0)


def not_loaded() -> Refusal:
    message = "the API server has just started and does not know the cluster's state yet"
    return Refusal(Code.UNAVAILABLE, "NotReady", message, retry_after=errors.RETRY_AFTER)


def _expired(oldest: int) -> Refusal:
    message = f"the resourceVersion is too old, the oldest that is left is {oldest}"
    return Refusal(Code.OUT_OF_RANGE, "Expired", message, metadata=(("compactRevision", str(oldest)),))
