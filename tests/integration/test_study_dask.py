"""A study on the workers of a real dask.distributed cluster, of which one is killed."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import LocalCluster

from pinnace.study.dask_workers import WorkersError, dask_workers
from pinnace.study.execution import Run, execute_runs, local_processes, plan_runs
from pinnace.study.plan import read_study

POLICIES = Path(__file__).parents[2] / "examples/studies/policies.yaml"
STUDY = f"""
name: small
seeds: 1..6
profiles: {POLICIES}
traces:
- {{name: gpus, format: generated, generate: {{nodes: 6, hours: 6, load: 0.5, gpus: 0.5}}, inflate: 130}}
"""


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    study = read_study(file)
    return plan_runs(study, {plan.name: plan.load() for plan in study.traces})


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        yield cluster


def read_results(out: Path) -> dict[str, bytes]:
    """Return the files of all runs, without the seconds that they took."""
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "timing.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_killed_worker_does_not_change_the_results(tmp_path: Path, runs: list[Run], cluster: LocalCluster) -> None:
    finished: list[str] = []

    def kill_after_first(run: Run, error: str) -> None:
        finished.append(error)
        if len(finished) == 1:
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

    with dask_workers(cluster.scheduler_address) as executor:
        assert execute_runs(runs, tmp_path / "dask", executor, kill_after_first) == []
    with local_processes(2) as executor:
        assert execute_runs(runs, tmp_path / "local", executor, lambda run, error: None) == []
    assert len(finished) == len(runs) == 18
    assert read_results(tmp_path / "dask") == read_results(tmp_path / "local")


def test_worker_with_other_files_reports_an_error(tmp_path: Path, runs: list[Run], cluster: LocalCluster) -> None:
    changed, missing = replace(runs[0], key="0"), replace(runs[1], file=str(tmp_path / "missing.yaml"))
    with dask_workers(cluster.scheduler_address) as executor:
        errors = execute_runs([changed, missing], tmp_path / "out", executor, lambda run, error: None)
    assert len(errors) == 2
    assert any("differ from those of the study" in error for error in errors)
    assert any("missing.yaml" in error for error in errors)


def test_cluster_without_workers_is_an_error(cluster: LocalCluster) -> None:
    cluster.scale(0)
    cluster.sync(cluster._correct_state)
    with pytest.raises(WorkersError, match="has no workers"), dask_workers(cluster.scheduler_address):
        pass


def test_missing_scheduler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.study.dask_workers.CONNECT_TIMEOUT", 0.5)
    with pytest.raises(WorkersError, match=r"no dask scheduler at tcp://127\.0\.0\.1:9"), dask_workers("tcp://127.0.0.1:9"):
        pass
