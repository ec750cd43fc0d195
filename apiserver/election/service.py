"""The gRPC service Elections: campaigns, reads of elections, and transfers of leadership.

A transfer:

    nominate --a candidate accepts--> depose, guarded by the nomination --> wait for the next leader --> delete the nomination
        '---timeout: the leader stays; NOT_FOUND

Guarantees: the leader is deposed only after the requested candidate has accepted. The API server of its session accepts for it
if its last heartbeat is recent, so an unknown or frozen candidate has no effect. The deposition compares the key's mod_revision
and the nomination's create_revision, so it cannot end another term. The nomination has an etcd lease of NOMINATION_TTL, so it
expires even if this server stops.

Not guaranteed: the requested candidate can stop after it has accepted. Another candidate is then elected after one second.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

from pinnace.api.elections_pb2 import (
    CampaignRequest,
    CampaignResponse,
    Election,
    ElectionHistoryRequest,
    ElectionHistoryResponse,
    ElectionWatchResponse,
    GetElectionRequest,
    ListElectionsRequest,
    ListElectionsResponse,
    Nomination,
    Term,
    TransferElectionRequest,
    TransferElectionResponse,
    WatchElectionsRequest,
)
from pinnace.api.fences import MAX_SECRET
from pinnace.api.names import dns_subdomain
from pinnace.api.resources import (
    ELECTIONS_PREFIX,
    NOMINATIONS_PREFIX,
    election_key,
    nomination_key,
    terms_prefix,
)
from pinnace.api.scalars import to_micro_time, to_seconds
from pinnace.api.status import Code, Refusal
from pinnace.api.terms import TermEnd
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.permissions import CAMPAIGN, CAMPAIGN_FOR, ActionTarget
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.election.campaign import CampaignSession
from pinnace.apiserver.election.candidate_queue import CandidateQueue
from pinnace.apiserver.election.leader_key import CandidateIdentity, LeaderKey
from pinnace.apiserver.election.term_history import (
    MAX_STORED_TERMS,
    HistoryWriter,
    decode_terms,
    is_history_complete,
    terms_with_presumed_ends,
)
from pinnace.apiserver.election.watch import ElectionWatch, election_names, election_state, election_with_candidates
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.fencing import MIN_SECRET
from pinnace.apiserver.services.methods import Context, read_timeout
from pinnace.apiserver.services.sessions import (
    MAX_HOLDER,
    SessionStream,
    SessionStreams,
    StreamEvent,
    Timing,
    decode_record,
    election_of,
)
from pinnace.apiserver.storage.committer import Committer, GuardFailed, WriteConflict
from pinnace.apiserver.storage.interface import Guard, KeyChange, KeyValue, Storage, StorageError, Write
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

NOMINATION_TTL = 4
"""The TTL of a nomination in seconds: more than ACCEPTANCE_TIMEOUT and SUCCESSION_TIMEOUT."""
ACCEPTANCE_TIMEOUT = 1.0
"""Maximum seconds for a candidate to accept. The watch cache of its API server can be behind."""
SUCCESSION_TIMEOUT = 2.0
"""Maximum seconds to wait for the next leader: more than NOMINEE_PRECEDENCE, for which others wait for the nominee."""
MAX_SCHEDULER_NAMES = 64
"""Maximum number of scheduler names of a candidate. They are stored in the election's key."""
MAX_SCHEDULER_NAME = 253
"""Maximum characters of a scheduler name."""
MAX_CONFIGURATION = 128
"""Maximum characters of a configuration digest."""
HISTORY_TIMEOUT = 1.0
"""Maximum seconds to wait until other servers have written their records. Later records are presumed to be lost."""


