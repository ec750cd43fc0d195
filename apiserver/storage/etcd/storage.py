"""EtcdStorage: the storage interface over etcd, one call for each operation, with retries where the outcome allows them."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc
from aetcd.rpc import (
    CompactionRequest,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
    RangeRequest,
)

from apiserver.storage.etcd import codec
from apiserver.storage.etcd.errors import RevisionCompacted, Trouble, classify, describe
from apiserver.storage.etcd.members import REQUIRE_LEADER, Member, Members
from apiserver.storage.etcd.space import find_alarms, reclaim
from apiserver.storage.etcd.streams import send
from apiserver.storage.etcd.watch import oldest_revision, watch
from apiserver.storage.interface import (
    Changes,
    Committed,
    Compacted,
    KeyValue,
    LeaseNotFound,
    OutcomeUnknown,
    Page,
    Refused,
    Unavailable,
    Write,
)
from pinnace.runtime.tasks import CallCancelled, HeedsCancellation
from pinnace.runtime.tls import TlsFiles

QUICK = 0.4
"""Seconds after which what is answered at once or not at all is sent again. While etcd changes its leader a member may sit on a
request until long after the next one leads; sent again, it is answered. What was sent before may be answered yet: etcd may just
be slow. It is sent again after 0.4, 0.8, 1.2, 1.8, 2.7 and 4 s: not too often for a slow etcd, and often enough for a leader,
who must hear of a renewal within 1.9 s (`validity`)."""

IMPATIENCE = 2.0
"""Seconds after which a transaction is given up. When etcd's leader dies, what had been handed to it is lost and nobody says
so; the next leader is there within two seconds."""

ROUNDS = 3
"""How often each member may refuse what is repeated, such as for want of a leader."""
PAUSE = 0.05
"""Seconds after a refusal: a connection that is given up refuses what comes before the next one is there."""

LARGEST_LEASE = 2**63 - 1
"""The id of a lease is an int64, and 0 is none."""

Attempt = Callable[[Member, float], Any]
"""Starts one call to a member, with a timeout in seconds; awaitable."""


class EtcdStorage:
    """Made inside a running event loop; connects on first use. `endpoints` are host:port, `timeout` is for each call."""

    def __init__(self, endpoints: Sequence[str], *, tls: TlsFiles | None = None, timeout: float = 5.0) -> None:
        self._members = Members(endpoints, tls)
        self._watched = self._members.current
        self._timeout = timeout
        self._closed = False

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return codec.decode_first(await self._range(RangeRequest(key=key.encode(), revision=revision), self._ask_around))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        first = max(prefix.encode(), after.encode() + b"\0") if after else prefix.encode()
        end = codec.prefix_end(prefix.encode())
        response = await self._range(RangeRequest(key=first, range_end=end, limit=limit, revision=revision), self._read)
        return Page(revision or response.header.revision, [codec.decode_key_value(kv) for kv in response.kvs], response.more)

    async def current_revision(self) -> int:
        response = await self._range(RangeRequest(key=codec.ALL_KEYS, count_only=True), self._ask_around)
        return int(response.header.revision)

    async def transact(self, writes: Sequence[Write]) -> Committed | Refused:
        request = codec.encode_transaction(writes)
        response = await self._write(
            lambda member, timeout: member.kv.Txn(request, timeout=timeout, metadata=REQUIRE_LEADER),
            min(self._timeout, IMPATIENCE),
        )
        return codec.decode_transaction(response, writes)

    async def watch(self, start_revision: int) -> AsyncGenerator[Changes]:
        member = self._watched = self._members.current
        try:
            async with aclosing(watch(member, start_revision)) as batches:
                async for batch in batches:
                    yield batch
        except Unavailable:
            self._members.leave(member)
            raise
        except asyncio.CancelledError:
            if self._was_closed():
                raise _closed() from None
            raise

    def watch_stalled(self) -> None:
        self._members.leave(self._watched)

    async def compact(self, revision: int) -> None:
        """When etcd is out of space, this also gives the freed space back and lets writes in again."""
        alarms = await self._read(find_alarms)
        request = CompactionRequest(revision=revision, physical=bool(alarms))
        try:
            await self._write(lambda member, timeout: member.kv.Compact(request, timeout=timeout, metadata=REQUIRE_LEADER))
        except RevisionCompacted:
            raise await self._compacted(revision) from None
        finally:
            if alarms:
                await self._write(lambda member, timeout: reclaim(self._members, alarms, timeout))

    async def grant_lease(self, ttl: int) -> int:
        """The id is chosen here: etcd's own follow one another."""
        request = LeaseGrantRequest(TTL=ttl, ID=1 + secrets.randbelow(LARGEST_LEASE))
        response = await self._write(
            lambda member, timeout: member.lease.LeaseGrant(request, timeout=timeout, metadata=REQUIRE_LEADER)
        )
        return int(response.ID)

    async def renew_lease(self, lease: int) -> float:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        ttl = await self._ask_around(lambda member, timeout: _keep_alive(member, lease, timeout))
        if ttl <= 0:
            raise LeaseNotFound("the lease has expired or was revoked")
        return float(ttl - (loop.time() - sent))

    async def lease_age(self, lease: int) -> float:
        request = LeaseTimeToLiveRequest(ID=lease)
        response = await self._read(
            lambda member, timeout: member.lease.LeaseTimeToLive(request, timeout=timeout, metadata=REQUIRE_LEADER)
        )
        if response.TTL < 0:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        return float(max(0, response.grantedTTL - response.TTL))

    async def revoke_lease(self, lease: int) -> None:
        request = LeaseRevokeRequest(ID=lease)
        with suppress(LeaseNotFound):
            await self._write(
                lambda member, timeout: member.lease.LeaseRevoke(request, timeout=timeout, metadata=REQUIRE_LEADER)
            )

    async def close(self) -> None:
        """Ends what is under way with Unavailable."""
        self._closed = True
        await self._members.close()

    async def _range(self, request: RangeRequest, read: Callable[[Attempt], Awaitable[Any]]) -> Any:
        try:
            return await read(lambda member, timeout: member.kv.Range(request, timeout=timeout, metadata=REQUIRE_LEADER))
        except RevisionCompacted:
            raise await self._compacted(request.revision) from None

    async def _read(self, attempt: Attempt) -> Any:
        """Tries every member once, and the only one twice (the connection may have been dead, and a new one be well), each
        with its share of the time that is left. Also for writes that may be repeated."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        for left in range(max(2, len(self._members.all)), 0, -1):
            member = self._members.current
            try:
                return await self._ask(attempt, member, (deadline - asyncio.get_running_loop().time()) / left)
            except grpc.aio.AioRpcError as error:
                self._blame(member, error)
                failure = f"{member.endpoint}: {describe(error)}"
        raise Unavailable(failure)

    async def _ask_around(self, attempt: Attempt) -> Any:
        """For what is answered at once or not at all, and may be repeated: when a member has not answered for QUICK seconds the
        next one is asked as well, again and again, by and by less often; the first answer counts. Gives up in time, and sooner
        when members refuse instead of hanging: ROUNDS of that are enough. What fails together has failed once: with a
        connection goes all that was asked on it, and a new one may be well."""
        loop = asyncio.get_running_loop()
        began, refusals, failure = loop.time(), 0, ""
        asked: dict[asyncio.Future[Any], Member] = {}
        try:
            while refusals < ROUNDS * len(self._members.all) and (left := began + self._timeout - loop.time()) > 0:
                member = self._members.current
                asked[asyncio.ensure_future(self._ask(attempt, member, left))] = member
                patience = min(left, max(QUICK, (loop.time() - began) / 2))
                answered, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not answered:
                    self._members.leave(member)
                    failure = f"{member.endpoint}: no answer for {patience:.1f} s"
                for answer in answered:
                    blamed = asked.pop(answer)
                    try:
                        return answer.result()
                    except grpc.aio.AioRpcError as error:
                        self._blame(blamed, error)
                        failure = f"{blamed.endpoint}: {describe(error)}"
                    except (CallCancelled, grpc.aio.UsageError):
                        self._members.leave(blamed)
                        failure = f"{blamed.endpoint}: {_RETIRED}"
                if answered:
                    refusals += 1
                    await asyncio.sleep(PAUSE)
        finally:
            for late in asked:
                late.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise Unavailable(failure)

    async def _write(self, attempt: Attempt, timeout: float | None = None) -> Any:
        """Tries members until one takes it; the first of them has all the time there is."""
        deadline = asyncio.get_running_loop().time() + (self._timeout if timeout is None else timeout)
        for _ in self._members.all:
            member = self._members.current
            try:
                return await self._ask(attempt, member, deadline - asyncio.get_running_loop().time())
            except grpc.aio.AioRpcError as error:
                failure = f"{member.endpoint}: {describe(error)}"
                if self._blame(member, error) is Trouble.LOST:
                    raise OutcomeUnknown(failure) from None
            except CallCancelled:
                self._members.leave(member)
                raise OutcomeUnknown(f"{member.endpoint}: {_RETIRED}") from None
            except grpc.aio.UsageError:  # the channel was closed before the request was sent
                self._members.leave(member)
                failure = f"{member.endpoint}: {_RETIRED}"
        raise Unavailable(failure)

    async def _ask(self, attempt: Attempt, member: Member, timeout: float) -> Any:
        try:
            with HeedsCancellation():
                return await attempt(member, timeout)
        except (CallCancelled, grpc.aio.UsageError):
            if self._closed:
                raise _closed() from None
            raise

    def _was_closed(self) -> bool:
        """Whether that is why we were cancelled: closing a channel cancels its calls, and asks nobody to stop."""
        task = asyncio.current_task()
        return self._closed and task is not None and not task.cancelling()

    def _blame(self, member: Member, error: grpc.aio.AioRpcError) -> Trouble:
        """Leaves a member that is in trouble; raises when it is the request that is wrong."""
        verdict = classify(error)
        if not isinstance(verdict, Trouble):
            raise verdict from None
        self._members.leave(member)
        return verdict

    async def _compacted(self, asked: int) -> Compacted:
        oldest = await oldest_revision(self._members.current, self._timeout)
        return Compacted(oldest or asked + 1)


_RETIRED = "the connection was closed, because its certificate was replaced"


def _closed() -> Unavailable:
    return Unavailable("the storage is closed")


async def _keep_alive(member: Member, lease: int, timeout: float) -> int:
    """The lease's TTL in seconds, renewed; 0 when it is gone."""
    call = member.lease.LeaseKeepAlive(metadata=REQUIRE_LEADER, timeout=timeout)
    try:
        await send(call, LeaseKeepAliveRequest(ID=lease))
        response = await call.read()
        if response is grpc.aio.EOF:
            raise Unavailable(f"{member.endpoint} ended the stream of renewals")
        return int(response.TTL)
    finally:
        call.cancel()
