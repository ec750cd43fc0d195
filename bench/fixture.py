"""How long the cluster of pytest's fixtures takes to start and to end, and what it uses.

    python -m bench.fixture [--starts 20] [--save bench/results.jsonl]

Each start is a pytest process of its own, with a test in a namespace. Three rows: one process; two workers of pytest-xdist,
with a cluster each; and, for comparison, etcd and the API server without other components and without pytest.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import APISERVER, ClusterSpec
from pinnace.testing import forkserver, server, sessions
from pinnace.verification.bench.report import describe_machine

RUNS = Path("runs.jsonl")
TIMEOUT = 120.0
CONFTEST = """
import json, os, time
import pytest
from bench.fixture import measure_memory, processes_of

def write(**values):
    with open(os.environ["BENCH_RUNS"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), **values}) + "\\n")

@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    began = time.monotonic()
    result = yield
    if fixturedef.argname == "pinnace_cluster":
        write(ready=time.monotonic() - began)
    return result

@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    cluster = item.funcargs["pinnace_cluster"]
    write(memory=measure_memory(cluster.data_dir.parent, processes_of(cluster)))
    began = time.monotonic()
    yield
    assert not cluster.data_dir.parent.exists()
    write(gone=time.monotonic() - began)
"""
TEST = """
import pytest

@pytest.mark.parametrize("worker", range({workers}))
def test_namespace(pinnace_cluster, namespace, worker):
    assert pinnace_cluster.request("GET", f"/api/v1/namespaces/{{namespace}}")["status"]["phase"] == "Active"
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The starts of one kind. Lists: seconds until the cluster is ready, seconds until it is gone, and its megabytes, of each
    cluster. `cpu`: seconds of CPU of all processes, of each run. `load`: the load average of the last minute at the end."""

    name: str
    ready: list[float]
    gone: list[float]
    memory: list[float]
    cpu: list[float]
    load: float


def processes_of(cluster: Any) -> list[int]:
    """The processes of a cluster (pinnace.testing.handle), with its server and the one that forks."""
    owner = json.loads((cluster.data_dir.parent / sessions.ANSWER).read_text())["pid"]
    return [owner, *list_children(owner)]


def list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure_memory(folder: Path, pids: Sequence[int]) -> dict[str, float]:
    """Megabytes of these processes, with shared pages counted once, and of the files in this folder on tmpfs."""
    shares = [
        int(line.split()[1])
        for pid in pids
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    ]
    files = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    return {"processes": sum(shares) * 1024 / 1e6, "files": files / 1e6}


def measure_pytest(starts: int, workers: int) -> Row:
    """Raises CalledProcessError when a run fails."""
    runs, cpu = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_start.py").write_text(TEST.format(workers=workers))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
        environment = os.environ | {"BENCH_RUNS": str(folder / RUNS), "PYTHONPATH": str(Path(__file__).parent.parent)}
        for _ in range(starts):
            before = read_children_cpu()
            subprocess.run(
                [*command, *(["-n", str(workers)] if workers > 1 else [])],
                cwd=folder, env=environment, stdout=subprocess.DEVNULL, timeout=TIMEOUT, check=True,
            )  # fmt: skip
            cpu.append(read_children_cpu() - before)
        runs = [json.loads(line) for line in (folder / RUNS).read_text().splitlines()]
    values = {key: [run[key] for run in runs if key in run] for key in ("ready", "gone", "memory")}
    title = "pytest" if workers == 1 else f"pytest -n {workers}"
    return Row(title, values["ready"], values["gone"], list(map(total_memory, values["memory"])), cpu, os.getloadavg()[0])


def total_memory(measured: dict[str, float]) -> float:
    return measured["processes"] + measured["files"]


def read_children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_api_server(starts: int) -> Row:
    """The start and the end of etcd and an API server, in the same way but without other components."""
    ready, gone, memory, cpu = [], [], [], []
    for _ in range(starts):
        folder, before = sessions.new_folder(None), read_children_cpu()
        began = time.monotonic()
        child = subprocess.Popen([sys.executable, "-P", __file__, "--only-api-server", str(folder)], stdin=subprocess.DEVNULL)
        sessions.wait_for_answer(folder, child, TIMEOUT)
        ready.append(time.monotonic() - began)
        memory.append(total_memory(measure_memory(folder, [child.pid, *list_children(child.pid)])))
        began = time.monotonic()
        sessions.stop_server(folder, child.pid)
        gone.append(time.monotonic() - began)
        cpu.append(read_children_cpu() - before)
    return Row("etcd and the API server alone", ready, gone, memory, cpu, os.getloadavg()[0])


def run_api_server(folder: Path) -> int:
    """Run etcd and an API server until SIGTERM. Return the exit code."""
    forkserver.FORKED = (f"pinnace.{APISERVER}.main",)
    forks = forkserver.ForkServer()
    spec = ClusterSpec(
        nodes=0, kubelets=0, schedulers=0, apiservers=1, controllers=0, gateways=0, data_dir=folder / server.CLUSTER
    )
    return asyncio.run(server.serve(Cluster(spec, launch=forks.launch), folder, os.getppid(), TIMEOUT))


@click.command()
@click.option("--starts", type=click.IntRange(1), default=20, show_default=True, help="Number of runs of each row.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Append the result to this file, as JSON.")
@click.option("--only-api-server", type=click.Path(path_type=Path), hidden=True)
def main(starts: int, save: Path | None, only_api_server: Path | None) -> None:
    """Measure the start and the end of the cluster of pytest's fixtures."""
    if only_api_server is not None:
        sys.exit(run_api_server(only_api_server))
    load = os.getloadavg()[0]
    rows = [measure_pytest(starts, 1), measure_pytest(starts, 2), measure_api_server(starts)]
    table = Table("median (maximum)", "ready, s", "gone, s", "memory, MB", "CPU of a run, s", "load average at the end")
    for row in rows:
        cells = [f"{median(values):.2f} ({max(values):.2f})" for values in (row.ready, row.gone)]
        table.add_row(
            row.name, *cells, f"{median(row.memory):.0f} ({max(row.memory):.0f})",
            f"{median(row.cpu):.2f} ({max(row.cpu):.2f})", f"{row.load:.1f}",
        )  # fmt: skip
    Console(width=120).print(table, f"{starts} runs of each row; load average at the start: {load:.1f}")
    if save is not None:
        result = {
            "row": "fixture", "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": asdict(describe_machine()),
            "load": load, "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        with save.open("a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
