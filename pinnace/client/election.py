"""A candidate in an election: a client of Elections.Campaign.

    waiting --Elected--> leading --Lost, or no answer for `validity`--> waiting, with a new session
       |                    |
       |   stream broken, or not answered: go on with another API server, keeping session and token
       +-------------- resign ---------------> stopped

The candidate may act while `token` is not None: until `validity` seconds after it *sent* the last heartbeat that was answered,
by its own monotonic clock. The server counts from when it *received* that heartbeat, and waits longer; so the candidate stands
down first. `token` is computed on each access: it is correct even if the event loop was stalled meanwhile.

A leader whose server does not answer resumes its session with another server before it closes the old stream, or its term ends.
To the old server a closed stream means that the candidate died, and it would delete the key before the leader has resumed
elsewhere.

A token that was given up is never used again, even if a server still holds it for this candidate: when the term ended, the
leader's code concluded that none of its unanswered writes will happen, and with the same token they still could.

The fence, not the candidate, prevents writes of a deposed leader (see Fence in pods.proto). A fence is valid only with the
secret that the candidate generates and sends when it opens a campaign. A candidate does not lead through a server that is too
old to require the secret: other servers would refuse its writes in such a term.
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
"""Seconds that a server may take to open a session."""
ANSWER_TIMEOUT = 0.5
"""Seconds without an answer after which the candidate tries another server. Well below the validity, so that there is time to
resume there."""
SECRET = 32
"""Bytes."""
RESIGN_TIMEOUT = 1.0
RESIGN = CampaignRequest(resign=CampaignRequest.Resign())

Stream = Duplex[CampaignRequest, CampaignResponse]


class Term:
    """One term of a leader: its token, and until when it may be used. Times are monotonic seconds."""

    def __init__(self, token: int, until: float) -> None:
        self.token = token
        self.until = until

    def valid(self, now: float) -> bool:
        return now < self.until

    def extend(self, until: float, now: float) -> bool:
        """Extends the term. Returns False if it has already expired; it stays expired."""
        if not self.valid(now):
            return False
        self.until = max(self.until, until)
        return True


class Candidate:
    """A candidate in one election. `on_elected(token)` and `on_lost(reason)` are called on the event loop, alternately, once
    each per term; they must not block. `on_lost` may be late if the loop is busy: read `token` before each action."""

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
        digest of the candidate's configuration, for readers of the election."""
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
        self._stood_down = 0.0  # when the last term ended here
        self._forsaken = 0  # the session of an expired term: it is reported to the server, which deletes its key at once
        self._validity = 0.0
        self._answered = 0.0  # when the last message that was answered had been sent
        self._pulse = HeartbeatTimer(1.0, ANSWER_TIMEOUT, 0.0)
        self._term: Term | None = None
        self._given_up = 0  # the token of the last term that ended here
        self._leading = asyncio.Event()
        self._stream: Stream | None = None
        self._left: Stream | None = None
        """The old stream of a leader that moves to another server."""
        self._open = False
        self._resigning = False
        self._resigned = asyncio.Event()

    @property
    def token(self) -> int | None:
        """The fencing token while this candidate leads and may act, or else None."""
        term = self._term
        return term.token if term is not None and term.valid(self._clock.monotonic()) else None

    @property
    def fence(self) -> Fence | None:
        """The fence for writes that are sent now; None if `token` is None."""
        token = self.token
        return None if token is None else self.fence_of(token)

    def fence_of(self, token: int) -> Fence:
        """The fence of a term of this candidate, which may be over. It contains the candidate's secret: do not log it."""
        return Fence(election=self._election, token=token, secret=self._secret)

    @property
    def healthy(self) -> str | None:
        """None, or the problem, for /readyz."""
        return None if self._open else f'no session with an API server for election "{self._election}"'

    async def run(self) -> None:
        """Campaigns until cancelled or resigned."""
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
        """Resigns and stops campaigning: at once here, and within RESIGN_TIMEOUT on the server."""
        self._resigning = True
        term = self._end_term()
        try:
            if self._stream is not None:
                with suppress(ApiError):
                    await self._stream.write(RESIGN)  # first of all: the next leader waits for it
        finally:
            if term is not None:
                self._tell_lost(term, "resigned")
        if self._session or self._stream is not None:  # without a stream, the resignation is sent where the session is resumed
            try:
                async with asyncio.timeout(RESIGN_TIMEOUT):
                    await self._resigned.wait()
            except TimeoutError:
                log.warning('election "%s": no answer to the resignation', self._election)
        self._resigned.set()

    def give_up(self, token: int, reason: str) -> None:
        """Ends the term with this token and its session, and campaigns again: for a leader whose writes are refused. The
        election's key is deleted if it still exists; otherwise the candidate would lead without being able to write."""
        if self._term is not None and self._term.token == token:
            self._forsake()
            self._lose(reason)

    async def _campaign(self) -> None:
        """One session, or a part of it, with one server. Raises ApiError. Returns if the server redirects the candidate, which
        then continues with the next server at once."""
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
        """Opens a session, or resumes the present one."""
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
        """Leaves a server that does not support secrets. Raises Unavailable."""
        stream.leave()
        reason = f"API server {stream.endpoint} is older than this program, and does not support the secrets of fences"
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
                raise unavailable(f"API server {stream.endpoint} does not answer heartbeats")
        raise unavailable("the term has expired; opening a new session")

    async def _stand_down_in_time(self) -> None:
        """Ends an expired term, whether there is a stream or not."""
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
                self._lose(response.lost.reason)
                raise unavailable(f"the session is over: {response.lost.reason}")
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
            raise unavailable(f"elected with token {token}, which was given up")
        term = Term(token, self._answered + self._validity)
        if not term.valid(now := self._clock.monotonic()):
            self._stood_down = now
            self._forsake()
            raise unavailable("elected, but the last answered heartbeat is too old to act on it")
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
        self._lose(f"no heartbeat was answered for {self._validity:.1f} s")

    def _lose(self, reason: str) -> None:
        """Ends the term, if there is one."""
        term = self._end_term()
        if term is not None:
            self._tell_lost(term, reason)

    def _end_term(self) -> Term | None:
        """Ends the term: `token` is None from now on."""
        term, self._term = self._term, None
        if term is not None:
            self._given_up = term.token
            self._stood_down = min(term.until, self._clock.monotonic())
            self._leading.clear()
            self._status.set(0)
            self._break_off()
        return term

    def _break_off(self) -> None:
        """Closes the old stream, which is not needed any more."""
        if self._left is not None:
            self._left.cancel()
            self._left = None

    def _tell_lost(self, term: Term, reason: str) -> None:
        lost = LeadershipLost(self._election, term.token, reason).extra
        log.warning('election "%s": token %d is lost: %s', self._election, term.token, reason, extra=lost)
        self._on_lost(reason)
