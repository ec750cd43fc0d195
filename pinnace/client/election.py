"""A candidate in an election: a client of Elections.Campaign.

    waiting --Elected--> leading --Lost, or no response for `validity`--> waiting, with a new session
       |                    |
       |   stream broken or silent: continue on another API server with the same session and token
       +-------------- resign ---------------> stopped

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

from prometheus_client import Gauge

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.api.pods_pb2 import Fence
from pinnace.client.channel import Caller, Duplex
from pinnace.client.errors import ApiError, Unavailable, unavailable
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock, HeartbeatTimer
from pinnace.runtime.logs import LeadershipAcquired, LeadershipLost
from pinnace.runtime.supervise import supervise
from pinnace.runtime.tasks import race

log = logging.getLogger(__name__)

STATUS = Gauge("leader_election_master_status", "1 while this process leads.", ["name"])

METHOD = "/pinnace.v1.Elections/Campaign"
OPEN_TIMEOUT = 1.0
"""Seconds within which a server must open a session."""
ANSWER_TIMEOUT = 0.5
"""Seconds without a response after which the candidate tries another server. It is much shorter than the validity, so that the
session can be resumed in time."""
SECRET = 32
"""The size of a secret in bytes."""
RESIGN_TIMEOUT = 1.0
RESIGN = CampaignRequest(resign=CampaignRequest.Resign())

Stream = Duplex[CampaignRequest, CampaignResponse]


class Term:
    """One term of a leader: its token and its expiry. Times are monotonic seconds."""

    def __init__(self, token: int, until: float) -> None:
        self.token = token
        self.until = until

    def valid(self, now: float) -> bool:
        return now < self.until

    def extend(self, until: float, now: float) -> bool:
        """Extend the term. Return False if it has expired; an expired term cannot be extended."""
        if not self.valid(now):
            return False
        self.until = max(self.until, until)
        return True


class Candidate:
    """A candidate in one election.

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
        self._secret = secrets.token_bytes(SECRET)
        self._scheduler_names = scheduler_names
        self._configuration = configuration
        self._status = STATUS.labels(election)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._clock = clock
        self._session = 0
        self._stood_down = 0.0  # the monotonic time at which the last term ended
        self._forsaken = 0  # the session of an expired term; the server deletes its key on the next Open
        self._validity = 0.0
        self._answered = 0.0  # the time at which the last acknowledged message was sent
        self._pulse = HeartbeatTimer(1.0, ANSWER_TIMEOUT, 0.0)
        self._term: Term | None = None
        self._given_up = 0  # the token of the last term that ended
        self._leading = asyncio.Event()
        self._stream: Stream | None = None
        self._left: Stream | None = None
        """The old stream of a leader that is switching servers."""
        self._open = False
        self._resigning = False
        self._resigned = asyncio.Event()

    @property
    def token(self) -> int | None:
        """The fencing token while this candidate leads, otherwise None."""
        term = self._term
        return term.token if term is not None and term.valid(self._clock.monotonic()) else None

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
        return None if self._open else f'no session with an API server for election "{self._election}"'

    async def run(self) -> None:
        """Campaign until cancelled or resigned."""
        campaigning = supervise(
            f'election "{self._election}"',
            self._campaign,
            retry_on=(ApiError,),
            backoff=Backoff(initial=0.02, maximum=0.25),
            clock=self._clock,
        )
        try:
            await race(campaigning, self._stand_down_in_time(), self._resigned.wait())
        finally:
            self._lose("stopped")

    async def resign(self) -> None:
        """Resign and stop campaigning. The local term ends at once; the server has RESIGN_TIMEOUT seconds to acknowledge."""
        self._resigning = True
        term = self._end_term()
        try:
            if self._stream is not None:
                with suppress(ApiError):
                    await self._stream.write(RESIGN)  # sent before other work, because the next leader waits for it
        finally:
            if term is not None:
                self._tell_lost(term, "resigned")
        if self._session or self._stream is not None:  # without a stream, `_begin` sends the resignation
            try:
                async with asyncio.timeout(RESIGN_TIMEOUT):
                    await self._resigned.wait()
            except TimeoutError:
                log.warning('election "%s": the resignation was not acknowledged', self._election)
        self._resigned.set()

    def give_up(self, token: int, reason: str) -> None:
        """End the term with this token and its session, and campaign again. Used when the leader's writes are rejected. The
        election's key is deleted if it still exists; otherwise the candidate would lead without being able to write."""
        if self._term is not None and self._term.token == token:
            self._forsake()
            self._lose(reason)

    async def _campaign(self) -> None:
        """Run one session, or a part of it, on one server. Raises ApiError. Returns if the server redirects the candidate to
        another server."""
        stream = await self._connection.duplex(METHOD, CampaignRequest, CampaignResponse)
        try:
            await self._begin(stream)
            await race(self._listen(stream), self._beat(stream))
        except Unavailable as error:
            if error.retry_after != 0.0 or self._connection.endpoint == stream.endpoint:
                raise
            log.info('election "%s": %s', self._election, error)
        finally:
            self._stream = None
            self._open = False
            if stream is not self._left:
                stream.cancel()

    async def _begin(self, stream: Stream) -> None:
        """Open a session, or resume the current one."""
        term, forsaken = self._term, self._forsaken
        sent = self._clock.monotonic()
        await stream.write(
            CampaignRequest(
                open=CampaignRequest.Open(
                    election=self._election,
                    holder=self._holder,
                    session=self._session,
                    token=term.token if term else 0,
                    forsaken=forsaken,
                    forsaken_ago_ms=round((sent - self._stood_down) * 1000) if forsaken else None,
                    secret=self._secret,
                    scheduler_names=self._scheduler_names,
                    configuration=self._configuration,
                )
            )
        )
        self._stream = stream
        response = await stream.read(OPEN_TIMEOUT)
        if response is None:
            raise unavailable(f"API server {stream.endpoint} ended the campaign")
        if not response.HasField("opened"):
            self._handle(response)
            raise unavailable(f"API server {stream.endpoint} did not open a session")
        opened = response.opened
        if not opened.secret_fences:
            self._shun(stream)
        if opened.session == self._forsaken:
            raise unavailable("the term expired while its session was being resumed; opening a new session")
        now = self._clock.monotonic()
        self._break_off()
        self._open = True
        self._session = opened.session
        if self._forsaken == forsaken:
            self._forsaken = 0
        self._validity = opened.validity_ms / 1000
        self._pulse = HeartbeatTimer(opened.interval_ms / 1000, ANSWER_TIMEOUT, now)
        self._extend(sent, now)
        if self._resigning:
            await stream.write(RESIGN)

    def _shun(self, stream: Stream) -> None:
        """Switch away from a server that does not support secrets. Raises Unavailable."""
        stream.leave()
        reason = f"API server {stream.endpoint} is older than this candidate and does not support fences with secrets"
        if self._term is not None:
            self._forsake()
            self._lose(reason)
        raise unavailable(reason)

    async def _listen(self, stream: Stream) -> None:
        while (response := await stream.read()) is not None:
            self._handle(response)
        raise unavailable(f"API server {stream.endpoint} ended the campaign")

    async def _beat(self, stream: Stream) -> None:
        while self._session:
            sequence = self._pulse.beat(self._clock.monotonic())
            await stream.write(CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=sequence)))
            await self._clock.sleep(self._pulse.interval)
            if self._pulse.silent(self._clock.monotonic()):
                stream.leave()
                if self.token is not None:
                    self._left = stream
                raise unavailable(f"API server {stream.endpoint} does not acknowledge heartbeats")
        raise unavailable("the term has expired; opening a new session")

    async def _stand_down_in_time(self) -> None:
        """End the term when it expires, with or without a stream."""
        while True:
            await self._leading.wait()
            remaining = self._term.until - self._clock.monotonic() if self._term else 0.0
            if remaining > 0:
                await self._clock.sleep(remaining)
            else:
                self._lapse()

    def _handle(self, response: CampaignResponse) -> None:
        match response.WhichOneof("kind"):
            case "heartbeat":
                now = self._clock.monotonic()
                sent = self._pulse.answered(response.heartbeat.sequence, now)
                if sent is not None:
                    self._extend(sent, now)
            case "elected":
                self._win(response.elected.token)
            case "observed":
                observed = response.observed
                log.info('election "%s": %s leads with token %d', self._election, observed.holder, observed.token)
            case "lost":
                self._session = 0
                expired = self._term is not None and not self._term.valid(self._clock.monotonic())
                self._lose(self._silence() if expired else response.lost.reason)
                raise unavailable(f"the session has ended: {response.lost.reason}")
            case "resigned":
                self._resigned.set()

    def _extend(self, sent: float, now: float) -> None:
        self._answered = max(self._answered, sent)
        if self._term is not None and not self._term.extend(self._answered + self._validity, now):
            self._lapse()

    def _win(self, token: int) -> None:
        if self._resigning or (self._term is not None and self._term.token == token):
            return
        self._lose("elected again")
        if token <= self._given_up:
            self._forsake()
            raise unavailable(f"elected with token {token}, which belongs to an earlier term")
        term = Term(token, self._answered + self._validity)
        if not term.valid(now := self._clock.monotonic()):
            self._stood_down = now
            self._forsake()
            raise unavailable("elected, but the last acknowledged heartbeat is too old")
        self._term = term
        self._leading.set()
        self._status.set(1)
        won = LeadershipAcquired(self._election, token).extra
        log.info('election "%s": elected with token %d', self._election, token, extra=won)
        self._on_elected(token)

    def _forsake(self) -> None:
        self._forsaken, self._session = self._session or self._forsaken, 0

    def _lapse(self) -> None:
        self._forsake()
        self._lose(self._silence())

    def _silence(self) -> str:
        """Return why a term that has expired is lost. A process that was stopped reads the server's message late: its own
        clock gives the reason then, because it ended the term."""
        return f"no heartbeat was acknowledged for {self._clock.monotonic() - self._answered:.1f} s"

    def _lose(self, reason: str) -> None:
        """End the term, if there is one, and call `on_lost`."""
        term = self._end_term()
        if term is not None:
            self._tell_lost(term, reason)

    def _end_term(self) -> Term | None:
        """End the term, so that `token` is None. Return the term, or None if there was none."""
        term, self._term = self._term, None
        if term is not None:
            self._given_up = term.token
            self._stood_down = min(term.until, self._clock.monotonic())
            self._leading.clear()
            self._status.set(0)
            self._break_off()
        return term

    def _break_off(self) -> None:
        """Close the old stream."""
        if self._left is not None:
            self._left.cancel()
            self._left = None

    def _tell_lost(self, term: Term, reason: str) -> None:
        lost = LeadershipLost(self._election, term.token, reason).extra
        log.warning('election "%s": token %d is lost: %s', self._election, term.token, reason, extra=lost)
        self._on_lost(reason)
