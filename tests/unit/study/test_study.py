"""A study from the file to the report, in this process."""

import csv
import json
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pinnace.runtime.configuration import ConfigurationError
from pinnace.study.execution import execute_runs, plan_runs, provenance
from pinnace.study.plan import Study, read_study
from pinnace.study.report import equal_profiles, estimate, read_results, statistics, write_report

ROOT = Path(__file__).parents[3]
STORED = Path(__file__).with_name("small.json")
"""The figures of examples/studies/small.yaml with one seed. `python -m tests.unit.study.test_study` writes them again."""
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: spread
- schedulerName: same
"""


class Serial(Executor):
    """Executes in this process."""

    def __init__(self) -> None:
        self.number = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.number += 1
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def execute(study: Study, out: Path, *, report: bool = False) -> tuple[int, list[str]]:
    traces = {plan.name: plan.load() for plan in study.traces}
    executor = Serial()
    errors = execute_runs(plan_runs(study, traces), out, executor, lambda run, error: None)
    if report:
        write_report(study, out, provenance(study, traces))
    return executor.number, errors


def small_study(out: Path) -> dict[str, dict[str, float]]:
    """Return the figures by trace/profile."""
    study = replace(read_study(ROOT / "examples" / "studies" / "small.yaml"), seeds=(1,))
    assert execute(study, out) == (6, [])
    return {
        "/".join(key): {name: round(item.mean, 3) for name, item in figures.items()}
        for key, figures in statistics(read_results(study, out)).items()
    }


def write_study(folder: Path, profiles: str = PROFILES, **changes: Any) -> Path:
    (folder / "profiles.yaml").write_text(profiles)
    generated = {"name": "day", "format": "generated", "generate": {"nodes": 3, "hours": 1}}
    file = folder / "study.yaml"
    file.write_text(json.dumps({"name": "tiny", "profiles": "profiles.yaml", "traces": [generated]} | changes))
    return file


def test_small_study_has_the_stored_results(tmp_path: Path) -> None:
    """All policies, preemption, inflation and a metric of one's own: a change of any decision changes the figures."""
    assert small_study(tmp_path) == json.loads(STORED.read_text())


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    file = write_study(tmp_path, seeds=[1])
    assert execute(read_study(file), tmp_path / "out")[0] == 2
    assert execute(read_study(write_study(tmp_path, seeds=[1, 2])), tmp_path / "out")[0] == 2
    changed = read_study(write_study(tmp_path, seeds="1..2", interval=60))
    assert execute(changed, tmp_path / "out")[0] == 4


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    for out in ("one", "other"):
        execute(study, tmp_path / out, report=True)
    assert "<table>" in (tmp_path / "one" / "report.html").read_text()
    for name in ("results.csv", "report.html", "runs/day/spread/0/decisions.csv.gz", "runs/day/spread/0/result.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_profiles_that_make_no_difference_are_reported(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    execute(study, tmp_path / "out")
    assert equal_profiles(read_results(study, tmp_path / "out")) == [("day", "spread", "same")]


def test_failing_plugin_leaves_the_other_profiles(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(
        "from pinnace.scheduler.framework import PerNodeScore\n"
        "class Eager(PerNodeScore):\n"
        "    name = 'Eager'\n"
        "    def score_node(self, pod, node): return 101\n"
    )
    bad = "- schedulerName: eager\n  plugins: {multiPoint: {enabled: [{name: 'eager.py:Eager'}]}}\n"
    study = read_study(write_study(tmp_path, PROFILES + bad))
    _, errors = execute(study, tmp_path / "out", report=True)
    assert len(errors) == 1 and errors[0].startswith('day/eager/0: plugin "Eager" failed in Score')
    with (tmp_path / "out" / "results.csv").open() as file:
        assert {row["profile"] for row in csv.DictReader(file)} == {"spread", "same"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed: unknown field"),
        ({"seeds": "9..1"}, "seeds: expected"),
        ({"only": ["none"]}, "has no profile none; its profiles are spread, same"),
        ({"traces": []}, "traces: expected at least one"),
        ({"traces": [{"format": "csv"}]}, r"traces\[0\].nodes: expected text"),
        ({"traces": [{"format": "generated", "generate": {"nodes": -1}}]}, r"traces\[0\].generate.nodes: invalid value -1"),
        ({"metrics": ["missing.py:x"]}, "metrics: expected FILE.py:FUNCTION"),
    ],
)
def test_invalid_study_names_the_field(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_study(write_study(tmp_path, **changes))


def test_confidence_interval_of_ten_seeds() -> None:
    item = estimate([float(value) for value in range(10)])
    assert (item.mean, item.seeds) == (4.5, 10)
    assert item.deviation == pytest.approx(3.0277, abs=1e-4) and item.half == pytest.approx(2.262 * 3.0277 / 10**0.5, abs=1e-3)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        STORED.write_text(json.dumps(small_study(Path(folder)), indent=1) + "\n")
