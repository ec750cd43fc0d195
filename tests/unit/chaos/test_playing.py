"""How a scenario waits for the cluster, and the report of a failed wait."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.elections_pb2 import Election, TransferElectionResponse
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import Unavailable
from pinnace.history.records import ElectionFacts, FaultRecord, Record, RunPhase, StoredChange
from pinnace.verification.chaos.engine import build_run_record
from pinnace.verification.chaos.perform import _play_scenario
from pinnace.verification.chaos.scenarios.base import ScenarioContext, ScenarioError
from pinnace.verification.chaos.scenarios.components import return_leadership
from pinnace.verification.chaos.scenarios.figures import ScenarioMoment
from pinnace.verification.check.check import check_history

OLD, NEW = Election(holder="s0", token=5), Election(holder="s1", token=9)


class FakeAct(ScenarioContext):
    """`leaders`: the leader for each query; the last one repeats. Only s1 binds."""

    def __init__(self, *leaders: Election) -> None:
        stage: Any = SimpleNamespace(under_test=None, cluster=None)
        unused: Any = None
        super().__init__(stage, unused, unused, self, random.Random(0))
        self.elections = self
        self._leaders = list(leaders)
        self._bound: Iterator[int] = iter(range(100))

    async def get(self, name: str) -> Election:
        return self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]

    async def count_binds(self, name: str, result: str) -> int:
        return next(self._bound) if name == NEW.holder else 70


async def test_binding_returns_the_current_leader() -> None:
    assert await FakeAct(OLD, OLD, NEW).wait_for_binding_leader() == NEW


async def test_binding_ignores_terms_up_to_the_given_token() -> None:
    assert (
        await FakeAct(Election(holder=NEW.holder, token=5), Election(holder=NEW.holder, token=5), NEW).wait_for_binding_leader(
            after=5
        )
        == NEW
    )


class FailingScenario:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run_scenario(self, act: ScenarioContext) -> None:
        act.record_observation("it is seen")
        act.record_action("kill -9", 100.0)
        act.moments[0] = ScenarioMoment(101.5, "it is seen")
        raise self._error


@pytest.mark.parametrize("error", [ScenarioError("waited in vain"), Unavailable(Refusal(Code.UNAVAILABLE, "", "no answer"))])
async def test_events_before_the_failure_are_reported(error: Exception) -> None:
    failing: Any = FailingScenario(error)
    with pytest.raises(ScenarioError) as raised:
        await _play_scenario(failing, FakeAct(OLD))
    assert raised.value.moments == [ScenarioMoment(0.0, "kill -9", hit=True), ScenarioMoment(1.5, "it is seen")]


class Journal:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)


class TransferringAct(FakeAct):
    """Refuses the first transfer. The second one is carried out."""

    def __init__(self) -> None:
        super().__init__(NEW)
        self.journal = Journal()
        self._journal: Any = self.journal
        self._transfers: Iterator[bool] = iter((False, True))
        self.moved = 0.0

    async def transfer_leadership(self, election: str, to: str) -> TransferElectionResponse:
        if not next(self._transfers):
            raise Unavailable(Refusal(Code.UNAVAILABLE, "", "no answer"))
        self.moved = time.monotonic()
        return TransferElectionResponse(before=NEW, after=Election(holder=to, token=12))


async def test_transfer_at_the_end_of_a_scenario_is_a_cause() -> None:
    """The frozen leader leads again at the end. On a slow machine this was more than `aftermath` seconds after the fault, and
    L2 reported leadership that moved without a fault."""
    act = TransferringAct()
    frozen = FaultRecord(7, "freeze-leader", OLD.holder, act_time := time.monotonic() - 60.0, act_time + 1.0)
    await return_leadership(act, OLD.holder)
    assert [(record.name, record.target) for record in act.journal.records if isinstance(record, FaultRecord)] == [
        ("transfer-leader", OLD.holder)
    ] * 2
    key, start = "/registry/elections/scheduler", act_time - 10.0
    terms = [
        StoredChange(start + 1.0, 5, key, "d", 5, 0, ElectionFacts(OLD.holder)),
        StoredChange(act_time + 0.5, 8, key),
        StoredChange(act_time + 0.6, 9, key, "d", 9, 0, ElectionFacts(NEW.holder)),
        StoredChange(act.moved, 11, key),
        StoredChange(act.moved, 12, key, "d", 12, 0, ElectionFacts(OLD.holder)),
    ]
    run, phases = build_run_record(time.time(), 0, "x", 60.0), [RunPhase(start, "load"), RunPhase(act.moved + 1.0, "quiet")]
    end = RunPhase(act.moved + 2.0, "end")

    def violations(*faults: Record) -> list[str]:
        report = check_history([run, *phases, *faults, *terms, end], ["L2"])
        return [violation.text for verdict in report.verdicts for violation in verdict.violations]

    assert len(violations(frozen)) == 1, "the transfer alone is no cause"
    assert violations(frozen, *act.journal.records) == []


async def test_failed_transfer_at_the_end_names_the_last_refusal() -> None:
    class RefusingAct(TransferringAct):
        async def poll_until(self, look: Callable[[], Awaitable[Any]], what: str, patience: float = 0.0) -> Any:
            assert await look() is None
            raise ScenarioError(f"timed out after 15 s waiting for {what}")

    with pytest.raises(ScenarioError, match=f"{OLD.holder} to lead; the last transfer: no answer"):
        await return_leadership(RefusingAct(), OLD.holder)
