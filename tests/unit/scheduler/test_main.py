"""The command line: mistakes are told before anything starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from pinnace.scheduler.config import parse_configuration
from pinnace.scheduler.main import main
from pinnace.scheduler.metrics import QueueCollector, register_collectors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plugin", "nonsense"], 'no plugin "nonsense"; valid names are'),
        (["--plugin", "no.such:Plugin"], "cannot import no.such"),
        (["--plugin", "pinnace.scheduler.plugins.nodes:NodeName"], "duplicate plugin name NodeName, also used by NodeName"),
        (["--http", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--config", "no/such/file"], "does not exist"),
    ],
)
def test_mistakes(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["--server", "127.0.0.1:1", *arguments])
    assert result.exit_code == 2 and message in result.output


def test_mistake_in_the_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 16\n")
    result = CliRunner().invoke(main, ["--server", "127.0.0.1:1", "--config", str(file)])
    assert result.exit_code == 2 and f"{file}: parallelism: unknown field" in result.output


def test_configuration_is_written_instead(tmp_path: Path) -> None:
    file, written = tmp_path / "scheduler.yaml", tmp_path / "written.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    file.write_text(head + "podMaxBackoffSeconds: 20\n")
    result = CliRunner().invoke(main, ["--config", str(file), "--write-config-to", str(written)])
    assert result.exit_code == 0, result.output
    assert parse_configuration(written.read_text()).max_backoff == 20
    again = tmp_path / "again.yaml"
    CliRunner().invoke(main, ["--config", str(written), "--write-config-to", str(again)])
    assert again.read_text() == written.read_text(), "all that is left out is filled in, once"


def test_pods_are_counted_when_they_are_asked_for() -> None:
    counts = {"active": 1}
    metric = QueueCollector("scheduler_pending_pods", "Pods that wait.", "queue", lambda: counts)
    counts["gated"] = 2
    [family] = metric.collect()
    assert {sample.labels["queue"]: sample.value for sample in family.samples} == {"active": 1, "gated": 2}


def test_metrics_count_waiting_and_held_pods() -> None:
    """By kube-scheduler's names."""

    class Waiting:
        def count_pending(self) -> dict[str, int]:
            return {"unschedulable": 2}

        def count_refusals(self) -> dict[str, int]:
            return {"NodePorts": 2}

        def count_cached(self) -> dict[str, int]:
            return {"nodes": 3}

    registry = CollectorRegistry()
    register_collectors(Waiting, registry)
    result = {sample.name: (sample.labels, sample.value) for family in registry.collect() for sample in family.samples}
    assert result == {
        "scheduler_pending_pods": ({"queue": "unschedulable"}, 2),
        "scheduler_unschedulable_pods": ({"plugin": "NodePorts"}, 2),
        "scheduler_cache_size": ({"type": "nodes"}, 3),
    }