class LeadershipTransfer:
    """One transfer of leadership. Call `run` once, after `Cacher.wait_until_fresh`."""

    def __init__(
        self, name: str, to: str, storage: Storage, committer: Committer, cacher: Cacher, terms: HistoryWriter, clock: Clock
    ) -> None:
        self._name = name
        self._to = to
        self._key = election_key(name)
        self._nomination_key = nomination_key(name)
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._history = terms
        self._clock = clock
        self._changed = asyncio.Event()

    async def run(self) -> TransferElectionResponse:
        """Execute the transfer. Raises Rejected and StorageError. After CommitOutcomeUnknown the leader may have been
        deposed."""
        record = self._cacher.raw_key(self._key)
        if record is None:
            raise Rejected(no_leader(self._name))
        before = election_of(record)
        if self._to and before.holder == self._to:
            return TransferElectionResponse(before=before, after=before)
        lease = await self._storage.grant_lease(NOMINATION_TTL)
        unsubscribe_nomination = self._cacher.subscribe(self._nomination_key, lambda change: self._changed.set())
        unsubscribe_key = self._cacher.subscribe(self._key, lambda change: self._changed.set())
        try:
            return await self._transfer_leadership(before, lease)
        finally:
            unsubscribe_nomination()
            unsubscribe_key()
            with suppress(StorageError):  # the lease expires
                await self._storage.revoke_lease(lease)

    async def _transfer_leadership(self, before: Election, lease: int) -> TransferElectionResponse:
        nomination = Nomination(election=self._name, token=before.token, holder=self._to)
        write = Write(self._nomination_key, nomination.SerializeToString(), expected=0, lease=lease)
        try:
            nominated = await self._write_nomination(write)
        except WriteConflict:
            raise Rejected(_transfer_in_progress(self._name)) from None
        nominee = await self._wait_for_key(self._nomination_key, partial(_accepted_nomination, nominated), ACCEPTANCE_TIMEOUT)
        if nominee is None:
            raise Rejected(_no_candidate(self._name, self._to, before.holder))
        over = await self._depose_leader(before, nominated, nominee.holder)
        after = None
        with suppress(StorageError):  # the leader has been deposed
            after = await self._wait_for_key(self._key, partial(_next_leader, before.token), SUCCESSION_TIMEOUT)
        began = to_seconds(after.since) if after is not None else self._clock.time()
        gap = TermEnd.of(over).gap(began) or 0.0
        return TransferElectionResponse(before=before, after=after, gap_micros=round(gap * 1e6))

    async def _write_nomination(self, write: Write) -> int:
        """Create the nomination, and return its revision. Raises WriteConflict if another one exists. A nomination that cannot
        be decoded is replaced."""
        try:
            return await self._committer.commit(write)
        except WriteConflict as conflict:
            result = conflict.current
            if result is None or decode_record(Nomination, result.value) is not None:
                raise
        await self._committer.commit(Write(write.key, None, expected=result.mod_revision))
        return await self._committer.commit(write)

    async def _depose_leader(self, before: Election, nominated: int, nominee: str) -> Term:
        """Delete the key of this term, even if its session has moved to another server. Return the ended term."""
        record = self._cacher.raw_key(self._key)
        ended = to_micro_time(self._clock.time())
        while record is not None and record.create_revision == before.token:
            guard = Guard(self._nomination_key, nominated)
            try:
                await self._committer.commit(Write(self._key, None, expected=record.mod_revision, guards=(guard,)))
            except WriteConflict as conflict:
                record = conflict.current
            except GuardFailed:
                raise Rejected(_transfer_timed_out(self._name, before.holder)) from None
            else:
                term = Term(election=self._name, holder=before.holder, token=before.token, began=before.since, ended=ended)
                term.reason = f"transferred to {nominee}"
                self._history.queue_record(term)
                return term
        raise Rejected(_term_ended_refusal(self._name, before.holder))

    async def _wait_for_key(self, key: str, select: Callable[[KeyValue | None], T | None], timeout: float) -> T | None:
        """Return the first result of `select` for this key in the cache that is not None. After `timeout` seconds, return the
        result for the key in etcd, because the cache can be behind. Raises StorageError."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while (result := select(self._cacher.raw_key(key))) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return result
        return select(await self._storage.get(key))


def _accepted_nomination(nominated: int, record: KeyValue | None) -> Nomination | None:
    """Return the nomination with this create_revision, if a candidate has accepted it. The cache can still contain an older
    one."""
    if record is None or record.create_revision != nominated:
        return None
    nomination = decode_record(Nomination, record.value)
    return nomination if nomination and nomination.session else None


def _next_leader(token: int, record: KeyValue | None) -> Election | None:
    return election_of(record) if record is not None and record.create_revision > token else None


def no_leader(election: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "NotFound", f'election "{election}" has no leader')


def _no_candidate(election: str, wanted: str, leader: str) -> Refusal:
    who = f'no candidate "{wanted}"' if wanted else "no other candidate"
    message = f'election "{election}" has {who}: {leader} remains the leader'
    return Refusal(Code.NOT_FOUND, "NoCandidate", message)


def _transfer_in_progress(election: str) -> Refusal:
    message = f'election "{election}": another transfer is in progress'
    return Refusal(Code.ABORTED, "Conflict", message, retry_after=float(NOMINATION_TTL))


def _transfer_timed_out(election: str, leader: str) -> Refusal:
    message = f'election "{election}": the transfer timed out: {leader} remains the leader'
    return Refusal(Code.ABORTED, "Conflict", message)


def _term_ended_refusal(election: str, leader: str) -> Refusal:
    return Refusal(Code.ABORTED, "Conflict", f'election "{election}": the term of {leader} ended during the transfer')


DEFAULT_LEASE, MAX_LEASE = 2, 60
"""The TTL of leases of elections in seconds: the default, which is etcd's minimum, and the maximum."""


