"""A candidate in an election: a client of Elections.Campaign.

    waiting --Elected--> leading --Lost, or no response for `validity`--> waiting, with a new session
       |                    |
       |   stream broken or silent: continue on another API server with the same session and token
       +-------------- release --------------> stopped

A candidate may act while `token` is not None. A term is valid for `validity` seconds after the candidate *sent* the last
acknowledged heartbeat, by its own monotonic clock. The server counts from when it *received* that heartbeat and allows more
time, so the candidate stands down first. `token` is computed on each access, so a stalled event loop does not extend a term.

If the server stops responding, a leader resumes its session on another server before it closes the old stream, or until its
term ends. The old server interprets a closed stream as the death of the candidate, and would delete the key before the session
is resumed.

The token of a term that ended here is never used again, even if a server still stores it for this candidate. When a term ends,
the leader treats its pending writes as failed. With the same token, these writes could still commit.

The fence, not the candidate, rejects writes of a deposed leader (see Fence in pods.proto). A fence is valid only with the
secret that the candidate generates and sends when it opens a campaign. A candidate does not lead through a server whose version
is too old to require the secret, because other servers would reject the writes of such a term.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import Gauge

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.api.pods_pb2 import Fence
from pinnace.client.channel import Caller, Duplex
from pinnace.client.errors import ApiError, Unavailable, unavailable_error
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock, HeartbeatTimer
from pinnace.runtime.logs import LeadershipAcquired, LeadershipLost
from pinnace.runtime.supervise import supervise
from pinnace.runtime.tasks import run_until_first

log = logging.getLogger(__name__)

STATUS = Gauge("leader_election_master_status", "1 while this process leads.", ["name"])

CAMPAIGN_METHOD = "/pinnace.v1.Elections/Campaign"
OPEN_TIMEOUT = 1.0
"""Seconds within which a server must open a session."""
RESPONSE_TIMEOUT = 0.5
"""Seconds without a response after which the candidate tries another server. It is much shorter than the validity, so that the
session can be resumed in time."""
SECRET_SIZE = 32
"""The size of a secret in bytes."""
RELEASE_TIMEOUT = 1.0
RESIGN = CampaignRequest(resign=CampaignRequest.Resign())

Stream = Duplex[CampaignRequest, CampaignResponse]


class LocalTerm:
    """One term of a leader by its own clock: its token and its expiry. Times are monotonic seconds."""

    def __init__(self, token: int, expires_at: float) -> None:
        self.token = token
        self.expires_at = expires_at

    def is_valid(self, now: float) -> bool:
        return now < self.expires_at

    def extend_until(self, expires_at: float, now: float) -> bool:
        """Extend the term. Return False if it has expired; an expired term cannot be extended."""
        if not self.is_valid(now):
            return False
        self.expires_at = max(self.expires_at, expires_at)
        return True


class Loss(NamedTuple):
    """Why a term ends."""

    reason: str
    """For the log and `on_lost`."""
    abandons_session: bool = False
    """Whether the candidate gives up its session, too. The server deletes the key of the session on the next Open. False: the
    session is resumed, or the server has ended it."""


STOPPED = Loss("stopped")
RELEASED = Loss("resigned")
ELECTED_AGAIN = Loss("elected again")


class LeaderElector:
    """A candidate in one election, as client-go's LeaderElector.

    `on_elected(token)` and `on_lost(reason)` are called on the event loop, alternately, once each per term. They must not
    block. `on_lost` may be late if the event loop is busy: read `token` before each action."""

    def __init__(
        self,
        connection: Caller,
        election: str,
        holder: str,
        *,
        on_elected: Callable[[int], None],
        on_lost: Callable[[str], None],
        scheduler_names: Sequence[str] = (),
        configuration: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`scheduler_names`: the schedulers (spec.schedulerName) whose pods are bound under the fence. `configuration`: a
        digest of the candidate's configuration, which is stored in the election."""
        self._connection = connection
        self._election = election
        self._holder = holder
        self._secret = secrets.token_bytes(SECRET_SIZE)
        self._scheduler_names = scheduler_names
        self._configuration = configuration
        self._status = STATUS.labels(election)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._clock = clock
        self._session = 0
        self._term_ended_at = 0.0  # the monotonic time at which the last term ended
        self._abandoned_session = 0  # the session of an expired term; the server deletes its key on the next Open
        self._validity = 0.0
        self._acknowledged_at = 0.0  # the time at which the last acknowledged message was sent
        self._heartbeat_timer = HeartbeatTimer(1.0, RESPONSE_TIMEOUT, 0.0)
        self._term: LocalTerm | None = None
        self._last_token = 0  # the token of the last term that ended
        self._leading = asyncio.Event()
        self._stream: Stream | None = None
        self._previous_stream: Stream | None = None
        """The old stream of a leader that is switching servers."""
        self._session_open = False
        self._resigning = False
        self._resigned = asyncio.Event()

    @property
    def token(self) -> int | None:
        """The fencing token while this candidate leads, otherwise None."""
        term = self._term
        return term.token if term is not None and term.is_valid(self._clock.monotonic()) else None

    @property
    def fence(self) -> Fence | None:
        """The fence for writes that are sent now, or None if `token` is None."""
        token = self.token
        return None if token is None else self.fence_of(token)

    def fence_of(self, token: int) -> Fence:
        """Return the fence of any term of this candidate. It contains the candidate's secret: do not log it."""
        return Fence(election=self._election, token=token, secret=self._secret)

    @property
    def healthy(self) -> str | None:
        """None if the candidate has a session, otherwise the problem. Used by /readyz."""
        return None if self._session_open else f'no session with an API server for election "{self._election}"'

    async def run(self) -> None:
        """Campaign until cancelled or released."""
        campaigning = supervise(
            f'election "{self._election}"',
            self._run_session,
            retry_on=(ApiError,),
            backoff=Backoff(initial=0.02, maximum=0.25),
            clock=self._clock,
        )
        try:
            await run_until_first(campaigning, self._enforce_expiry(), self._resigned.wait())
        finally:
            self._end_lost_term(STOPPED)

    async def release(self) -> None:
        """Resign, and stop campaigning. The local term ends at once; the server has RELEASE_TIMEOUT seconds to acknowledge."""
        self._resigning = True
        term = self._clear_term()
        try:
            if self._stream is not None:
                with suppress(ApiError):
                    await self._stream.write(RESIGN)  # sent before other work, because the next leader waits for it
        finally:
            if term is not None:
                self._report_loss(term, RELEASED)
        if self._session or self._stream is not None:  # without a stream, `_open_session` sends the resignation
            try:
                async with asyncio.timeout(RELEASE_TIMEOUT):
                    await self._resigned.wait()
            except TimeoutError:
                log.warning('election "%s": the resignation was not acknowledged', self._election)
        self._resigned.set()

    def abandon_term(self, token: int, reason: str) -> None:
        """End the term with this token and its session, and campaign again. Used when the leader's writes are rejected. The
        election's key is deleted if it still exists; otherwise the candidate would lead without being able to write."""
        if self._term is not None and self._term.token == token:
            self._end_lost_term(Loss(reason, abandons_session=True))

    async def _run_session(self) -> None:
        """Run one session, or a part of it, on one server. Raises ApiError. Return if the server redirects the candidate to
        another server."""
        stream = await self._connection.duplex(CAMPAIGN_METHOD, CampaignRequest, CampaignResponse)
        try:
            await self._open_session(stream)
            await run_until_first(self._receive_responses(stream), self._renew(stream))
        except Unavailable as error:
            if error.retry_after != 0.0 or self._connection.endpoint == stream.endpoint:
                raise
            log.info('election "%s": %s', self._election, error)
        finally:
            self._stream = None
            self._session_open = False
            if stream is not self._previous_stream:
                stream.cancel()

    async def _open_session(self, stream: Stream) -> None:
        """Open a session, or resume the current one."""
        term, abandoned = self._term, self._abandoned_session
        sent = self._clock.monotonic()
        await stream.write(
            CampaignRequest(
                open=CampaignRequest.Open(
                    election=self._election,
                    holder=self._holder,
                    session=self._session,
                    token=term.token if term else 0,
                    forsaken=abandoned,
                    forsaken_ago_ms=round((sent - self._term_ended_at) * 1000) if abandoned else None,
                    secret=self._secret,
                    scheduler_names=self._scheduler_names,
                    configuration=self._configuration,
                )
            )
        )
        self._stream = stream
        response = await stream.read(OPEN_TIMEOUT)
        if response is None:
            raise unavailable_error(f"API server {stream.endpoint} ended the campaign")
        if not response.HasField("opened"):
            self._handle_response(response)
            raise unavailable_error(f"API server {stream.endpoint} did not open a session")
        opened = response.opened
        if not opened.secret_fences:
            self._reject_old_server(stream)
        if opened.session == self._abandoned_session:
            raise unavailable_error("the term expired while its session was being resumed; opening a new session")
        now = self._clock.monotonic()
        self._cancel_previous_stream()
        self._session_open = True
        self._session = opened.session
        if self._abandoned_session == abandoned:
            self._abandoned_session = 0
        self._validity = opened.validity_ms / 1000
        self._heartbeat_timer = HeartbeatTimer(opened.interval_ms / 1000, RESPONSE_TIMEOUT, now)
        self._extend_term(sent, now)
        if self._resigning:
            await stream.write(RESIGN)

    def _reject_old_server(self, stream: Stream) -> None:
        """Switch away from a server that does not support secrets. Raises Unavailable."""
        stream.switch_server()
        reason = f"API server {stream.endpoint} is older than this candidate and does not support fences with secrets"
        if self._term is not None:
            self._end_lost_term(Loss(reason, abandons_session=True))
        raise unavailable_error(reason)

    async def _receive_responses(self, stream: Stream) -> None:
        while (response := await stream.read()) is not None:
            self._handle_response(response)
        raise unavailable_error(f"API server {stream.endpoint} ended the campaign")

    async def _renew(self, stream: Stream) -> None:
        while self._session:
            sequence = self._heartbeat_timer.record_beat(self._clock.monotonic())
            await stream.write(CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=sequence)))
            await self._clock.sleep(self._heartbeat_timer.interval)
            if self._heartbeat_timer.is_silent(self._clock.monotonic()):
                stream.switch_server()
                if self.token is not None:
                    self._previous_stream = stream
                raise unavailable_error(f"API server {stream.endpoint} does not acknowledge heartbeats")
        raise unavailable_error("the term has expired; opening a new session")

    async def _enforce_expiry(self) -> None:
        """End the term when it expires, with or without a stream."""
        while True:
            await self._leading.wait()
            remaining = self._term.expires_at - self._clock.monotonic() if self._term else 0.0
            if remaining > 0:
                await self._clock.sleep(remaining)
            else:
                self._end_lost_term(self._expiry_loss())

    def _handle_response(self, response: CampaignResponse) -> None:
        match response.WhichOneof("kind"):
            case "heartbeat":
                now = self._clock.monotonic()
                sent = self._heartbeat_timer.record_acknowledgement(response.heartbeat.sequence, now)
                if sent is not None:
                    self._extend_term(sent, now)
            case "elected":
                self._acquire(response.elected.token)
            case "observed":
                observed = response.observed
                log.info('election "%s": %s leads with token %d', self._election, observed.holder, observed.token)
            case "lost":
                self._session = 0
                expired = self._term is not None and not self._term.is_valid(self._clock.monotonic())
                self._end_lost_term(Loss(self._expiry_loss().reason if expired else response.lost.reason))
                raise unavailable_error(f"the session has ended: {response.lost.reason}")
            case "resigned":
                self._resigned.set()

    def _extend_term(self, sent: float, now: float) -> None:
        self._acknowledged_at = max(self._acknowledged_at, sent)
        if self._term is not None and not self._term.extend_until(self._acknowledged_at + self._validity, now):
            self._end_lost_term(self._expiry_loss())

    def _acquire(self, token: int) -> None:
        if self._resigning or (self._term is not None and self._term.token == token):
            return
        self._end_lost_term(ELECTED_AGAIN)
        if token <= self._last_token:
            loss = Loss(f"elected with token {token}, which belongs to an earlier term", abandons_session=True)
            self._end_lost_term(loss)
            raise unavailable_error(loss.reason)
        term = LocalTerm(token, self._acknowledged_at + self._validity)
        if not term.is_valid(now := self._clock.monotonic()):
            self._term_ended_at = now
            loss = Loss("elected, but the last acknowledged heartbeat is too old", abandons_session=True)
            self._end_lost_term(loss)
            raise unavailable_error(loss.reason)
        self._term = term
        self._leading.set()
        self._status.set(1)
        won = LeadershipAcquired(self._election, token).extra
        log.info('election "%s": elected with token %d', self._election, token, extra=won)
        self._on_elected(token)

    def _expiry_loss(self) -> Loss:
        """Return why a term that has expired is lost. A process that was stopped reads the server's message late: its own
        clock gives the reason then, because it ended the term."""
        silence = self._clock.monotonic() - self._acknowledged_at
        return Loss(f"no heartbeat was acknowledged for {silence:.1f} s", abandons_session=True)

    def _end_lost_term(self, loss: Loss) -> None:
        """End the term, if there is one, and call `on_lost`. Every term ends here, except that `release` sends the resignation
        between the two steps."""
        if loss.abandons_session:
            self._abandoned_session, self._session = self._session or self._abandoned_session, 0
        term = self._clear_term()
        if term is not None:
            self._report_loss(term, loss)

    def _clear_term(self) -> LocalTerm | None:
        """Set `token` to None. Return the ended term, or None if there was none."""
        term, self._term = self._term, None
        if term is not None:
            self._last_token = term.token
            self._term_ended_at = min(term.expires_at, self._clock.monotonic())
            self._leading.clear()
            self._status.set(0)
            self._cancel_previous_stream()
        return term

    def _report_loss(self, term: LocalTerm, loss: Loss) -> None:
        lost = LeadershipLost(self._election, term.token, loss.reason).extra
        log.warning('election "%s": token %d is lost: %s', self._election, term.token, loss.reason, extra=lost)
        self._on_lost(loss.reason)

    def _cancel_previous_stream(self) -> None:
        """Cancel the stream to the previous server."""
        if self._previous_stream is not None:
            self._previous_stream.cancel()
            self._previous_stream = None
