"""The client of attacks against small servers, the figures of its measurement, and the choice of attacks as faults."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from pinnace.cluster.spec import ClusterSpec
from pinnace.history.records import CallRecord, Outcome
from pinnace.verification.chaos import engine, run
from pinnace.verification.chaos.attacks import wire
from pinnace.verification.chaos.attacks.table import (
    ATTACKS,
    JSON_SIZE,
    STALLED_SIZE,
    YAML_SIZE,
    build_costly_patches,
    pod_json,
    pod_yaml,
)
from pinnace.verification.chaos.attacks.wire import CLOSED, RESET, SILENT, AttackTarget, build_request, repeat_forever
from pinnace.verification.chaos.faults.attacks import (
    BODIES,
    CALLERS,
    CONNECTIONS,
    GROWTH,
    READS,
    GatewayAttack,
    build_attack_maker,
)
from pinnace.verification.chaos.faults.base import FaultArea, FaultRequirement
from pinnace.verification.chaos.faults.table import ATTACKS as FAULTS
from pinnace.verification.chaos.faults.table import HARMLESS, KINDS, OBSERVING, TOLERATED
from tests.robustness.door.measure import Measured, Phase, phase
from tests.robustness.door.test_attacks import problems

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LARGE = build_request("POST", "/", {}, b"x" * (16 << 20))
"""More than the buffers of a connection hold."""


def door_of(server: asyncio.Server) -> AttackTarget:
    return AttackTarget(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", {})


async def exchange(handler: Handler, data: bytes) -> tuple[str, bool]:
    """The outcome of a request to a server, and whether its connection can be used again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handler(reader, writer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        door = door_of(server)
        connection = await door.connect(None)
        try:
            return await connection.send_and_observe(data), connection.reusable
        finally:
            connection.abort()


async def answer(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.encode())
    await writer.drain()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", ("200", True)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", ("200", True)),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ("403", False)),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", ("101", False)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", (CLOSED, False)),
        ("", (CLOSED, False)),
    ],
)
async def test_outcome_of_a_small_request(text: str, expected: tuple[str, bool]) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer, text)

    assert await exchange(handler, build_request("GET", "/")) == expected


async def test_answer_before_the_end_of_a_body_is_the_outcome() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    assert await exchange(handler, LARGE) == ("403", False)


async def test_reset_connection_is_an_outcome() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    assert await exchange(handler, LARGE) == (RESET, False)


async def test_server_without_an_answer_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_TIMEOUT", 0.05)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert await exchange(handler, build_request("GET", "/")) == (SILENT, False)


