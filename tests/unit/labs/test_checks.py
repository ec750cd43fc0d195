"""The checks of labs 9 and 11 fail if a step was omitted or changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pinnace.api.core_v1_pb2 import ConfigMap, Event
from pinnace.api.resources import CONFIG_MAPS, EVENTS, PODS
from pinnace.history.records import Record, RunInfo, encode_record
from pinnace.verification.labs import lab09, lab11
from pinnace.verification.labs.checks import CheckFailed
from tests.builders import make_pod
from tests.unit.check.mutations.binding import a_bind_by_a_deposed_leader
from tests.unit.check.world import World
from tests.unit.cli.fakes import FakeApi

SEED = 5


def history(bug: str = "", seed: int = SEED, *, violated: bool = False) -> list[Record]:
    records = World(0).live()
    if violated:
        records = a_bind_by_a_deposed_leader(records, Random(0))
    return [replace(record, bug=bug, seed=seed) if isinstance(record, RunInfo) else record for record in records]


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[Record]], None]:
    monkeypatch.chdir(tmp_path)
    Path("lab-9").mkdir()

    def write(name: str, records: list[Record]) -> None:
        (tmp_path / "lab-9" / name).write_text("".join(map(encode_record, records)))

    write("right.jsonl", history(seed=0))
    for name in ("found.jsonl", "replay.jsonl"):
        write(name, history(lab09.FENCE, violated=True))
    write("fenced.jsonl", history())
    write("clock.jsonl", history(lab09.CLOCK))
    return write


async def test_correct_histories_of_lab_9_pass(save: Callable[[str, list[Record]], None]) -> None:
    for check in lab09.CHECKS.values():
        await check(None)


@pytest.mark.parametrize(
    ("step", "name", "records", "says"),
    [
        ("right", "right.jsonl", history(lab09.FENCE), "not of the correct code"),
        ("right", "right.jsonl", history(violated=True), "right.jsonl violates I3"),
        ("hunt", "found.jsonl", history(), "is a run of the correct code"),
        ("hunt", "found.jsonl", history(lab09.FENCE), "does not violate I3"),
        ("replay", "replay.jsonl", history(lab09.FENCE, 6, violated=True), "has the seed 6, not 5"),
        ("replay", "replay.jsonl", history(lab09.FENCE, violated=True)[:-1], "differ"),
        ("blame", "fenced.jsonl", history(lab09.FENCE, violated=True), "not of the correct code"),
        ("blame", "fenced.jsonl", history(seed=6), "has the seed 6, not 5"),
        ("clock", "clock.jsonl", history(), "is a run of the correct code"),
        ("clock", "clock.jsonl", [], "is empty"),
    ],
)
async def test_wrong_history_fails_the_check(
    save: Callable[[str, list[Record]], None], step: str, name: str, records: list[Record], says: str
) -> None:
    save(name, records)
    with pytest.raises(CheckFailed, match=says):
        await lab09.CHECKS[step](None)


async def squad(api: FakeApi, size: int, made_by: Callable[[int], str], replaced: int) -> None:
    """The state after an operator ran: pods, and events of two pods with the name of the replaced one."""
    web = await api.of(CONFIG_MAPS).put(
        ConfigMap(metadata={"name": "web", "namespace": "default", "labels": {"operator": "squad"}})
    )
    for number in range(size):
        pod = make_pod(f"web-{number}").label("squad", "web").label("made-by", made_by(number)).phase("Running")
        await api.of(PODS).put(pod.owner("ConfigMap", "web", web.metadata.uid).build())
    for uid in ("a", "b"):
        event = Event(metadata={"name": uid, "namespace": "default"}, reason="Scheduled")
        event.involvedObject.kind, event.involvedObject.name, event.involvedObject.uid = "Pod", f"web-{replaced}", uid
        await api.of(EVENTS).put(event)


async def test_check_requires_a_replaced_pod() -> None:
    api = FakeApi()
    await squad(api, 3, lambda number: "1", replaced=1)
    assert "was replaced" in await lab11.check_reconcile(api.client())
    other = FakeApi()
    await squad(other, 3, lambda number: "1", replaced=2)
    with pytest.raises(CheckFailed, match="pod/web-1 was never replaced"):
        await lab11.check_reconcile(other.client())


async def test_check_requires_a_restart_of_the_operator() -> None:
    api = FakeApi()
    await squad(api, 5, lambda number: "1" if number < 2 else "2", replaced=2)
    assert (
        await lab11.check_level(api.client()) == "process 1 created pod/web-0, and process 2 did the work that it could not do"
    )
    alive, smaller = FakeApi(), FakeApi()
    await squad(alive, 5, lambda number: "1", replaced=2)
    with pytest.raises(CheckFailed, match="the operator was not killed"):
        await lab11.check_level(alive.client())
    await squad(smaller, 3, lambda number: "1", replaced=2)
    with pytest.raises(CheckFailed, match="pod/web-3 does not exist"):
        await lab11.check_level(smaller.client())
