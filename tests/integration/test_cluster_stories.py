"""The demo and the benchmarks on real clusters: that they end well, say what they must, and leave nothing. Not how fast."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinnace.runtime import procfs

pytestmark = [pytest.mark.stories, pytest.mark.timeout(180)]
TIMEOUT = 150.0
"""Seconds that a command may take on a busy machine."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary folders, and with them all clusters, are made in `tmp_path`."""
    return os.environ | {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path), "NO_COLOR": "1"}


@pytest.fixture
def pinnace(environment: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pinnace.cli.entry", *arguments]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                output, errors = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # it takes its cluster down with it
                output, errors = process.communicate()
                pytest.fail(f"{arguments} took more than {TIMEOUT:g} s:\n{output}\n{errors}")
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    return run


def bench(pinnace: Callable[..., subprocess.CompletedProcess[str]], *arguments: str) -> dict[str, Any]:
    ended = pinnace("bench", *arguments, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert result["calibration"]["transactions_per_s"] > 0
    assert not any(result["violations"].values())
    return result


def left_in(folder: Path) -> list[str]:
    """Command lines of processes that know a path in the folder."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and procfs.identify_process(int(entry.name)):
            try:
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return [line for line in lines if str(folder) in line]


def test_demo(
    pinnace: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All acts on one cluster: what one leaves behind must not confuse the next."""
    html = tmp_path_factory.mktemp("demo") / "demo.html"
    ended = pinnace("demo", "all", "--html", str(html))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("kill -9 ") == 3 + 1 + 1, "three failovers, a kubelet, and the invitation"
    assert ended.stdout.count("is elected with fencing token") == 3
    assert ended.stdout.count("✓") == 5 + 4 and "✗" not in ended.stdout
    assert "\x1b" not in ended.stdout
    page = html.read_text()
    items = json.loads(page.split('id="recording">', 1)[1].split("</script>", 1)[0])["items"]
    tokens = {item[4] for item in items if item[0] == "t" and item[3] == "scheduler"}
    assert len(tokens) == 4, "the timeline has the terms of the first leader and of three others"
    assert any(item[0] == "n" and item[5] == "not-ready" for item in items), "and the nodes of the killed kubelet"
    assert str(html) in ended.stdout
    assert not list(tmp_path.iterdir()) and not left_in(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_demo_that_is_interrupted_leaves_nothing(environment: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "pinnace.cli.entry", "demo", "failover"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        try:
            assert any("apiserver-1 ready" in line for line in iter(demo.stderr.readline, ""))
            assert left_in(tmp_path)
            demo.send_signal(number)
            assert demo.wait(20) == 130
        finally:
            demo.kill()
    assert not list(tmp_path.iterdir()) and not left_in(tmp_path)


def test_bench_throughput(pinnace: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    result = bench(pinnace, "throughput", "--nodes", "20", "--pods", "300", "--save", str(tmp_path / "results.jsonl"))
    assert result["rate"] > 0 and set(result["stages"]) == {"created", "bound", "running"}
    assert {"etcd-0", "apiserver-0", "scheduler-2", "kubelet-0", "load generator"} <= set(result["cpu_s"]) & set(
        result["peak_rss_mb"]
    )
    (kept,) = (tmp_path / "results.jsonl").read_text().splitlines()
    assert json.loads(kept) == result


def test_bench_backlog(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "backlog", "--workload", "topology-spread", "--nodes", "20", "--pods", "300", "--bound-only")
    assert result["rate"] > 0 and result["stages"]["first bind"]["max_s"] > 0
    assert result["options"]["workload"] == "topology-spread" and result["violations"]["misplaced"] == 0
    assert "kubelet-0" not in result["cpu_s"]


def test_bench_failover_by_freezing(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "failover", "--nodes", "20", "--signal", "STOP", "--times", "1")
    assert 0 < result["p50_s"] == result["p99_s"] == result["max_s"]


def test_bench_watch(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "watch", "--watchers", "10", "--events", "50")
    assert result["runs"][0]["items"] == 500


def test_bench_node_loss(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "node-loss", "--nodes", "10", "--replicas", "40", "--deployments", "2")
    assert result["lost_nodes"] == 5 and 0 < result["lost_pods"] < 40


def test_bench_scale(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "scale", "--nodes", "20", "--pods", "100", "--replicas", "40", "--rest", "1")
    assert result["fewest_available"] >= 30


def test_bench_custom(pinnace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = bench(pinnace, "custom", "--definitions", "3", "--objects", "40")
    assert result["objects of the largest kind"] == 20 + 7 + 40  # half of them, a third of the others, and those of the gateway
