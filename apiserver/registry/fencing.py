"""Fences: what a leader writes commits only while it leads, and only the leader can use its fence.

    fence --may the caller campaign in this election?--> no: PERMISSION_DENIED
      '--> was this the caller's term: token, user, secret? --> no: Fenced
             '--> a guard on the election's key, in the transaction of the write --> the term is over: Fenced

* **The guard decides whether the term lasts.** etcd compares the key's create_revision with the token in the transaction of the
  write. That is right whatever the leader or this server believes.
* **The holder decides whose term it is.** The key's value names the user that campaigned, the hash of its secret and the
  schedulers that it binds for. A put never changes the value while the key exists (`apiserver.election.candidates`). So a
  token, which is the create_revision, stands for one value, and a holder that was read from the cache is right for as long as
  the guard holds, however old the cache is. When the cache is behind the token, etcd is asked.

A bind carries its fence in the request. Any other unary call that writes may carry fences in its metadata (pinnace.api.fences),
and then all that it writes through a Mutator is guarded. A call without a fence is not fenced.

Not promised: after a restore of etcd the same revision may stand for another term (docs/design/restore.md#leaders).
"""

import hmac
from collections.abc import Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple

from google.protobuf.message import DecodeError

from apiserver import errors
from apiserver.auth.authentication import User
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.permissions import CAMPAIGN, Target
from apiserver.cacher.cacher import Cacher
from apiserver.errors import Rejected
from apiserver.storage.interface import Guard, KeyValue, Storage
from pinnace.api import fences
from pinnace.api.elections_pb2 import Election
from pinnace.api.names import dns_subdomain
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import election_key

PRESENTED_FENCES: ContextVar[tuple[Fence, ...]] = ContextVar("fences", default=())
"""The fences in the metadata of the present call."""
CURRENT_GUARDS: ContextVar[tuple[Guard, ...]] = ContextVar("fence", default=())
"""What must hold for the writes of the present call."""
MAX_FENCES = 4
"""Fences of a call: each is an operation of its transaction, in which others have their writes, too."""
FRESH_TIMEOUT = 5.0
"""Seconds for the cache to reach the revision of a token."""
STALE_ANSWERS = 1
"""Of etcd, one after the other, that are put up with."""
MIN_SECRET = 16
"""Bytes."""


class HeldTerm(NamedTuple):
    """A term whose holder the caller is."""

    name: str
    """Election and token, as the annotation of a bound pod has them."""
    guard: Guard
    scheduler_names: tuple[str, ...]
    """The schedulers whose pods may be bound in it."""


class Fences:
    """Judges fences by the elections in the cache, and in etcd where the cache is behind."""

    def __init__(self, storage: Storage, cacher: Cacher, authorizer: Authorizer) -> None:
        self._storage = storage
        self._cacher = cacher
        self._authorizer = authorizer

    async def term(self, fence: Fence, user: User) -> HeldTerm | None:
        """The term of the fence, if the user holds it; None when the term is over, unknown, or held by another user or session.
        Which of these it is, the caller must not learn. Raises Rejected when there can be no such fence or the user may not
        campaign in its election; StorageError and CacheError when etcd cannot be asked."""
        if dns_subdomain(fence.election) or fence.token <= 0:
            raise Rejected(errors.bad_request("a fence needs the name of an election, which is a DNS name, and its token"))
        await self._authorizer.check(user, CAMPAIGN, lambda: (Target("", fence.election),))
        key = election_key(fence.election)
        record = await self._find(key, fence.token)
        if record is None or not is_holder(election := _read(record), user.name, fence.secret):
            return None
        return HeldTerm(fences.term(fence), Guard(key, fence.token), tuple(election.scheduler_names))

    async def _find(self, key: str, token: int) -> KeyValue | None:
        """The election's key with this token; None: there is none any more, or not yet. One answer of etcd that does not
        show it is not enough for that: it may be stale (etcd#20418), and a leader that is refused stands down."""
        record = self._cacher.raw(key)
        if not _has(record, token) and self._cacher.revision < token:
            record = await self._storage.get(key)
            for _ in range(STALE_ANSWERS + 1):
                if _has(record, token):
                    break
                await self._cacher.fresh(FRESH_TIMEOUT)
                record = self._cacher.raw(key)
                if self._cacher.revision >= token:
                    break
        return record if _has(record, token) else None

    async def enter(self, user: User) -> None:
        """Guards what the present call writes by the fences in its metadata: all of them must hold. Raises as `term`, and
        Rejected when one does not hold."""
        presented = PRESENTED_FENCES.get()
        if not presented:
            return
        guards: list[Guard] = []
        for fence in presented:
            term = await self.term(fence, user)
            if term is None:
                raise Rejected(errors.fenced(fence.election, fence.token))
            guards.append(term.guard)
        CURRENT_GUARDS.set(tuple(guards))


def read_fences(metadata: Iterable[tuple[str, str | bytes]]) -> None:
    """Notes the fences in the metadata of the present call. Raises Rejected."""
    found: tuple[Fence, ...] = ()
    for key, value in metadata:
        if key == fences.KEY:
            if len(found) == MAX_FENCES:
                raise Rejected(errors.bad_request(f"too many fences: at most {MAX_FENCES} per call"))
            try:
                found += (fences.parse(str(value)),)
            except ValueError as error:
                raise Rejected(errors.bad_request(str(error))) from None
    PRESENTED_FENCES.set(found)


def hashed(secret: bytes) -> bytes:
    """The form in which a secret is stored. It is random, so it needs no salt."""
    return sha256(secret).digest()


def is_holder(election: Election, user: str, secret: bytes) -> bool:
    """Did this user campaign with this secret? A term without a hash, which an older server made, has no holder."""
    return hmac.compare_digest(election.secret_hash, hashed(secret)) and election.user == user


def _has(record: KeyValue | None, token: int) -> bool:
    return record is not None and record.create_revision == token


def _read(record: KeyValue) -> Election:
    try:
        return Election.FromString(record.value)
    except DecodeError:
        return Election()
