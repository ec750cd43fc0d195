"""The Keys service: the keys of the store, read-only.

Tools such as `pinnace etcd` and the timeline use it to show the stored state of a cluster. Clients that need objects use the
services of the resources, which read from the watch cache.

Each stream has its own etcd watch, because streams start at different revisions. At most MAX_STREAMS streams are open. A slow
client delays only its own etcd watch, and the server buffers nothing for it.

The responses never contain the values of Secrets or the hashes of candidates' secrets.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

from google.protobuf.message import DecodeError

from pinnace.api.elections_pb2 import Election
from pinnace.api.keys_pb2 import KeyVersion, ListKeysRequest, ListKeysResponse, WatchKeysRequest, WatchKeysResponse
from pinnace.api.resources import ELECTIONS_PREFIX
from pinnace.api.status import Code, Refusal
from pinnace.apiserver.errors import Rejected, bad_request
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.storage.interface import ChangeBatch, Compacted, KeyChange, KeyValue, LeaseNotFound, Storage

MAX_KEYS = 500
"""Maximum number of keys per page."""
MAX_LEASES = 50
"""Maximum number of leases that one list reads. Each needs a call to etcd."""
MAX_STREAMS = 16
"""Maximum number of open streams per server."""
SECRETS_PREFIX = "/registry/secrets/"


class KeysService:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._streams = 0

    async def list(self, request: ListKeysRequest, context: Context) -> ListKeysResponse:
        """Return a page of keys. Raises Rejected (OUT_OF_RANGE) for a compacted revision."""
        if request.revision < 0:
            raise Rejected(bad_request("revision: Invalid value: must be greater than or equal to 0"))
        if request.revision and request.revision > (current := await self._storage.current_revision()):
            message = f"revision {request.revision} is in the future; the current revision is {current}"
            raise Rejected(Refusal(Code.OUT_OF_RANGE, "Expired", message))
        limit = request.limit if 0 < request.limit <= MAX_KEYS else MAX_KEYS
        try:
            prefix = request.prefix or "/"  # etcd has no empty key
            page = await self._storage.page(prefix, after=request.after, limit=limit, revision=request.revision)
        except Compacted as compacted:
            raise _compacted_refusal(compacted) from None
        ages = await self._lease_ages(page.items) if request.leases else {}
        items = [_key_response(item, ages.get(item.lease), keys_only=request.keys_only) for item in page.items]
        return ListKeysResponse(revision=page.revision, items=items, more=page.more)

    async def watch(self, request: WatchKeysRequest, context: Context) -> AsyncIterator[WatchKeysResponse]:
        """Yield changes of keys. Raises Rejected."""
        if request.start_revision < 0:
            raise Rejected(bad_request("start_revision: Invalid value: must be greater than or equal to 0"))
        if self._streams >= MAX_STREAMS:
            message = f"at most {MAX_STREAMS} watches of keys per server; close one, or use another server"
            raise Rejected(Refusal(Code.RESOURCE_EXHAUSTED, "TooManyRequests", message))
        self._streams += 1
        try:
            prefixes = tuple(request.prefixes)
            start = request.start_revision or await self._storage.current_revision() + 1
            async with aclosing(cast(AsyncGenerator[ChangeBatch], self._storage.watch(start))) as received:
                async for changes in received:
                    result = [change for change in changes.changes if not prefixes or change.key.startswith(prefixes)]
                    if result or not changes.changes:
                        versions = [_change_response(item, keys_only=request.keys_only) for item in result]
                        yield WatchKeysResponse(revision=changes.revision, changes=versions)
        except Compacted as compacted:
            raise _compacted_refusal(compacted) from None
        finally:
            self._streams -= 1

    async def _lease_ages(self, items: Sequence[KeyValue]) -> dict[int, float]:
        """Return the seconds since the last grant or renewal, by lease."""
        ages: dict[int, float] = {}
        for lease in list(dict.fromkeys(item.lease for item in items if item.lease))[:MAX_LEASES]:
            try:
                ages[lease] = await self._storage.lease_age(lease)
            except LeaseNotFound:
                continue
        return ages


def _compacted_refusal(compacted: Compacted) -> Rejected:
    message = f"the revision was compacted; the oldest revision is {compacted.compact_revision}"
    return Rejected(Refusal(Code.OUT_OF_RANGE, "Expired", message))


def _key_response(item: KeyValue, age: float | None, *, keys_only: bool) -> KeyVersion:
    return KeyVersion(
        key=item.key,
        value=b"" if keys_only else redact_value(item.key, item.value),
        create_revision=item.create_revision,
        mod_revision=item.mod_revision,
        version=item.version,
        lease=item.lease,
        lease_age_seconds=age,
        size=len(item.value),
    )


def _change_response(change: KeyChange, *, keys_only: bool) -> KeyVersion:
    value = change.value
    return KeyVersion(
        key=change.key,
        value=b"" if keys_only or value is None else redact_value(change.key, value),
        create_revision=change.create_revision if value is not None else 0,
        mod_revision=change.mod_revision,
        lease=change.lease,
        deleted=value is None,
        size=len(value or b""),
    )


def redact_value(key: str, value: bytes) -> bytes:
    """Return the value without secrets."""
    if key.startswith(SECRETS_PREFIX):
        return b""
    if key.startswith(ELECTIONS_PREFIX):
        try:
            election = Election.FromString(value)
        except DecodeError:
            return b""
        election.ClearField("secret_hash")
        return election.SerializeToString()
    return value
