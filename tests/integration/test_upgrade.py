"""Clusters of earlier commits are upgraded to this version and rolled back, process by process, under load: nothing is lost.

    PINNACE_EARLIER="0c4dd692 0b32bd98" pytest -s -m chaos tests/integration/test_upgrade.py

The commits must be in the repository. Both versions use the libraries of this environment."""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pinnace.cluster import view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.processes import ChildProcess, spawn_process
from pinnace.cluster.spec import APISERVER, CONTROLLERS, GATEWAY, KUBELET, SCHEDULER, ProcessPlan, ProcessRecord
from pinnace.runtime import procfs
from tests.integration.witnesses import PATIENCE, Load, compare, loads, witnesses

COMMITS = os.environ.get("PINNACE_EARLIER", "").split()
ORDER = (APISERVER, CONTROLLERS, SCHEDULER, GATEWAY, KUBELET)
"""As in docs/upgrading.md."""
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400), pytest.mark.skipif(not COMMITS, reason="PINNACE_EARLIER is not set")]


def build_environment(folder: Path, commit: str) -> Path:
    """Return the Python of an environment with the packages of this commit, and the libraries of this environment."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    subprocess.run(["tar", "x"], cwd=tree, input=archive, check=True, timeout=60)
    venv.create(folder / "venv", with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    Path(packages, "earlier.pth").write_text(f"{tree}\n{sysconfig.get_path('purelib')}\n")
    return folder / "venv/bin/python"


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    """Run a command in this folder: Python prefers the packages of the working directory."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done


def in_order(cluster: Cluster) -> list[ProcessRecord]:
    return [record for component in ORDER for record in cluster.state.processes_of(component)]


async def until_gone(cluster: Cluster, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while cluster.pid(name):  # noqa: ASYNC110 (another process: there is no event to wait for)
            await asyncio.sleep(0.02)


def start_earlier(cluster: Cluster, plan: ProcessPlan) -> tuple[ChildProcess, ProcessRecord]:
    """Start the process as the earlier version did."""
    child = spawn_process(plan, cluster.folder.log(plan.name))
    return child, ProcessRecord(plan, procfs.identify_process(child.pid))


async def until_ready(cluster: Cluster, child: ChildProcess, record: ProcessRecord) -> None:
    async with asyncio.timeout(60):
        while problem := await view.process_problem(record):
            assert child.poll() is None, (record.name, problem, cluster.folder.log_tail(record.name))
            await asyncio.sleep(0.05)


async def until_called(load: Sequence[Load]) -> None:
    """Wait until each load has made calls."""
    before = [item.calls for item in load]
    async with asyncio.timeout(PATIENCE):
        while not all(  # noqa: ASYNC110 (the loads count)
            item.calls > had + 6 for item, had in zip(load, before, strict=True)
        ):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("commit", COMMITS)
async def test_upgrade_and_rollback_lose_nothing(tmp_path: Path, commit: str) -> None:
    python, data_dir = build_environment(tmp_path / "earlier", commit), tmp_path / "cluster"
    environment = os.environ | {"PINNACE_CONFIG": str(tmp_path / "config"), "KUBECONFIG": str(tmp_path / "kubeconfig")}
    options = ["--detach", "--nodes", "4", "--kubelets", "2", "--data-dir", str(data_dir)]
    if (tmp_path / "earlier/tree/gateway").exists():
        options += ["--gateways", "2"]
    command = [str(python), "-c", "from pinnace.cli.entry import main; main()", "up", *options]
    await asyncio.to_thread(run, command, environment, tmp_path)
    cluster, began = Cluster.load(data_dir), time.monotonic()
    earlier: dict[str, tuple[ChildProcess, ProcessRecord]] = {}
    try:
        async with witnesses(cluster, 4) as seen, loads(cluster, 3, pause=0.05) as load:
            plans = [record.plan for record in in_order(cluster)]
            for plan in plans:
                cluster.kill(plan.name, signal.SIGTERM)
                await until_gone(cluster, plan.name)
                await cluster.start(plan.name)
                await until_called(load)
            assert all(record.plan.argv[0] == sys.executable for record in in_order(cluster))
            for plan in reversed(plans):
                cluster.kill(plan.name, signal.SIGTERM)
                await until_gone(cluster, plan.name)
                earlier[plan.name] = start_earlier(cluster, plan)
                if plan.component == APISERVER:
                    await until_ready(cluster, *earlier[plan.name])
                await until_called(load)
            for child, record in earlier.values():  # candidates before `secret_fences` need earlier API servers
                await until_ready(cluster, child, record)
            for item in load:
                await item.stop()
            history = await compare(cluster, seen)
            print(f"{commit}: {len(plans)} processes, there and back in {time.monotonic() - began:.0f} s: "
                  f"{sum(item.calls for item in load)} calls, {len(history.pods)} events, tokens {history.tokens}")  # fmt: skip
            assert [error for item in load for error in item.errors] == []
    finally:
        for child, _ in earlier.values():
            child.kill()
            child.wait()
        await cluster.take_down_at_exit()
