"""Fences: the writes of a leader commit only during its term, and only the leader can use its fence.

    fence --may the user campaign in this election?--> no: PERMISSION_DENIED
      '--> do token, user and secret match the term? --> no: Fenced
             '--> a guard on the election's key, in the transaction of the write --> the term is over: Fenced

* **The guard checks that the term lasts.** In the transaction of the write, etcd compares the key's create_revision with the
  token (apiserver/storage/etcd/codec.py). The state of the leader and of this server does not matter.
* **The value of the key identifies the holder.** It contains the user that campaigned, the hash of its secret, and the names of
  the schedulers that it binds for. No put changes the value while the key exists (`pinnace.apiserver.election.leader_key`). The
  token is the create_revision, so a token identifies one value, and a value from the cache is valid as long as the guard holds.
  When the cache is behind the token, the server reads the key from etcd.

A bind carries its fence in the request (apiserver.services.pods). Other unary calls that write may carry fences in their
metadata (pinnace.api.fences), which guard all writes of the call through a Mutator. A call without a fence is not guarded.

After a restore of etcd, the same revision may identify another term (docs/design/restore.md#leaders).
"""

import hmac
from collections.abc import Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pinnace.api import fences
from pinnace.api.elections_pb2 import Election
from pinnace.api.names import dns_subdomain
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import election_key
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.permissions import CAMPAIGN, ActionTarget
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.storage.interface import Guard, KeyValue, Storage

PRESENTED_FENCES: ContextVar[tuple[Fence, ...]] = ContextVar("fences", default=())
"""The fences in the metadata of the present call."""
CURRENT_GUARDS: ContextVar[tuple[Guard, ...]] = ContextVar("fence", default=())
"""The guards of the writes of the present call."""
MAX_FENCES = 4
"""Maximum number of fences per call. Each is an operation in every transaction of the call, which other calls share."""
FRESH_TIMEOUT = 5.0
"""Seconds for the cache to reach the revision of a token."""
STALE_ANSWERS = 1
"""Consecutive stale etcd responses that are tolerated."""
MIN_SECRET = 16
"""Minimum length of a secret in bytes."""


class FencedTerm(NamedTuple):
    """A term that the caller holds."""

    name: str
    """Election and token, in the format of FENCE_ANNOTATION."""
    guard: Guard
    scheduler_names: tuple[str, ...]
    """The schedulers whose pods the holder may bind."""


class FenceVerifier:
    """Verifies fences against the elections in the cache, or in etcd when the cache is behind."""

    def __init__(self, storage: Storage, cacher: Cacher, authorizer: Authorizer) -> None:
        self._storage = storage
        self._cacher = cacher
        self._authorizer = authorizer

    async def verify(self, fence: Fence, user: User) -> FencedTerm | None:
        """Return the term of the fence if the user holds it.

        The result is None if the term is over, unknown, or held by another user or session. Callers get the same result in
        these cases, because they must not learn the reason. Raises Rejected if the fence is malformed or the user may not
        campaign in its election, and StorageError or CacheError if etcd cannot be read.
        """
        if dns_subdomain(fence.election) or fence.token <= 0:
            raise Rejected(errors.bad_request("a fence needs the name of an election, which is a DNS name, and its token"))
        await self._authorizer.authorize(user, CAMPAIGN, lambda: (ActionTarget("", fence.election),))
        key = election_key(fence.election)
        record = await self._find_election(key, fence.token)
        if record is None or not is_holder(election := _decode_election(record), user.name, fence.secret):
            return None
        return FencedTerm(fences.format_term(fence), Guard(key, fence.token), tuple(election.scheduler_names))

    async def _find_election(self, key: str, token: int) -> KeyValue | None:
        """Return the election's key if it has this token; None if it is deleted or does not exist yet.

        A single etcd response without the key may be stale (etcd#20418), so it is not sufficient: a leader steps down after
        a refusal.
        """
        record = self._cacher.raw_key(key)
        if not _has_token(record, token) and self._cacher.revision < token:
            record = await self._storage.get(key)
            for _ in range(STALE_ANSWERS + 1):
                if _has_token(record, token):
                    break
                await self._cacher.wait_until_fresh(FRESH_TIMEOUT)
                record = self._cacher.raw_key(key)
                if self._cacher.revision >= token:
                    break
        return record if _has_token(record, token) else None

    async def guard_call(self, user: User) -> None:
        """Guard the writes of the present call by the fences in its metadata. Raises Rejected if one does not hold, and the
        errors of `verify`."""
        presented = PRESENTED_FENCES.get()
        if not presented:
            return
        guards: list[Guard] = []
        for fence in presented:
            term = await self.verify(fence, user)
            if term is None:
                raise Rejected(errors.fenced_term(fence.election, fence.token))
            guards.append(term.guard)
        CURRENT_GUARDS.set(tuple(guards))


def read_fences(metadata: Iterable[tuple[str, str | bytes]]) -> None:
    """Store the fences in the metadata of the present call in PRESENTED_FENCES. Raises Rejected."""
    presented: tuple[Fence, ...] = ()
    for key, value in metadata:
        if key == fences.KEY:
            if len(presented) == MAX_FENCES:
                raise Rejected(errors.bad_request(f"too many fences: at most {MAX_FENCES} per call"))
            try:
                presented += (fences.parse(str(value)),)
            except ValueError as error:
                raise Rejected(errors.bad_request(str(error))) from None
    PRESENTED_FENCES.set(presented)


def hash_secret(secret: bytes) -> bytes:
    """Return the stored form of a secret. Secrets are random, so the hash needs no salt."""
    return sha256(secret).digest()


def is_holder(election: Election, user: str, secret: bytes) -> bool:
    """Return whether this user campaigned with this secret. A term without a hash, from an older server, has no holder."""
    return hmac.compare_digest(election.secret_hash, hash_secret(secret)) and election.user == user


def _has_token(record: KeyValue | None, token: int) -> bool:
    return record is not None and record.create_revision == token


def _decode_election(record: KeyValue) -> Election:
    try:
        return Election.FromString(record.value)
    except DecodeError:
        return Election()
