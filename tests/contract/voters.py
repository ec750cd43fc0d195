"""Candidates for the election tests: the real one, and a client that sends single messages."""

import asyncio
from collections.abc import Callable
from itertools import count

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Election
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.registry.fencing import hash_secret
from pinnace.client.channel import Duplex
from pinnace.client.election import CAMPAIGN_METHOD, LeaderElector
from tests.contract.servers import PATIENCE, Server
from tests.unit.client.fakeserver import connect

ELECTION = "scheduler"
SECRET = b"what the test's candidates know"
INTERVAL = 0.05
"""Seconds between the beats of a Speaker that wants to win."""


def stored_election(holder: str, session: int) -> bytes:
    """Return the value of the election's key as a server writes it for a candidate of these tests."""
    election = Election(name=ELECTION, holder=holder, session=session, user=UNSECURED.name, secret_hash=hash_secret(SECRET))
    return election.SerializeToString()


class Voter:
    """A running LeaderElector. `history` contains its tokens and the reasons for which it lost them."""

    def __init__(self, holder: str, *servers: Server) -> None:
        self.connection = connect(*(server.address for server in servers))
        self.candidate = LeaderElector(self.connection, ELECTION, holder, on_elected=self._elected, on_lost=self._lost)
        self.history: list[int | str] = []
        self._changed = asyncio.Event()
        self._running = asyncio.ensure_future(self.candidate.run())

    def _elected(self, token: int) -> None:
        assert self.candidate.token == token
        self._note(token)

    def _lost(self, reason: str) -> None:
        assert self.candidate.token is None
        self._note(reason)

    def _note(self, what: int | str) -> None:
        self.history.append(what)
        self._changed.set()

    async def elected(self, after: int = 0) -> int:
        """Return the token once the candidate leads with one above `after`."""
        await self.until(lambda: (self.candidate.token or 0) > after)
        assert self.candidate.token is not None
        return self.candidate.token

    async def stands(self) -> None:
        """Wait until the candidate has a session and thus waits in the queue."""
        async with asyncio.timeout(PATIENCE):
            while self.candidate.healthy is not None:  # noqa: ASYNC110 (a plain value: there is no event to wait for)
                await asyncio.sleep(0.01)

    async def lost(self) -> str:
        """Return the reason once the candidate has lost."""
        await self.until(lambda: isinstance(self.history[-1], str))
        return str(self.history[-1])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. Check it after each callback of the candidate."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def kill(self) -> None:
        """Cancel the candidate. Unlike a killed process, it may still call `on_lost`."""
        self._running.cancel()
        await asyncio.wait((self._running,))

    async def stop(self) -> None:
        await self.kill()
        await self.connection.close()
        if not self._running.cancelled():
            self._running.result()


class Speaker:
    """A client that sends and receives single messages of the protocol."""

    def __init__(self, stream: Duplex[CampaignRequest, CampaignResponse]) -> None:
        self._stream = stream

    @classmethod
    async def open(
        cls,
        server: Server,
        holder: str,
        session: int = 0,
        token: int = 0,
        forsaken: int = 0,
        ago: float | None = None,
        secret: bytes = SECRET,
    ) -> "Speaker":
        """`ago`: seconds since the candidate stood down from the term of the forsaken session. The stream ends when
        the Speaker is garbage collected."""
        speaker = cls(await connect(server.address).duplex(CAMPAIGN_METHOD, CampaignRequest, CampaignResponse))
        opening = CampaignRequest.Open(
            election=ELECTION, holder=holder, session=session, token=token, forsaken=forsaken, secret=secret
        )
        if ago is not None:
            opening.forsaken_ago_ms = round(ago * 1000)
        await speaker.say(CampaignRequest(open=opening))
        return speaker

    async def say(self, request: CampaignRequest) -> None:
        await self._stream.write(request)

    async def beat(self, sequence: int) -> None:
        await self.say(CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=sequence)))

    async def resign(self) -> None:
        await self.say(CampaignRequest(resign=CampaignRequest.Resign()))

    async def hear(self, kind: str) -> CampaignResponse:
        """Return the next response, which must be of this kind."""
        response = await self.next()
        assert response is not None, f"the stream ended; expected {kind}"
        assert response.WhichOneof("kind") == kind, response
        return response

    async def next(self) -> CampaignResponse | None:
        """Return the next response, or None at the end of the stream. Raises ApiError."""
        async with asyncio.timeout(PATIENCE):
            return await self._stream.read()

    async def skip(self, kind: str) -> CampaignResponse:
        """Return the next response that is not of this kind."""
        while (response := await self.next()) is not None:
            if response.WhichOneof("kind") != kind:
                return response
        raise AssertionError("the stream ended")

    async def lead(self) -> tuple[int, int]:
        """Expect immediate election. Return session and token."""
        session = (await self.hear("opened")).opened.session
        return session, (await self.hear("elected")).elected.token

    async def win(self) -> int:
        """Send heartbeats until the candidate is elected. Return the token. Raise AssertionError if the session is lost."""
        beating = asyncio.create_task(self._beat())
        try:
            async with asyncio.timeout(PATIENCE):
                while (response := await self.next()) is not None:
                    assert not response.HasField("lost"), response.lost.reason
                    if response.HasField("elected"):
                        return response.elected.token
        finally:
            beating.cancel()
        raise AssertionError("the stream ended")

    async def _beat(self) -> None:
        for sequence in count(1):
            await self.beat(sequence)
            await asyncio.sleep(INTERVAL)

    def vanish(self) -> None:
        """Cancel the stream."""
        self._stream.cancel()
