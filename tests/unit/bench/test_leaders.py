"""A benchmark without continuous leadership, or without a hit on the current leader, gives no figure."""

import signal
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.client.connection import Connection
from pinnace.verification.bench import BenchError, throughput
from pinnace.verification.bench.failover import hit_leader
from pinnace.verification.bench.throughput import PlaceholderLeader


class FakeCandidate:
    """A candidate whose election is decided by the test."""

    def __init__(self, connection: Connection, election: str, holder: str, *, on_elected: Any, on_lost: Any) -> None:
        self.on_elected, self.on_lost = on_elected, on_lost
        self.token: int | None = None

    def win(self, token: int) -> None:
        self.token = token
        self.on_elected(token)

    def lose(self, reason: str) -> None:
        self.token = None
        self.on_lost(reason)


@pytest.fixture
def placeholder(monkeypatch: pytest.MonkeyPatch) -> PlaceholderLeader:
    monkeypatch.setattr(throughput, "LeaderElector", FakeCandidate)
    placeholder = PlaceholderLeader(Connection(["127.0.0.1:1"]))
    placeholder.candidate.win(7)
    return placeholder


def test_uninterrupted_leader_gives_a_valid_measurement(placeholder: PlaceholderLeader) -> None:
    placeholder.check_still_leads()


def test_reelected_leader_invalidates_the_measurement(placeholder: PlaceholderLeader) -> None:
    placeholder.candidate.lose("no heartbeat was acknowledged for 1.4 s")
    placeholder.candidate.win(9)
    with pytest.raises(BenchError, match=r"no heartbeat was acknowledged for 1\.4 s.*fewer pods"):
        placeholder.check_still_leads()


def test_unreported_lapse_invalidates_the_measurement(placeholder: PlaceholderLeader) -> None:
    placeholder.candidate.token = None
    with pytest.raises(BenchError, match="heartbeats were late"):
        placeholder.check_still_leads()


class FakeWitness:
    """Reports the given time as the first bind of the next leader."""

    def __init__(self, first_bind: float) -> None:
        self.history = SimpleNamespace(counts=Counter[str]())
        self._first_bind = first_bind

    async def wait_for_stage(self, what: str, number: int, timeout: float) -> None:
        return

    async def next_leader_binds(self, token: int, timeout: float) -> float:
        return self._first_bind


@pytest.mark.parametrize(("first_bind", "sound"), [(float("inf"), True), (0.0, False)])
async def test_leader_replaced_before_the_hit_invalidates_the_measurement(first_bind: float, sound: bool) -> None:
    async def leader(name: str) -> Election:
        return Election(holder="scheduler-0", token=7)

    client: Any = SimpleNamespace(elections=SimpleNamespace(get=leader))
    cluster: Any = SimpleNamespace(kill=lambda name, number: None)
    witness: Any = FakeWitness(first_bind)
    if sound:
        assert (await hit_leader(cluster, client, witness, signal.SIGKILL)).gap > 0
    else:
        with pytest.raises(BenchError, match="scheduler-0 lost the election"):
            await hit_leader(cluster, client, witness, signal.SIGKILL)
