"""The measured resource usage of real processes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.kubelet.runtime.process import meter
from pinnace.kubelet.runtime.process.meter import ProcessMeter
from pinnace.kubelet.stats import ResourceUsage, RunningPod
from tests.unit.kubelet.process.scene import FOR_EVER, Scene, shell

pytestmark = pytest.mark.processes

BURN = f"{sys.executable} -S -c 'import time\nwhile time.process_time() < 0.3: pass'"
"""Ends after 0.3 s of CPU time."""
WAITS_LATE = f"""
import os, time
pid = os.spawnv(os.P_NOWAIT, "/bin/sh", ["sh", "-c", {BURN!r}])
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("ended", flush=True)
time.sleep(1000)
"""
HOLD = 'import time; block = bytearray(50 << 20); print("held", flush=True); time.sleep(1000)'


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "root")
    yield scene
    await scene.close()


async def measure(runtime: ProcessMeter, pod: Pod, *containers: str) -> dict[str, ResourceUsage]:
    (result,) = await runtime.measure([RunningPod(pod, containers)])
    return dict(result)


def cpu_seconds(used: ResourceUsage) -> float:
    return used.cpu / 1e9 * used.window


async def test_cpu_time_of_ended_children_is_counted(scene: Scene) -> None:
    pod = shell(f"{BURN}; echo done; {FOR_EVER}")
    scene.run(pod)
    await scene.says("done")
    used = (await measure(ProcessMeter(scene.root), pod, "c0"))["c0"]
    assert cpu_seconds(used) >= 0.25  # the kernel counts in units of 10 ms


async def test_current_memory_is_measured(scene: Scene) -> None:
    pod = shell(f"echo done; {FOR_EVER}")
    scene.run(pod)
    await scene.says("done")
    async with asyncio.timeout(10):
        while not (await measure(ProcessMeter(scene.root), pod, "c0"))["c0"].memory > 100_000:
            pass  # a process has no memory during exec


async def test_daemon_outside_the_session_is_counted(scene: Scene) -> None:
    pod = shell(f"(setsid {sys.executable} -S -c '{HOLD}' &); {FOR_EVER}")
    scene.run(pod)
    await scene.says("held")
    assert (await measure(ProcessMeter(scene.root), pod, "c0"))["c0"].memory >= 50 << 20


async def test_unreaped_child_is_counted(scene: Scene) -> None:
    pod = shell("")
    pod.spec.containers[0].command[:] = [sys.executable, "-S", "-c", WAITS_LATE]
    scene.run(pod)
    await scene.says("ended")
    assert cpu_seconds((await measure(ProcessMeter(scene.root), pod, "c0"))["c0"]) >= 0.25


async def test_cpu_usage_is_averaged_since_the_previous_request(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "LEAST_WINDOW", 0.0)
    pod = shell(f"{BURN}; echo done; {FOR_EVER}")
    scene.run(pod)
    await scene.says("done")
    of_two = ProcessMeter(scene.root)
    first, second = (await measure(of_two, pod, "c0"))["c0"], (await measure(of_two, pod, "c0"))["c0"]
    assert cpu_seconds(first) >= 0.25 and cpu_seconds(second) < 0.1
    assert second.window < first.window


async def test_immediate_second_request_returns_the_same_cpu_usage(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "LEAST_WINDOW", 3600.0)
    pod = shell(FOR_EVER)
    scene.run(pod)
    await scene.running()
    of_two = ProcessMeter(scene.root)
    first, again = await measure(of_two, pod, "c0"), await measure(of_two, pod, "c0")
    assert (again["c0"].cpu, again["c0"].window) == (first["c0"].cpu, first["c0"].window)


async def test_missing_processes_are_left_out(scene: Scene) -> None:
    pod = shell(FOR_EVER)
    assert await measure(ProcessMeter(scene.root), pod, "c0", "other") == {}
