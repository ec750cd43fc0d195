"""A few seeds (`make simulate` plays as many as one likes), and that a seed is a run: exactly the same whenever and wherever it
is played."""

import os
import random
import subprocess
import sys
import threading
from itertools import chain

import pytest

from pinnace.kubelet import registration
from tests.simulation.__main__ import describe
from tests.simulation.faults import FAULTS
from tests.simulation.plan import COMMON, ENDING, OWN, Kind, plan
from tests.simulation.run import play

SEEDS = 12
BATCHES = 4
"""So that workers share them."""


def eventful(kind: Kind) -> int:
    """The first seed of this kind that has faults."""
    return next(seed for seed in range(100) if plan(seed).kind is kind and plan(seed).blows)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_seeds_hold(batch: int) -> None:
    outcomes = [play(seed) for seed in range(batch, SEEDS, BATCHES)]
    assert not [describe(outcome) for outcome in outcomes if outcome.problems]
    assert any(outcome.plan.blows for outcome in outcomes)
    examined = [verdict.examined for outcome in outcomes for verdict in outcome.verdicts if verdict.status == "holds"]
    assert sum(examined) > 1000


@pytest.mark.parametrize("kind", Kind)
def test_replay_is_exact(kind: Kind) -> None:
    seed, other = [seed for seed in range(100) if plan(seed).kind is kind and plan(seed).blows][:2]
    first = play(seed)
    play(other)
    assert play(seed).digest == first.digest != play(other).digest


def test_replay_depends_on_no_hash_seed() -> None:
    seeds = [eventful(kind) for kind in Kind]
    code = f"from tests.simulation.run import play; print(*(play(seed).digest for seed in {seeds}))"

    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=50
    )
    assert elsewhere.stdout.split() == [play(seed).digest for seed in seeds]


def test_replay_depends_on_no_other_thread() -> None:
    seed = eventful(Kind.WHOLE)
    expected, over = play(seed).digest, threading.Event()

    def draw() -> None:
        while not over.is_set():
            random.random()

    other = threading.Thread(target=draw)
    other.start()
    try:
        assert play(seed).digest == expected
    finally:
        over.set()
        other.join()


def test_replay_depends_on_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which nodes tell, as the version of their kubelet."""
    seed = eventful(Kind.WHOLE)
    expected = play(seed).digest
    monkeypatch.setattr(registration, "build_version", lambda: "0.1.0+0123456-dirty")
    assert play(seed).digest == expected


def test_every_fault_has_its_turn() -> None:
    struck = {blow.fault for seed in range(500) for blow in plan(seed).blows}
    assert struck == {*COMMON, *chain(*OWN.values()), ENDING} <= FAULTS.keys()


def test_trace_names_processes_and_actions() -> None:
    lines: list[str] = []
    seed = eventful(Kind.WHOLE)
    quiet = play(seed)
    assert play(seed, say=lines.append).digest == quiet.digest
    assert any("/pinnace.v1.Pods/BindBatch" in line for line in lines)
    assert any("elected with token" in line for line in lines)
