"""EtcdStorage: the storage interface for etcd. Each operation is one call, with retries where the outcome permits them.

A watch stream delivers whole revisions in order, and ends with an error that contains the reason:

    create --> created --> events* --> canceled (compacted) --> Compacted
                  |           |    --> canceled (other)     --> StorageUnavailable
                  +-- silence: request progress; still silent --> StorageUnavailable
                  +-- a gap, or no events although the store is ahead --> StorageUnavailable

Properties of etcd's watches:

* A response that is not a fragment contains whole revisions (etcd's eventBatch). A response may be split into fragments between
  any two events, so the last revision of a fragment is held back until it is known to be complete.
* While the watch catches up, the revision in a response's header may be ahead of its events. A batch is complete up to the
  revision of its last event, not up to the header's.
* The response to a manual progress request (watch id -1) may overtake events (etcd#15220, until 3.4.25 and 3.5.8). So it proves
  only that the stream is alive. The events up to its revision must follow soon.
* Every revision changes a key, so a watch of all keys receives each revision. A missing revision is a loss (etcd#17529): the
  watch ends before it delivers later changes.
* A watch that starts at exactly the compacted revision may lose its deletes (etcd#18089, #19179). The stream is opened one
  revision earlier than requested, and the additional revision is dropped. Then etcd refuses with "compacted" instead.

Recovery from the NOSPACE alarm: etcd raises it when its file reaches --quota-backend-bytes. It then refuses puts and new
leases, but serves reads, deletes and compaction, until an operator has compacted it, defragmented the members and cleared the
alarm. Compaction alone frees space inside the file, and does not reduce the size of the file.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc
from aetcd.rpc import (
    NOSPACE,
    AlarmRequest,
    CompactionRequest,
    DefragmentRequest,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseRevokeRequest,
    LeaseTimeToLiveRequest,
    RangeRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
)

from pinnace.apiserver.storage.etcd import codec
from pinnace.apiserver.storage.etcd.codec import (
    ALL_KEYS,
    MemberFailure,
    RevisionCompacted,
    classify_error,
    decode_event,
    describe_rpc_error,
)
from pinnace.apiserver.storage.etcd.members import REQUIRE_LEADER, EtcdMember, EtcdMembers
from pinnace.apiserver.storage.interface import (
    ChangeBatch,
    CommitOutcomeUnknown,
    Committed,
    Compacted,
    CompareFailed,
    KeyChange,
    KeyPage,
    KeyValue,
    LeaseNotFound,
    StorageUnavailable,
    Write,
)
from pinnace.runtime.tasks import CallCancelled, CancellationGuard
from pinnace.runtime.tls import TlsFiles

QUICK = 0.4
"""Seconds after which a call that etcd completes immediately or never is repeated. During a change of its leader, a member may
hold a request until long after the next election, and answers a repeated one. The first request may still be answered, because
etcd may only be slow. Repetitions after 0.4, 0.8, 1.2, 1.8, 2.7 and 4 s do not overload a slow etcd, and are frequent enough
for leaders, which need the result of a renewal within 1.9 s (`validity`)."""

IMPATIENCE = 2.0
"""Timeout of a transaction in seconds. When etcd's leader dies, its requests are lost without an error. The next leader is
elected within two seconds."""

ROUNDS = 3
"""Number of refusals by each member, for example without a leader, after which a repeated call fails."""
PAUSE = 0.05
"""Seconds after a refusal. A closed connection refuses calls until the next one is open."""

LARGEST_LEASE = 2**63 - 1
"""The id of a lease is an int64, and 0 means no lease."""

Attempt = Callable[[EtcdMember, float], Any]
"""Starts one call to a member, with a timeout in seconds, and returns an awaitable."""

_RETIRED = "the connection was closed, because its certificate was replaced"

PROBE_INTERVAL = 1.0
"""Seconds without a response after which progress is requested, repeatedly."""
SILENCE_LIMIT = 4.0
"""Seconds without a response after which the stream is considered dead."""
SUSPECT_INTERVAL, SUSPECT_LIMIT = 0.2, 0.6
"""The same for the watch of a member that other calls have left, because it failed or did not answer for QUICK seconds: seconds
between requests of progress, and seconds after the first one. If its machine is dead, the connection would break only after two
to three seconds, and until then no leader is elected. If it is not, the watch resumes at another member."""
_PROBE = WatchRequest(progress_request=WatchProgressRequest())

FIRST_REVISION = 1
"""The revision of a new store. No event has it."""

log = logging.getLogger(__name__)

DEFRAGMENT_TIMEOUT = 60.0
"""Seconds. A member serves nothing during defragmentation, which copies its file (roughly 1 GB in 10 s)."""
_GET: int = AlarmRequest.AlarmAction.Value("GET")
_DEACTIVATE: int = AlarmRequest.AlarmAction.Value("DEACTIVATE")


class EtcdStorage:
    """Storage in etcd. Create it inside a running event loop. It connects at the first call. `endpoints`: host:port. `timeout`:
    seconds per call."""

    def __init__(self, endpoints: Sequence[str], *, tls: TlsFiles | None = None, timeout: float = 5.0) -> None:
        self._members = EtcdMembers(endpoints, tls)
        self._watched = self._members.current
        self._timeout = timeout
        self._closed = False

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return codec.decode_first(await self._read_range(RangeRequest(key=key.encode(), revision=revision), self._call_members))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        first = max(prefix.encode(), after.encode() + b"\0") if after else prefix.encode()
        end = codec.prefix_end(prefix.encode())
        response = await self._read_range(
            RangeRequest(key=first, range_end=end, limit=limit, revision=revision), self._call_with_retry
        )
        return KeyPage(revision or response.header.revision, [codec.decode_key_value(kv) for kv in response.kvs], response.more)

    async def current_revision(self) -> int:
        response = await self._read_range(RangeRequest(key=codec.ALL_KEYS, count_only=True), self._call_members)
        return int(response.header.revision)

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        request = codec.encode_transaction(writes)
        response = await self._write(
            lambda member, timeout: member.kv.Txn(request, timeout=timeout, metadata=REQUIRE_LEADER),
            min(self._timeout, IMPATIENCE),
        )
        return codec.decode_transaction(response, writes)

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        member = self._watched = self._members.current
        try:
            async with aclosing(watch_member(member, start_revision, lambda: member is not self._members.current)) as batches:
                async for batch in batches:
                    yield batch
        except StorageUnavailable:
            self._members.switch_member(member)
            raise
        except asyncio.CancelledError:
            if self._is_closed_by_us():
                raise _closed_error() from None
            raise

    def watch_stalled(self) -> None:
        self._members.switch_member(self._watched)

    async def compact(self, revision: int) -> None:
        """Compact the history. If etcd is out of space, also free the space and clear the alarm."""
        alarms = await self._call_with_retry(find_alarms)
        request = CompactionRequest(revision=revision, physical=bool(alarms))
        try:
            await self._write(lambda member, timeout: member.kv.Compact(request, timeout=timeout, metadata=REQUIRE_LEADER))
        except RevisionCompacted:
            raise await self._compacted_error(revision) from None
        finally:
            if alarms:
                await self._write(lambda member, timeout: defragment_members(self._members, alarms, timeout))

    async def grant_lease(self, ttl: int) -> int:
        """Grant a lease with a random id, because etcd's own ids are predictable."""
        request = LeaseGrantRequest(TTL=ttl, ID=1 + secrets.randbelow(LARGEST_LEASE))
        response = await self._write(
            lambda member, timeout: member.lease.LeaseGrant(request, timeout=timeout, metadata=REQUIRE_LEADER)
        )
        return int(response.ID)

    async def renew_lease(self, lease: int) -> float:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        ttl = await self._call_members(lambda member, timeout: _keep_lease_alive(member, lease, timeout))
        if ttl <= 0:
            raise LeaseNotFound("the lease has expired or was revoked")
        return float(ttl - (loop.time() - sent))

    async def lease_age(self, lease: int) -> float:
        request = LeaseTimeToLiveRequest(ID=lease)
        response = await self._call_with_retry(
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
        """Close the connections. Calls in progress end with StorageUnavailable."""
        self._closed = True
        await self._members.close()

    async def _read_range(self, request: RangeRequest, read: Callable[[Attempt], Awaitable[Any]]) -> Any:
        try:
            return await read(lambda member, timeout: member.kv.Range(request, timeout=timeout, metadata=REQUIRE_LEADER))
        except RevisionCompacted:
            raise await self._compacted_error(request.revision) from None

    async def _call_with_retry(self, attempt: Attempt) -> Any:
        """Run a read, or a write that may be repeated, on each member once, or twice if there is only one (the connection may
        have failed). Each attempt gets its share of the remaining time."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        for left in range(max(2, len(self._members.all)), 0, -1):
            member = self._members.current
            try:
                return await self._call_member(attempt, member, (deadline - asyncio.get_running_loop().time()) / left)
            except grpc.aio.AioRpcError as error:
                self._classify_failure(member, error)
                failure = f"{member.endpoint}: {describe_rpc_error(error)}"
        raise StorageUnavailable(failure)

    async def _call_members(self, attempt: Attempt) -> Any:
        """Run a call that etcd completes immediately or never, and that may be repeated.

        If a member has not answered for QUICK seconds, the call is also sent to the next member, and so on with increasing
        delays. The first response counts. The call fails at the timeout, or earlier if members refuse: after ROUNDS refusals
        per member. Simultaneous failures count once, because a broken connection fails all of its calls.
        """
        loop = asyncio.get_running_loop()
        began, refusals, failure = loop.time(), 0, ""
        asked: dict[asyncio.Future[Any], EtcdMember] = {}
        try:
            while refusals < ROUNDS * len(self._members.all) and (left := began + self._timeout - loop.time()) > 0:
                member = self._members.current
                asked[asyncio.ensure_future(self._call_member(attempt, member, left))] = member
                patience = min(left, max(QUICK, (loop.time() - began) / 2))
                answered, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not answered:
                    self._members.switch_member(member)
                    failure = f"{member.endpoint}: no response within {patience:.1f} s"
                for answer in answered:
                    blamed = asked.pop(answer)
                    try:
                        return answer.result()
                    except grpc.aio.AioRpcError as error:
                        self._classify_failure(blamed, error)
                        failure = f"{blamed.endpoint}: {describe_rpc_error(error)}"
                    except (CallCancelled, grpc.aio.UsageError):
                        self._members.switch_member(blamed)
                        failure = f"{blamed.endpoint}: {_RETIRED}"
                if answered:
                    refusals += 1
                    await asyncio.sleep(PAUSE)
        finally:
            if asked:  # an empty gather takes an iteration of the event loop
                for late in asked:
                    late.cancel()
                await asyncio.gather(*asked, return_exceptions=True)
        raise StorageUnavailable(failure)

    async def _write(self, attempt: Attempt, timeout: float | None = None) -> Any:
        """Try members until one accepts the write. The first attempt may use all of the time."""
        deadline = asyncio.get_running_loop().time() + (self._timeout if timeout is None else timeout)
        for _ in self._members.all:
            member = self._members.current
            try:
                return await self._call_member(attempt, member, deadline - asyncio.get_running_loop().time())
            except grpc.aio.AioRpcError as error:
                failure = f"{member.endpoint}: {describe_rpc_error(error)}"
                if self._classify_failure(member, error) is MemberFailure.LOST:
                    raise CommitOutcomeUnknown(failure) from None
            except CallCancelled:
                self._members.switch_member(member)
                raise CommitOutcomeUnknown(f"{member.endpoint}: {_RETIRED}") from None
            except grpc.aio.UsageError:  # the channel was closed before the request was sent
                self._members.switch_member(member)
                failure = f"{member.endpoint}: {_RETIRED}"
        raise StorageUnavailable(failure)

    async def _call_member(self, attempt: Attempt, member: EtcdMember, timeout: float) -> Any:
        try:
            with CancellationGuard():
                return await attempt(member, timeout)
        except (CallCancelled, grpc.aio.UsageError):
            if self._closed:
                raise _closed_error() from None
            raise

    def _is_closed_by_us(self) -> bool:
        """Return whether `close` caused the cancellation: a closed channel cancels its calls, but not their tasks."""
        task = asyncio.current_task()
        return self._closed and task is not None and not task.cancelling()

    def _classify_failure(self, member: EtcdMember, error: grpc.aio.AioRpcError) -> MemberFailure:
        """Switch to another member if the member failed. Raises the error if the request caused it."""
        verdict = classify_error(error)
        if not isinstance(verdict, MemberFailure):
            raise verdict from None
        self._members.switch_member(member)
        return verdict

    async def _compacted_error(self, asked: int) -> Compacted:
        oldest = await oldest_revision(self._members.current, self._timeout)
        return Compacted(oldest or asked + 1)


def _closed_error() -> StorageUnavailable:
    return StorageUnavailable("the storage is closed")


async def _keep_lease_alive(member: EtcdMember, lease: int, timeout: float) -> int:
    """Renew the lease and return its TTL in seconds; 0 if it is gone."""
    call = member.lease.LeaseKeepAlive(metadata=REQUIRE_LEADER, timeout=timeout)
    try:
        await send_request(call, LeaseKeepAliveRequest(ID=lease))
        response = await call.read()
        if response is grpc.aio.EOF:
            raise StorageUnavailable(f"{member.endpoint} ended the stream of lease renewals")
        return int(response.TTL)
    finally:
        call.cancel()


class FragmentAssembler:
    """Assembles fragments to whole revisions. Pure. `revision`: all changes up to it were returned."""

    def __init__(self, start_revision: int) -> None:
        self.revision = max(start_revision - 1, FIRST_REVISION)
        self._fragments: list[KeyChange] = []

    def add(self, response: Any) -> list[KeyChange]:
        """Return the changes that are complete now. Raises StorageUnavailable if a revision is missing."""
        changes = self._fragments
        changes.extend(map(decode_event, response.events))
        self._fragments = []
        if response.fragment and changes:
            whole = len(changes) - 1
            while whole and changes[whole - 1].mod_revision == changes[-1].mod_revision:
                whole -= 1
            changes, self._fragments = changes[:whole], changes[whole:]
        if changes and changes[0].mod_revision <= self.revision:
            changes = [change for change in changes if change.mod_revision > self.revision]
        if changes:
            _require_no_gap(self.revision, changes)
            self.revision = changes[-1].mod_revision
        return changes


class StallDetector:
    """Detects a watch that is alive but delivers no events. Pure. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def check_response(self, response: Any, revision_reached: int, now: float) -> None:
        """Check a response. `revision_reached`: the revision that the watch has reached. Raises StorageUnavailable if the watch
        has been behind the store for too long without an event."""
        if response.events or response.header.revision <= revision_reached:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= SILENCE_LIMIT:
            store = response.header.revision
            raise StorageUnavailable(
                f"the watch delivers nothing after revision {revision_reached}, although the store is at revision {store}"
            )


async def watch_member(
    member: EtcdMember, start_revision: int, is_suspect: Callable[[], bool] = lambda: False
) -> AsyncGenerator[ChangeBatch]:
    """Watch all keys from `start_revision` on. `is_suspect`: whether other calls have left the member. Raises Compacted,
    StorageUnavailable. The call is cancelled when the watch is closed."""
    assembler, stall = FragmentAssembler(start_revision), StallDetector()
    loop = asyncio.get_running_loop()
    call = member.watch.Watch(metadata=REQUIRE_LEADER)
    reader = WatchReader(call, is_suspect)
    probing = asyncio.create_task(reader.probe_silent_watch())
    try:
        await _write(call, WatchRequest(create_request=_watch_all_request(max(1, start_revision - 1))))
        while True:
            response = await reader.read()
            if response.canceled:
                raise _watch_cancel_error(response)
            changes = assembler.add(response)
            stall.check_response(response, assembler.revision, loop.time())
            if changes or not response.events:
                yield ChangeBatch(assembler.revision, changes)
    except grpc.aio.AioRpcError as error:
        raise StorageUnavailable(f"the watch on {member.endpoint} failed: {describe_rpc_error(error)}") from None
    finally:
        probing.cancel()
        call.cancel()


async def oldest_revision(member: EtcdMember, timeout: float) -> int | None:
    """Return the compacted revision, which etcd reports only to watches from before it. None if etcd does not respond in
    time."""
    call = member.watch.Watch(metadata=REQUIRE_LEADER, timeout=timeout)
    try:
        await send_request(call, WatchRequest(create_request=_watch_all_request(1)))
        with CancellationGuard():
            async for response in call:
                if response.canceled:
                    return int(response.compact_revision) or None
    except (grpc.aio.AioRpcError, CallCancelled):
        pass
    finally:
        call.cancel()
    return None


class WatchReader:
    """Reads the responses of a watch's call. `probe_silent_watch` must run concurrently.

    `read` awaits the call, without a task and a timeout of its own. It then takes two iterations of the event loop, instead of
    five. On a busy server an iteration takes 10 ms or more, and the watch must keep up with all revisions: otherwise, up to 200
    of them wait in etcd and in the connection, and the cache is seconds behind.
    """

    def __init__(self, call: Any, is_suspect: Callable[[], bool] = lambda: False) -> None:
        self._call = call
        self._is_suspect = is_suspect
        self._reading_since: float | None = None
        self._silence = ""

    async def read(self) -> Any:
        """Return the next response. Raises StorageUnavailable if none arrives although progress was requested."""
        self._reading_since = asyncio.get_running_loop().time()
        try:
            with CancellationGuard():
                response = await self._call.read()
        except CallCancelled:  # closing a channel cancels its calls
            raise StorageUnavailable(self._silence or "the connection of the watch was closed") from None
        finally:
            self._reading_since = None
        if response is grpc.aio.EOF:
            raise StorageUnavailable("etcd ended the watch")
        return response

    async def probe_silent_watch(self) -> None:
        """Request progress after each PROBE_INTERVAL without a response. Cancel the call after SILENCE_LIMIT. Both are shorter
        for a suspect member."""
        loop = asyncio.get_running_loop()
        asked = probed = loop.time()
        while not self._silence:
            suspect = self._is_suspect()
            interval = SUSPECT_INTERVAL if suspect else PROBE_INTERVAL
            since, now = self._reading_since, loop.time()
            due = max(since or now, probed) + interval
            if since is None or now < due:
                await asyncio.sleep(min(due - now, SUSPECT_INTERVAL))
                continue
            if probed <= since:  # the first request after the last response
                asked = now
            probed = now
            if now - since >= SILENCE_LIMIT or (suspect and now - asked >= SUSPECT_LIMIT):
                silence = f"the watch received nothing for {now - since:.1f} s"
                self._silence = f"{silence}, not even progress (etcd's gRPC proxy sends none: connect to the members)"
            else:
                try:
                    await _write(self._call, _PROBE)
                except StorageUnavailable as error:
                    self._silence = str(error)
        self._call.cancel()


async def _write(call: Any, request: WatchRequest) -> None:
    try:
        # asyncio.wait_for would swallow a cancellation at the end of the write, until Python 3.12.
        async with asyncio.timeout(SILENCE_LIMIT):
            with CancellationGuard():
                await call.write(request)
    except TimeoutError:
        raise StorageUnavailable(f"the watch could not send its request within {SILENCE_LIMIT:g} s") from None
    except (asyncio.InvalidStateError, CallCancelled):
        pass  # the call has ended; the next read raises the error


def _require_no_gap(revision_reached: int, changes: list[KeyChange]) -> None:
    for change in changes:
        if change.mod_revision > revision_reached + 1:
            raise StorageUnavailable(
                f"etcd omitted the events of revisions {revision_reached + 1} to {change.mod_revision - 1}"
            )
        revision_reached = change.mod_revision


def _watch_all_request(revision: int) -> WatchCreateRequest:
    return WatchCreateRequest(key=ALL_KEYS, range_end=ALL_KEYS, start_revision=revision, progress_notify=True, fragment=True)


def _watch_cancel_error(response: Any) -> Compacted | StorageUnavailable:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return StorageUnavailable(f"etcd canceled the watch: {response.cancel_reason or 'no reason given'}")


async def send_request(call: Any, request: Any) -> None:
    """Write a request, or return if the call has ended: the next `read` raises the error.

    Without this function, grpcio waits for the metadata to be sent. If that fails, it waits forever, regardless of the deadline
    (`_StreamRequestMixin._write`).
    """
    writing = asyncio.ensure_future(call.write(request))
    ended = asyncio.ensure_future(call.code())
    try:
        await asyncio.wait((writing, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        writing.cancel()
        ended.cancel()
        await asyncio.gather(writing, ended, return_exceptions=True)


async def find_alarms(member: EtcdMember, timeout: float) -> list[int]:
    """Return the ids of the members that are out of space. Raises AioRpcError."""
    request = AlarmRequest(action=_GET, alarm=NOSPACE)
    response = await member.maintenance.Alarm(request, timeout=timeout, metadata=REQUIRE_LEADER)
    return [alarm.memberID for alarm in response.alarms if alarm.alarm == NOSPACE]


async def defragment_members(members: EtcdMembers, alarms: list[int], timeout: float) -> None:
    """Defragment the members one after another, and clear the alarms. If the space is not sufficient, the next put raises an
    alarm again. Raises AioRpcError if an alarm cannot be cleared."""
    for member in members.all:
        try:
            await member.maintenance.Defragment(DefragmentRequest(), timeout=DEFRAGMENT_TIMEOUT)
            log.info("defragmented etcd member %s", member.endpoint)
        except grpc.aio.AioRpcError as error:
            log.warning("cannot defragment etcd member %s: %s", member.endpoint, describe_rpc_error(error))
    for alarm in alarms:
        request = AlarmRequest(action=_DEACTIVATE, memberID=alarm, alarm=NOSPACE)
        await members.current.maintenance.Alarm(request, timeout=timeout, metadata=REQUIRE_LEADER)
