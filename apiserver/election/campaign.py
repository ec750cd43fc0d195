"""One campaign of a candidate on a stream (CampaignSession).

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, disconnected, silent: delete the key if its mod_revision is unchanged
      |  |         |                        |  the same while etcd is unavailable: let the lease of the key expire
      |  |         |                        |  the key is deleted or belongs to another candidate: send Lost
      |  +-- resumed with session (and token) from another server: put the key again with compare-and-swap
      |  |         '-- the key already belongs to this session: the same
      +-- refused                           +  the server stops: keep the key; the candidate uses another server

The order of the candidates of one server is in `candidate_queue`. The key in etcd, which determines the leader, is in
`leader_key`.
"""

import logging
from enum import Enum, auto

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.apiserver.cacher.store import ShuttingDown
from pinnace.apiserver.election.candidate_queue import CandidateQueue, HeldKey, KeyState
from pinnace.apiserver.election.leader_key import LeaderKey
from pinnace.apiserver.election.term_history import (
    ETCD_RESTORED,
    NO_HEARTBEATS,
    PROTOCOL_ERROR,
    RESIGNED,
    STREAM_CLOSED,
)
from pinnace.apiserver.services.sessions import LeaseSession, SessionStream, StreamEvent, Timing, election_of
from pinnace.apiserver.storage.committer import WriteConflict
from pinnace.apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import run_until_first

log = logging.getLogger(__name__)


class CampaignStep(Enum):
    """The result of a step of a campaign."""

    CONTINUE = auto()
    END = auto()