def election_timing(ttl: int) -> Timing:
    """Return the times of elections with leases of `ttl` seconds. The interval does not depend on it, because candidates try
    another server after half a second without an answer (pinnace.client.election)."""
    return Timing(interval=0.2, silence=ttl / 2, ttl=ttl)


TIMING = election_timing(DEFAULT_LEASE)
"""Short times are safe, because the fencing token protects writes independently of clocks.

`silence` determines the failover time of a frozen leader. `ttl` determines for how long a leader continues while etcd is
unavailable (the validity of 1.9 s covers an etcd leader election: pinnace/cluster/etcd.py), and the failover time if a leader
and its API server fail together.
"""


class ElectionsService:
    """The gRPC service Elections."""

    def __init__(
        self,
        storage: Storage,
        committer: Committer,
        history_committer: Committer,
        cacher: Cacher,
        authorizer: Authorizer,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        timing: Timing = TIMING,
    ) -> None:
        """`committer` writes the keys of elections. `history_committer` writes the election history; no call
        waits for it."""
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._authorizer = authorizer
        self._clock = clock
        self._timing = timing
        self._queues: dict[str, CandidateQueue] = {}
        self._streams = SessionStreams()
        self._watches: set[ElectionWatch] = set()
        self._history = HistoryWriter(storage, history_committer, clock, timing.ttl, rng or random.Random())
        cacher.subscribe(ELECTIONS_PREFIX, self._handle_key_change)
        cacher.subscribe(NOMINATIONS_PREFIX, self._handle_key_change)

    async def run(self) -> None:
        """Write the election history until cancelled."""
        await self._history.run()

    async def campaign(self, requests: AsyncIterator[CampaignRequest], context: Context) -> AsyncIterator[CampaignResponse]:
        stream = SessionStream[CampaignRequest, CampaignResponse](requests, self._timing, self._clock)
        async for response in self._streams.serve_stream(stream, lambda: self._serve_campaign(stream, context.user)):
            yield response

    async def get(self, request: GetElectionRequest, context: Context) -> Election:
        await self._cacher.wait_until_fresh(read_timeout(context))
        record = self._cacher.raw_key(election_key(request.name))
        if record is None:
            raise Rejected(no_leader(request.name))
        return election_with_candidates(self._cacher, request.name, record)

    async def list(self, request: ListElectionsRequest, context: Context) -> ListElectionsResponse:
        await self._cacher.wait_until_fresh(read_timeout(context))
        cacher, now = self._cacher, self._clock.time()
        if request.history:
            states = [election_state(cacher, name, now) for name in election_names(cacher)]
            return ListElectionsResponse(states=states, revision=cacher.revision)
        led = ((raw_item.key.removeprefix(ELECTIONS_PREFIX), raw_item) for raw_item in cacher.raw_keys(ELECTIONS_PREFIX))
        return ListElectionsResponse(items=[election_with_candidates(cacher, name, record) for name, record in led])

    async def watch(self, request: WatchElectionsRequest, context: Context) -> AsyncIterator[ElectionWatchResponse]:
        await self._cacher.wait_until_fresh(read_timeout(context))
        watch = ElectionWatch(request.name, self._cacher, self._clock)
        self._watches.add(watch)
        try:
            async with aclosing(watch.responses()) as responses:
                async for response in responses:
                    yield response
        finally:
            self._watches.discard(watch)

    async def history(self, request: ElectionHistoryRequest, context: Context) -> ElectionHistoryResponse:
        """Return the election history. Wait up to HISTORY_TIMEOUT seconds until it contains the term that `get` returns."""
        await self._cacher.wait_until_fresh(read_timeout(context))
        written = asyncio.Event()
        unsubscribe = self._cacher.subscribe(terms_prefix(request.name), lambda change: written.set())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HISTORY_TIMEOUT):
                    while not is_history_complete(terms := self._stored_terms(request.name), self._current_token(request.name)):
                        written.clear()
                        await written.wait()
        finally:
            unsubscribe()
        now = to_micro_time(self._clock.time())
        return ElectionHistoryResponse(
            items=terms_with_presumed_ends(terms, self._current_token(request.name), now)[-MAX_STORED_TERMS:]
        )

    def _stored_terms(self, election: str) -> Sequence[Term]:
        return decode_terms(self._cacher.raw_keys(terms_prefix(election)))

    def _current_token(self, election: str) -> int:
        """Return the token of the leader; 0 if there is none."""
        record = self._cacher.raw_key(election_key(election))
        return record.create_revision if record is not None else 0

    async def transfer(self, request: TransferElectionRequest, context: Context) -> TransferElectionResponse:
        await self._cacher.wait_until_fresh(read_timeout(context))
        transfer = LeadershipTransfer(
            request.name, request.to, self._storage, self._committer, self._cacher, self._history, self._clock
        )
        return await transfer.run()

    def drain(self) -> None:
        """End all campaigns and watches because the server stops. Candidates and leaders continue with another server."""
        self._streams.drain()
        for watch in self._watches:
            watch.end_stream()

    def end_restored_campaigns(self) -> None:
        """End all campaigns because the storage was restored."""
        self._streams.end_restored_streams()

    async def _serve_campaign(self, stream: SessionStream[CampaignRequest, CampaignResponse], user: User) -> None:
        request = await stream.receive()
        if isinstance(request, StreamEvent):
            return
        opening = request.open
        if problem := _validate_opening(opening):
            raise Rejected(errors.bad_request(problem))
        names = tuple(dict.fromkeys(opening.scheduler_names))
        await self._authorizer.authorize(user, CAMPAIGN, lambda: (ActionTarget("", opening.election),))
        await self._authorizer.authorize(user, CAMPAIGN_FOR, lambda: [ActionTarget("", name) for name in names])
        queue = self._queues.setdefault(opening.election, CandidateQueue(opening.election, self._cacher, self._clock))
        identity = CandidateIdentity(opening.holder, user.name, opening.secret, names, opening.configuration)
        leader_key = LeaderKey(queue, identity, self._storage, self._committer, self._history, self._timing.ttl, self._clock)
        try:
            if not opening.token and (rival := queue.find_rival(names)):
                raise Rejected(_scheduler_has_leader(rival, names))
            await CampaignSession(stream, queue, opening, leader_key, self._storage, self._timing, self._clock).run()
        finally:
            if queue.is_empty:
                self._queues.pop(queue.name, None)

    def _handle_key_change(self, change: KeyChange) -> None:
        queue = self._queues.get(change.key.rpartition("/")[2])
        if queue is not None:
            queue.apply_change(change)


