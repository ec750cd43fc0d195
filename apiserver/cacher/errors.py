"""What the watch cache raises.

CacheError
+-- Expired         the revision asked for is older than what is left: list again.
+-- SlowWatcher     the reader fell behind and its queue overflowed: resume after `resume`.
+-- ShuttingDown    the server is shutting down: resume elsewhere.
+-- CacheBehind     the cache is not where the reader wants it, and did not get there in time: try again.
+-- BadToken        a continue token or resourceVersion that no server of ours gave out, or not for this request.
+-- FutureRevision  a state was asked for that the store has not reached.
+-- HistoryChanged  what the reader knows is not of the store's history, as far as one can tell: begin anew.
"""


class CacheError(Exception):
    """Base of everything that the cache raises, beside StorageError where it reads from the storage."""


class Expired(CacheError):
    def __init__(self, oldest: int) -> None:
        super().__init__(f"the revision is too old: the oldest that is left is {oldest}")
        self.oldest = oldest


class SlowWatcher(CacheError):
    def __init__(self, resume: int) -> None:
        super().__init__(f"the reader fell behind and its queue overflowed: resume from revision {resume}")
        self.resume = resume


class ShuttingDown(CacheError):
    def __init__(self) -> None:
        super().__init__("the server is shutting down: resume with another one")


class CacheBehind(CacheError):
    def __init__(self, wanted: int, have: int) -> None:
        state = f"at revision {have}, not yet at {wanted}" if have else "not loaded yet"
        super().__init__(f"the watch cache is {state}: try again")


class BadToken(CacheError):
    pass


class FutureRevision(CacheError):
    def __init__(self, wanted: int, now: int) -> None:
        super().__init__(f"Too large resource version: {wanted}, current: {now}")
        self.now = now


class HistoryChanged(CacheError):
    def __init__(self, revision: int) -> None:
        super().__init__(
            f"revision {revision} is not known to be of this store's history, as if etcd was restored from a backup: begin anew"
        )
