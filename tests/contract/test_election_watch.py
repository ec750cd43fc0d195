"""Watches of elections: the current state, then each change of leader, candidates and terms, on every server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pinnace.api.elections_pb2 import ElectionState
from pinnace.apiserver.election import watch
from pinnace.client.client import ElectionClient
from pinnace.client.errors import Expired
from tests.contract.electing import Serve, Vote, history_until
from tests.contract.servers import PATIENCE, Server
from tests.contract.voters import ELECTION, Speaker
from tests.unit.client.fakeserver import connect

States = AsyncIterator[ElectionState]


@asynccontextmanager
async def watching(server: Server, name: str = "") -> AsyncIterator[tuple[list[ElectionState], States]]:
    """Yield the states of the first response and an iterator over the changes."""
    connection = connect(server.address)
    stream = await ElectionClient(connection).watch(name)

    async def changes() -> States:
        while (response := await stream.read(PATIENCE)) is not None:
            for event in response.events:
                yield event

    try:
        first = await stream.read(PATIENCE)
        assert first is not None
        yield list(first.events), changes()
    finally:
        stream.cancel()
        await connection.close()


async def until(states: States, condition: Callable[[ElectionState], bool]) -> list[ElectionState]:
    """Return the changes up to the first one that meets the condition."""
    seen: list[ElectionState] = []
    async with asyncio.timeout(PATIENCE):
        async for state in states:
            seen.append(state)
            if condition(state):
                return seen
    raise AssertionError("the watch ended")


async def test_leader_change_includes_the_reason_for_the_end(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    async with watching(two) as (first, states):
        assert first == []
        leader = vote("a", one)
        token = await leader.elected()
        seen = await until(states, lambda state: state.election.token == token)
        assert [(term.holder, term.token) for term in seen[-1].terms] == [("a", token)]
        await leader.candidate.release()
        seen = await until(states, lambda state: any(term.reason for term in state.terms))
        assert 0 in [state.election.token for state in seen], "there is no state without a leader"
        (term,) = seen[-1].terms
        assert (term.holder, term.token, term.reason) == ("a", token, "resigned") and term.HasField("ended")
        assert [state.revision for state in seen] == sorted(state.revision for state in seen)


async def test_first_response_contains_all_terms_and_candidates(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    first = vote("a", one)
    tokens = [await first.elected()]
    second = vote("b", one)
    await first.candidate.release()
    tokens.append(await second.elected())
    third = await Speaker.open(one, "c")
    await third.hear("opened")
    await history_until(two, lambda terms: len(terms) == 2 and terms[0].reason == "resigned")
    async with watching(two, ELECTION) as ((state,), states):
        assert (state.election.holder, state.election.token) == ("b", tokens[1])
        assert [(term.holder, term.token) for term in state.terms] == [("a", tokens[0]), ("b", tokens[1])]
        if not [candidate for candidate in state.election.candidates if candidate.holder == "c"]:
            await until(states, lambda item: any(waits.holder == "c" for waits in item.election.candidates))
    async with watching(two, "other") as (none, _):
        assert none == []


async def test_list_includes_the_terms_of_an_election_without_a_leader(serve: Serve, vote: Vote) -> None:
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    await leader.candidate.release()
    await leader.stop()
    await history_until(server, lambda terms: [term.reason for term in terms] == ["resigned"])
    connection = connect(server.address)
    try:
        (state,) = (await ElectionClient(connection).list_elections()).states
        assert (state.election.name, state.election.token) == (ELECTION, 0)
        assert [(term.token, term.reason) for term in state.terms] == [(token, "resigned")]
    finally:
        await connection.close()


async def test_watch_of_a_slow_client_expires(serve: Serve, vote: Vote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_UNSENT", 0)
    server = await serve()
    async with watching(server) as (_, states):
        await vote("a", server).elected()
        with pytest.raises(Expired):
            await until(states, lambda state: False)


async def test_watches_share_one_watch_of_the_store(serve: Serve, vote: Vote) -> None:
    server = await serve()
    before = server.storage.watches
    async with watching(server) as (_, one), watching(server) as (_, two), watching(server) as (_, three):
        token = await vote("a", server).elected()
        for states in (one, two, three):
            await until(states, lambda state: state.election.token == token)
        assert server.storage.watches == before