def _scheduler_has_leader(rival: Election, names: Sequence[str]) -> Refusal:
    """Return the refusal of a candidate if the leader of another election binds pods of the same scheduler."""
    name = next(name for name in names if name in rival.scheduler_names)
    message = f'scheduler "{name}": its pods are bound by {rival.holder}, the leader of election "{rival.name}"'
    hint = "set another schedulerName in the profile, or use the same election (leaderElection.resourceName) for both"
    return Refusal(Code.ABORTED, "Conflict", message, metadata=(("hint", hint),))


def _validate_opening(opening: CampaignRequest.Open) -> str:
    """Return the error in the first message of a campaign; "" if it is valid."""
    if dns_subdomain(opening.election) or not 0 < len(opening.holder) <= MAX_HOLDER:
        return f"election must be a DNS subdomain, and holder must have 1 to {MAX_HOLDER} characters"
    if not MIN_SECRET <= len(opening.secret) <= MAX_SECRET:
        return (
            f"secret must have {MIN_SECRET} to {MAX_SECRET} random bytes; "
            "a candidate without a secret is older than this API server: upgrade it"
        )
    if len(opening.scheduler_names) > MAX_SCHEDULER_NAMES:
        return f"too many scheduler names: at most {MAX_SCHEDULER_NAMES} per campaign"
    if any(not 0 < len(name) <= MAX_SCHEDULER_NAME for name in opening.scheduler_names):
        return f"a scheduler name must have 1 to {MAX_SCHEDULER_NAME} characters"
    if len(opening.configuration) > MAX_CONFIGURATION:
        return f"the configuration digest must have at most {MAX_CONFIGURATION} characters"
    return ""