class CampaignSession:
    """One campaign of a candidate on a stream."""

    def __init__(
        self,
        stream: SessionStream[CampaignRequest, CampaignResponse],
        queue: CandidateQueue,
        opening: CampaignRequest.Open,
        leader_key: LeaderKey,
        storage: Storage,
        timing: Timing,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._queue = queue
        self._opening = opening
        self._scheduler_names = opening.scheduler_names
        self._key = leader_key
        self._storage = storage
        self._timing = timing
        self._clock = clock
        self._observed_token = 0
        self._observed_at = 0.0
        self._session: LeaseSession

    async def run(self) -> None:
        """Run until the stream ends. Raises StorageError if the session cannot be opened, and ShuttingDown."""
        self._queue.add_candidate(self._stream)
        try:
            if await self._open_campaign() is CampaignStep.CONTINUE:
                await run_until_first(
                    self._session.keep_alive(self._acknowledge_heartbeat, self._post_expiry), self._serve_stream()
                )
        finally:
            self._queue.remove_candidate(self._stream)

    async def _serve_stream(self) -> None:
        while await self._run_next_step() is CampaignStep.CONTINUE:
            if await self._handle_event() is CampaignStep.END:
                return

    async def _open_campaign(self) -> CampaignStep:
        """Open or resume the session, and take over the candidate's key if it exists. Return END if the campaign ends."""
        opening = self._opening
        if opening.forsaken:
            ago = opening.forsaken_ago_ms / 1000 if opening.HasField("forsaken_ago_ms") else None
            await self._key.delete_abandoned(opening.forsaken, ago)
        record = await self._key.read_session_key(opening.session) if opening.session else None
        foreign = record is not None and not self._key.is_own_key(record, opening.session)
        if foreign or (opening.token and (record is None or record.create_revision != opening.token)):
            return self._send_lost("the term has ended")  # do not renew the lease of another candidate
        try:
            self._session = await self._open_session(opening.session)
            if self._is_candidate_gone():  # another server takes over the key
                return CampaignStep.END
            if record is not None and self._session.id == opening.session:  # otherwise, the old session has just expired
                await self._key.take_over_key(record, self._session.id, self._is_candidate_gone)
        except (LeaseNotFound, WriteConflict) as error:
            return self._send_lost(f"the term has ended: {error}")
        self._stream.send(
            CampaignResponse(
                opened=CampaignResponse.Opened(
                    session=self._session.id,
                    interval_ms=round(self._timing.interval * 1000),
                    validity_ms=round(self._timing.validity * 1000),
                    secret_fences=True,
                )
            )
        )
        self._key.record_candidate(self._session.id)
        if self._key.held is not None:
            self._send_elected(self._key.held)
        return CampaignStep.CONTINUE

    async def _open_session(self, lease: int) -> LeaseSession:
        """Resume or open a session. If its lease has expired, a waiting candidate gets a new lease. Raises LeaseNotFound if the
        lease of a leader has expired."""
        if lease:
            try:
                return await LeaseSession.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                if self._opening.token:
                    raise
        return await LeaseSession.open(self._storage, self._timing, self._clock)

    async def _run_next_step(self) -> CampaignStep:
        """Execute the next step of the state machine. Return END at the end of the campaign."""
        if self._key.held is not None:
            return self._verify_leadership(self._key.held)
        record = self._queue.cached_key()
        if record is not None:
            self._send_observed(record)
            if self._key.is_own_key(record, self._session.id):
                return await self._adopt_key(record)
            await self._accept_nomination_if_due(record)
        elif self._queue.may_create_key(self._stream, self._session.id) and not self._queue.find_rival(self._scheduler_names):
            return await self._create_leader_key()
        return CampaignStep.CONTINUE

    def _verify_leadership(self, held: HeldKey) -> CampaignStep:
        """Continue if the candidate still leads through this server. Otherwise, send Lost."""
        match self._queue.key_state(held):
            case KeyState.OURS:
                return CampaignStep.CONTINUE
            case KeyState.LOST:
                self._key.record_expiry()
                return self._send_lost("the election's key was deleted or has expired")
            case KeyState.MOVED:
                return self._send_lost("the session has moved to another API server")

    def _send_observed(self, record: KeyValue) -> None:
        if record.create_revision != self._observed_token:
            self._observed_token, self._observed_at = record.create_revision, self._clock.monotonic()
            observed = CampaignResponse.Observed(holder=election_of(record).holder, token=record.create_revision)
            self._stream.send(CampaignResponse(observed=observed))

    async def _adopt_key(self, record: KeyValue) -> CampaignStep:
        """Take over a key of this session that another server created, or that a create with an unknown outcome created. This
        server renews the lease, so the key would never expire. Before that, wait for Timing.silence: if the candidate leads
        through another server, its stream to this server ends within this time."""
        if self._clock.monotonic() - self._observed_at < self._timing.silence or not self._stream.recent:
            return CampaignStep.CONTINUE
        try:
            held = await self._key.take_over_key(record, self._session.id, self._is_candidate_gone)
        except WriteConflict:
            return CampaignStep.CONTINUE
        except LeaseNotFound:
            return self._send_lost("the session has expired")
        except StorageError as error:
            log.warning('election "%s": cannot take over the key: %s', self._queue.name, error)
            return CampaignStep.CONTINUE
        self._send_elected(held)
        return CampaignStep.CONTINUE

    async def _accept_nomination_if_due(self, record: KeyValue) -> None:
        """Accept a nomination of this candidate, or of any candidate if this one is next in the queue."""
        current = self._queue.nomination()
        if current is None or current[1].session or current[1].token != record.create_revision or not self._stream.recent:
            return
        request, nomination = current
        if nomination.holder == self._opening.holder or (not nomination.holder and self._queue.is_next(self._stream)):
            await self._key.accept_nomination(request, nomination, self._session.id)

    async def _create_leader_key(self) -> CampaignStep:
        """Try to create the election's key, so that this candidate leads."""
        try:
            held = await self._key.create_key(self._session.id)
        except WriteConflict as conflict:  # another candidate was faster: wait until the cache contains its key
            await self._queue.wait_for_revision(conflict.current.mod_revision if conflict.current else 0, self._timing.interval)
            return CampaignStep.CONTINUE
        except LeaseNotFound:
            return self._send_lost("the session has expired")
        except StorageError as error:  # includes CommitOutcomeUnknown: if the key is created later, `_adopt_key` takes it over
            log.warning('election "%s": %s', self._queue.name, error)
            return CampaignStep.CONTINUE
        self._send_elected(held)
        return CampaignStep.CONTINUE

    def _send_elected(self, held: HeldKey) -> None:
        self._queue.record_leader(self._stream, held)
        self._stream.send(CampaignResponse(elected=CampaignResponse.Elected(token=held.token)))

    async def _handle_event(self) -> CampaignStep:
        """Wait for the next request or event and handle it. Return END at the end of the campaign."""
        match await self._stream.receive():
            case StreamEvent.CHANGED:
                return CampaignStep.CONTINUE
            case StreamEvent.GONE:
                if self._key.held and self._stream.was_late:  # the candidate may be moving to another server
                    await self._clock.sleep(self._timing.silence)
                await self._end_disconnected_term(STREAM_CLOSED)
                return CampaignStep.END
            case StreamEvent.EXPIRED:
                self._key.record_expiry()
                return self._send_lost("the session has expired")
            case StreamEvent.SILENT:
                await self._end_disconnected_term(NO_HEARTBEATS)
                return self._send_lost(f"no heartbeat for {self._timing.silence:g} s")
            case StreamEvent.DRAINED:
                raise ShuttingDown
            case StreamEvent.RESTORED:
                # The term may have begun after the restore, with state from before.
                await self._key.depose_leader(ETCD_RESTORED)
                return self._send_lost(ETCD_RESTORED)
            case CampaignRequest() as request if request.HasField("heartbeat"):
                self._session.record_heartbeat(request.heartbeat.sequence)
                return CampaignStep.CONTINUE
            case CampaignRequest() as request if request.HasField("resign"):
                await self._key.depose_leader(RESIGNED)
                self._key.record_departure()
                self._stream.send(CampaignResponse(resigned=CampaignResponse.Resigned()))
                return CampaignStep.END
            case _:
                await self._key.depose_leader(PROTOCOL_ERROR)
                return self._send_lost("expected heartbeat or resign")

    def _is_candidate_gone(self) -> bool:
        return self._stream.gone

    def _acknowledge_heartbeat(self, sequence: int) -> None:
        self._stream.send(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def _post_expiry(self) -> None:
        self._stream.post_event(StreamEvent.EXPIRED)

    async def _end_disconnected_term(self, reason: str) -> None:
        """Handle a candidate that has disconnected or is silent. If etcd delays the responses to its heartbeats, it may be
        moving to another server. Then the key is not deleted, and its lease expires."""
        if self._key.held and self._session.is_overdue:
            log.warning('election "%s": %s: %s, while etcd is unavailable', self._queue.name, self._opening.holder, reason)
        else:
            await self._key.depose_leader(reason, self._clock.monotonic() - self._stream.last_message)
            self._key.record_departure()

    def _send_lost(self, reason: str) -> CampaignStep:
        """Send Lost, and return END."""
        self._stream.send(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))
        return CampaignStep.END
