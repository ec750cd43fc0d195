"""A second process with the same name: its command line, and its readiness."""

import random
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import KUBELET, ClusterSpec, ProcessPlan, plan_processes
from pinnace.verification.chaos.faults import processes
from pinnace.verification.chaos.faults.processes import DuplicateProcess, duplicate_argv

pytestmark = pytest.mark.processes


def test_kubelet_twin_differs_only_in_its_addresses_and_log(tmp_path: Path) -> None:
    """With an address of the original, the twin failed to bind a port, and the fault had no effect."""
    ports, fresh = count(20_000), count(30_000)
    plans = plan_processes(
        ClusterSpec(nodes=2, data_dir=tmp_path), EtcdBinary(Path("etcd"), (3, 5, 21), fallback=False), ports.__next__
    )
    (kubelet, *_) = (item for item in plans if item.component == KUBELET)
    argv = (*kubelet.argv, "--run-log", str(tmp_path / "kubelet.log"))
    twin = duplicate_argv(argv, fresh.__next__)
    differs = {argv[at - 1]: (mine, its) for at, (mine, its) in enumerate(zip(argv, twin, strict=True)) if mine != its}
    assert differs.keys() == {"--http", "--listen", "--run-log"}
    own = {kubelet.http, argv[argv.index("--listen") + 1]}
    assert not own & set(twin)


class FakeWorld:
    """A world with one process, which sleeps for a minute or exits at once."""

    def __init__(self, folder: Path, program: str) -> None:
        self.plan = ProcessPlan(KUBELET, "kubelet-0", "a:1", "a:1", (sys.executable, "-c", program, "--http", "a:1"))
        record = SimpleNamespace(plan=self.plan)
        state = SimpleNamespace(find_process=lambda name: record)
        self.cluster: Any = SimpleNamespace(state=state, spec=SimpleNamespace(data_dir=folder))
        self.unstoppable_processes: list[str] = []
        (folder / "logs").mkdir()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ProcessPlan]:
    """The plans whose readiness was queried; the third query succeeds."""
    plans: list[ProcessPlan] = []

    async def problem(plan: ProcessPlan) -> str | None:
        plans.append(plan)
        return "no session" if len(plans) < 3 else None

    monkeypatch.setattr(processes, "probe_readiness", problem)
    monkeypatch.setattr(processes, "POLL", 0.0)
    return plans


async def test_twin_begins_when_it_is_ready(tmp_path: Path, asked: list[ProcessPlan]) -> None:
    """On a busy machine the fault ended before the twin had started."""
    world = FakeWorld(tmp_path, "import time; time.sleep(60)")
    twin = DuplicateProcess(world, "kubelet-0", random.Random())  # type: ignore[arg-type] # a stand-in
    await twin.inject()
    await twin.undo()
    assert len(asked) == 3
    assert {plan.http for plan in asked} != {world.plan.http}, "the twin has its own address"
    assert not world.unstoppable_processes


async def test_exited_twin_is_reported_without_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(plan: ProcessPlan) -> str:
        return "no answer"

    monkeypatch.setattr(processes, "probe_readiness", never)
    monkeypatch.setattr(processes, "POLL", 0.01)
    world = FakeWorld(tmp_path, "raise SystemExit(1)")
    twin = DuplicateProcess(world, "kubelet-0", random.Random())  # type: ignore[arg-type] # a stand-in
    await twin.inject()
    await twin.undo()
    assert world.unstoppable_processes == ["a second kubelet-0 ended unexpectedly with exit code 1"]
