"""`pinnace chaos run` with real processes: faults happen, the verdict is good, and nothing is left, however it ends."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pinnace.cluster import processes, spec
from pinnace.history.records import ProcessState, read_history

pytestmark = pytest.mark.chaos

COMMAND = (sys.executable, "-m", "pinnace.cli.entry", "chaos", "run", "--nodes", "10", "--kubelets", "1")
PATIENCE = 30.0
RESULTS = {"chaos.jsonl", "etcd.jsonl", "processes.jsonl", "kubelet-0.run.jsonl", "logs", "report.json"}


@pytest.mark.timeout(150)
def test_short_run_holds_and_says_what_it_did(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    names = "kill-leader,partition-apiserver,compact,nospace,freeze-kubelet"
    ended = subprocess.run(
        [*COMMAND, "--faults", names, "--minutes", "0.3", "--report", "json", "--save", kept],
        capture_output=True, text=True, timeout=140, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert report["status"] == "holds"
    assert set(report["faults"]["fired"]) == set(names.split(","))
    assert report["calls"]["outcomes"]["ok"] > 100
    assert f"pinnace timeline open {kept}/*.jsonl" in ended.stderr
    assert {path.name for path in kept.iterdir()} >= RESULTS
    states = {
        (item.name.split("-")[0], item.state)
        for item in read_history(kept / "processes.jsonl")
        if isinstance(item, ProcessState)
    }
    assert {("scheduler", "up"), ("scheduler", "down"), ("kubelet", "frozen")} <= states
    assert not (kept / "cluster").exists()


@pytest.mark.timeout(150)
def test_run_that_is_too_short_for_a_fault_that_is_named_proves_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ended = subprocess.run(
        [*COMMAND, "--faults", "compact,twin-kubelet", "--minutes", "0.1", "--report", "json", "--save", kept],
        capture_output=True, text=True, timeout=140, check=False,
    )  # fmt: skip
    assert ended.returncode == 10, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert report["void"] == ['fault "twin-kubelet" did not fire'] and report["faults"]["idle"] == ["twin-kubelet"]


@pytest.mark.timeout(150)
async def test_killed_command_leaves_no_process(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = await asyncio.create_subprocess_exec(
        *COMMAND, "--faults", "freeze-apiserver", "--minutes", "5", "--save", kept, stderr=asyncio.subprocess.PIPE
    )
    assert command.stderr is not None
    async for line in command.stderr:
        if b"freeze-apiserver" in line:
            break
    cluster = spec.decode_state((kept / "cluster" / "cluster.json").read_text())
    command.kill()
    left = [record.process for record in cluster.processes if record.process]
    assert len(left) == len(cluster.processes)
    assert await processes.wait_ended(left, PATIENCE)
    async with asyncio.timeout(PATIENCE):
        await command.communicate()  # until nobody holds its stderr any more