async def test_ended_connections_are_opened_again_and_counted() -> None:
    served, enough = Counter[str](), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        served["requests"] += 1
        await answer(writer, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
        if served["requests"] >= 5:
            enough.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        door = door_of(server)
        repeating = asyncio.create_task(door.repeat_requests(None, repeat_forever(build_request("GET", "/")), 2))
        async with asyncio.timeout(10):
            await enough.wait()
        repeating.cancel()
        await asyncio.wait((repeating,))
    assert door.outcomes.keys() == {"401"} and door.outcomes["401"] >= 3


def test_bodies_have_their_sizes() -> None:
    for size, body in (
        (JSON_SIZE, pod_json(JSON_SIZE)),
        (STALLED_SIZE, pod_json(STALLED_SIZE)),
        (YAML_SIZE, pod_yaml(YAML_SIZE)),
    ):
        assert 0.95 * size < len(body) < 1.05 * size
    assert all(len(patch) < 3 << 20 for patch in build_costly_patches())


def test_every_attack_is_a_fault_or_a_larger_form_of_one() -> None:
    chosen = (*BODIES, *READS, *CALLERS, *CONNECTIONS)
    assert len(set(chosen)) == len(chosen)
    assert ATTACKS.keys() - set(chosen) == {"future-lists-600", "refused-bodies-400"}


def test_attack_faults_need_gateways_and_excuse_nothing() -> None:
    for name in FAULTS:
        assert KINDS[name].area is FaultArea.ALL and KINDS[name].targets(ClusterSpec(gateways=2)) == ["gateway-0", "gateway-1"]
        assert run.find_missing_requirement(KINDS[name], ClusterSpec()) == FaultRequirement.GATEWAYS
        assert name in HARMLESS and name in OBSERVING and name in TOLERATED
    assert engine.build_run_record(0.0, 1, "", 1.0).attacks == FAULTS


def test_attack_is_chosen_by_the_seed() -> None:
    make = build_attack_maker(READS)
    details = {make(None, "gateway-0", random.Random(seed)).details for seed in range(40)}
    assert details == {f"gateway-0: {ATTACKS[name].what}" for name in READS}


class FakeAttacker:
    def __init__(self, outcomes: Counter[str]) -> None:
        self._outcomes = outcomes

    async def end_attack(self) -> Counter[str]:
        return self._outcomes

    def kill(self) -> None:
        pass


async def test_attack_that_is_not_answered_as_expected_did_not_take_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeClusterUnderTest:
        class cluster:  # noqa: N801
            class state:  # noqa: N801
                @staticmethod
                def find_process(name: str) -> None:
                    return None

    monkeypatch.setattr("pinnace.verification.chaos.faults.attacks.processes.find_running", lambda record: None)
    fault = GatewayAttack(FakeClusterUnderTest, "gateway-0", ATTACKS["refusals"])
    fault._attacker = FakeAttacker(Counter({"silent": 3}))
    await fault.undo()
    await fault.undo()
    (reading,) = fault.readings
    assert (reading.value, reading.least) == (0, 1.0)
    assert GROWTH == 150.0


def call(began: float, ended: float, outcome: Outcome = "ok", code: str = "") -> CallRecord:
    return CallRecord("user", 1, "gateway-0", "get", "pods", began, ended, outcome, code)


def test_figures_of_a_phase() -> None:
    calls = [call(at / 10, at / 10 + 0.01) for at in range(10)]
    calls += [call(1.0, 1.5), call(1.1, 1.2, "unknown", "TimeoutError"), call(1.9, 2.5)]
    assert phase(calls, 0.0, 1.0) == Phase(10.0, 10.0, 10.0, 590.0, {})
    assert phase(calls, 1.0, 2.0) == Phase(2.0, 500.0, 600.0, 1000.0, {"TimeoutError": 1})


def test_gap_lasts_until_the_last_call_has_failed() -> None:
    calls = [call(0.0, 0.1), *(call(at, at + 3.0, "unknown", "TimeoutError") for at in (1.0, 2.0))]
    assert phase(calls, 1.0, 2.5).longest_gap == 4900.0


QUIET = Phase(66.0, 4.0, 10.0, 40.0, {})


@pytest.mark.parametrize(
    ("attacked", "outcomes", "expected"),
    [
        (Phase(66.0, 5.0, 50.0, 100.0, {}), {"403": 900}, 0),
        (Phase(66.0, 5.0, 51.0, 100.0, {}), {"403": 900}, 1),
        (Phase(59.0, 5.0, 50.0, 100.0, {}), {"403": 900}, 1),
        (Phase(66.0, 5.0, 50.0, 251.0, {}), {"403": 900}, 1),
        (Phase(65.0, 5.0, 50.0, 100.0, {"503": 1}), {"403": 900}, 1),
        (Phase(66.0, 5.0, 50.0, 100.0, {}), {"403": 299, "429": 900}, 1),
        (Phase(66.0, 5.0, 50.0, 100.0, {}), {"403": 900, "500": 1}, 1),
    ],
)
def test_limits_of_an_attack(attacked: Phase, outcomes: dict[str, int], expected: int) -> None:
    assert len(problems(ATTACKS["refusals"], Measured(QUIET, attacked, 0.0, 0.0, outcomes))) == expected
    grown = problems(ATTACKS["refusals"], Measured(QUIET, attacked, 151.0, 151.0, outcomes))
    assert len(grown) == expected + 2
