"""`pinnace up`, `status` and `down`, as a person uses them: real processes, and nothing left in the end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pinnace.cluster import spec
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity
from tests.unit.client.test_kubeconfig_text import FOREIGN

pytestmark = [pytest.mark.stories, pytest.mark.timeout(180)]
PATIENCE = 20.0
SMALL = ("--nodes", "3", "--schedulers", "2", "--apiservers", "1", "--controllers", "0")


class Home:
    """A user with a home of their own: its state, its configuration."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.data_dir = self.state / "pinnace" / "default"
        self.kube = folder / ".kube"
        self.environment = os.environ | {
            "HOME": str(folder), "XDG_STATE_HOME": str(self.state), "NO_COLOR": "1",
        }  # fmt: skip
        for name in ("PINNACE_SERVER", "KUBECONFIG", "PINNACE_DATA_DIR"):
            self.environment.pop(name, None)

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment | (environment or {}), cwd=cwd,
            capture_output=True, text=True, timeout=40, check=False,
        )  # fmt: skip

    @contextmanager
    def running(self, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", Iterator[str]]]:
        """`pinnace up` in the foreground, once the cluster is up; with the further lines that it prints."""
        with subprocess.Popen(self.command("up", *arguments), env=self.environment, stdout=subprocess.PIPE, text=True) as up:
            try:
                assert up.stdout is not None
                lines = iter(up.stdout.readline, "")
                assert "The cluster is up" in next(lines)
                yield up, lines
            finally:
                up.kill()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pinnace.cli.entry", *arguments]

    def processes(self) -> list[ProcessIdentity]:
        """Those that the state file names."""
        result = spec.decode_state((self.data_dir / "cluster.json").read_text())
        return [record.process for record in result.processes if record.process]

    def status(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = json.loads(self.run("status", "-o", "json").stdout)
        return result

    def assert_nothing_left(self, processes: list[ProcessIdentity]) -> None:
        assert not [process for process in processes if procfs.is_running(process)]
        assert not self.state.exists() or not list(self.state.iterdir())
        assert not self.kube.exists() or [path.name for path in self.kube.iterdir()] in ([], ["cache"]), "kubectl has a cache"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.run("down")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def leaders(found: list[dict[str, Any]]) -> list[str]:
    """Of the schedulers."""
    return [process["name"] for process in found if process["leader"] and process["component"] == "scheduler"]


def test_kubeconfig_with_foreign_clusters_is_the_same_after_down(home: Home) -> None:
    """`up` that is killed in its first seconds leaves a complete file, too."""
    home.kube.mkdir()
    path = home.kube / "config"
    path.write_text(FOREIGN)
    for patience in (0.5, None):
        with subprocess.Popen(home.command("up", "--detach", *SMALL), env=home.environment, stderr=subprocess.DEVNULL) as up:
            with suppress(subprocess.TimeoutExpired):
                up.wait(patience)
            up.kill()
        lines = iter(path.read_text().splitlines())
        assert all(line in lines for line in FOREIGN.splitlines() if "current-context" not in line)
    assert 'current-context: "pinnace"' in path.read_text()
    assert home.run("leader").returncode == 0
    assert home.run("down").returncode == 0
    assert path.read_text() == FOREIGN and {item.name for item in home.kube.iterdir()} <= {"config", "cache"}


def test_up_status_kill_down(home: Home) -> None:
    up = home.run("up", "--detach", *SMALL, "--controllers", "1")
    assert up.returncode == 0, up.stderr
    assert "pinnace down" in up.stdout

    status = home.run("status", "-o", "json")
    result = json.loads(status.stdout)
    assert status.returncode == 0
    assert [process["name"] for process in result] == [
        "etcd-0",
        "apiserver-0",
        "scheduler-0",
        "scheduler-1",
        "controllers-0",
        "gateway-0",
        "kubelet-0",
    ]
    assert all(process["ready"] and process["pid"] for process in result) and len(leaders(result)) == 1
    processes = home.processes()

    second = home.run("up", "--detach")
    assert second.returncode == 0 and "all 7 processes ran already" in second.stdout
    assert home.processes() == processes
    other = home.run("up", "--detach", "--nodes", "6")
    assert other.returncode == 4 and "was started with --nodes 3, and now --nodes 6 is given" in other.stderr
    assert "--fresh" in other.stderr

    nodes = home.run("get", "nodes", "-o", "name")
    assert nodes.stdout.split() == ["node/node-0", "node/node-1", "node/node-2"], nodes

    (first,) = leaders(result)
    os.kill(next(process["pid"] for process in result if process["name"] == first), signal.SIGKILL)
    until(lambda: leaders(home.status()) not in ([], [first]), f"nobody leads after {first} was killed")
    status = home.run("status")
    assert status.returncode == 1 and "not running" in status.stdout

    down = home.run("down")
    assert down.returncode == 0, down.stderr
    assert f"deleting the cluster in {home.data_dir}: etcd's data (" in down.stderr
    home.assert_nothing_left(processes)
    assert home.run("down").returncode == 0
    assert home.run("status").returncode == 3


def test_restart_starts_what_has_ended(home: Home) -> None:
    assert home.run("up", "--detach", *SMALL).returncode == 0
    before = home.status()
    pids = {process["name"]: process["pid"] for process in before}

    running = home.run("start", "scheduler-0")
    assert running.returncode == 0 and f"scheduler-0 runs already (pid {pids['scheduler-0']})" in running.stdout
    again = home.run("restart", "scheduler-0")
    assert again.returncode == 0 and again.stdout.startswith("scheduler-0 started again"), again
    assert procfs.identify_process(pids["scheduler-0"]) is None
    unknown = home.run("restart", "schedular-0")
    assert unknown.returncode == 3 and 'did you mean "scheduler-0"?' in unknown.stderr
    assert "nothing to do" in home.run("start").stdout

    for name in ("apiserver-0", "scheduler-1"):
        os.kill(pids[name], signal.SIGKILL)
    leader = home.run("leader")
    assert leader.returncode == 6 and "`pinnace start`" in leader.stderr
    one = home.run("restart", "apiserver-0")
    assert one.returncode == 0 and one.stdout.startswith("apiserver-0 started again"), one
    assert len(one.stdout.splitlines()) == 1

    for process in home.status():
        if process["pid"]:
            os.kill(process["pid"], signal.SIGKILL)
    everything = home.run("restart")
    assert everything.returncode == 0 and len(everything.stdout.splitlines()) == 6, everything
    until(lambda: len(leaders(home.status())) == 1, "nobody leads")
    after = home.status()
    assert all(process["ready"] for process in after)
    assert [process["address"] for process in after] == [process["address"] for process in before]
    assert home.run("get", "nodes", "-o", "name").stdout.split() == ["node/node-0", "node/node-1", "node/node-2"]


def pods(count: int) -> str:
    """A manifest of so many small pods."""
    pod = """
apiVersion: v1
kind: Pod
metadata: {{name: pod-{}, labels: {{part: "{}"}}}}
spec: {{containers: [{{name: main, image: nginx, resources: {{requests: {{cpu: 1m}}}}}}]}}
"""
    return "---".join(pod.format(number, number % 2) for number in range(count))


def running_pods(home: Home) -> int:
    """How many are Running on nodes that are Ready."""
    result = home.run("get", "pods", "-o", "json")
    items = json.loads(result.stdout)["items"] if result.returncode == 0 else []
    return sum(pod["status"]["phase"] == "Running" for pod in items)


def test_up_goes_on_with_a_cluster_whose_processes_were_all_killed(home: Home, tmp_path: Path) -> None:
    """As by a reboot: `pinnace up --nodes 6 --detach` removed every object without a question."""
    assert home.run("up", "--detach", *SMALL, "--controllers", "1").returncode == 0
    (tmp_path / "pods.yaml").write_text(pods(100))
    assert home.run("apply", "-f", str(tmp_path / "pods.yaml")).returncode == 0
    until(lambda: running_pods(home) == 100, "not all Running")
    for process in home.processes():
        procfs.send_signal(process, signal.SIGKILL)
    gone = home.run("get", "pods")
    assert gone.returncode == 6 and "no gateway answers" in gone.stderr and "`pinnace start`" in gone.stderr
    assert len(gone.stderr.splitlines()) == 1
    assert home.run("up", "--detach", "--nodes", "6").returncode == 4
    again = home.run("up", "--detach")
    assert again.returncode == 0 and "7 of 7 processes were started again" in again.stdout, again
    until(lambda: running_pods(home) == 100, "not all Running")

    stop = home.run("stop")
    assert stop.returncode == 0 and "is stopped (7 processes); its data is kept" in stop.stdout, stop
    assert not any(map(procfs.is_running, home.processes()))
    assert "it is stopped" in home.run("leader").stderr
    start = home.run("start")
    assert start.returncode == 0 and len(start.stdout.splitlines()) == 7, start
    assert running_pods(home) == 100

    fresh = home.run("up", "--detach", "--fresh", *SMALL)
    assert fresh.returncode == 0 and "deleting the cluster" in fresh.stderr, fresh
    assert running_pods(home) == 0


def test_cluster_keeps_the_configuration_that_it_was_started_with(home: Home, tmp_path: Path) -> None:
    """After a kill and a restart the default policy was back."""
    (tmp_path / "cwd" / "plugins").mkdir(parents=True)
    (tmp_path / "cwd" / "plugins" / "last.py").write_text(LAST)
    (tmp_path / "cwd" / "policy.yaml").write_text(POLICY)
    config = {"PINNACE_SCHEDULER_CONFIG": "policy.yaml", "PINNACE_SCHEDULER_SEED": "7"}
    up = home.run("up", "--detach", *SMALL, environment=config, cwd=tmp_path / "cwd")
    assert up.returncode == 0, up.stderr
    shutil.rmtree(tmp_path / "cwd")
    copy = str(home.data_dir / "config" / "scheduler.yaml")
    for process in home.processes():
        procfs.send_signal(process, signal.SIGKILL)
    assert home.run("start").returncode == 0
    for process in home.status():
        expected = {"--config": copy, "PINNACE_SCHEDULER_SEED": "7"} if process["component"] == "scheduler" else {}
        assert process["options"] == expected
    assert f"scheduler: --config {copy}" in home.run("status").stdout
    (tmp_path / "pods.yaml").write_text(pods(3))
    assert home.run("apply", "-f", str(tmp_path / "pods.yaml")).returncode == 0
    until(lambda: running_pods(home) == 3, "not all Running")
    nodes = home.run("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").stdout.split()
    assert nodes == ["node-2"] * 3, "the plugin decides"


def test_leader_is_killed_by_its_role(home: Home) -> None:
    assert home.run("up", "--detach", *SMALL).returncode == 0
    (first,) = leaders(home.status())
    kill = home.run("kill", "leader")
    assert kill.returncode == 0 and f': {first}, which leads the election "scheduler" with token ' in kill.stdout, kill
    until(lambda: leaders(home.status()) not in ([], [first]), f"nobody leads after {first} was killed")
    assert home.run("start").stdout.startswith(f"{first} started again")


def test_frozen_leader_is_resumed_by_its_role(home: Home) -> None:
    """The signal went to the present leader, and the frozen one stayed frozen."""
    assert home.run("up", "--detach", *SMALL).returncode == 0
    (first,) = leaders(home.status())
    refused = home.run("kill", "leader", "--signal", "CONT")
    assert refused.returncode != 0 and "no scheduler is frozen" in refused.stderr, refused
    assert home.run("kill", "leader", "--signal", "STOP").returncode == 0
    until(lambda: leaders(home.status()) not in ([], [first]), f"nobody leads after {first} was frozen")
    resumed = home.run("kill", "leader", "--signal", "CONT")
    assert resumed.returncode == 0 and resumed.stdout.endswith(f": {first}\n"), resumed
    until(lambda: all(process["ready"] for process in home.status()), f"{first} is not ready")


LAST = """
from pinnace.scheduler.framework import PerNodeScore

class Last(PerNodeScore):
    name = "Last"

    def score_node(self, pod, node):
        return 100.0 if node.name == "node-2" else 0.0
"""
POLICY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: "plugins/last.py:Last", weight: 1000}]}
"""


def test_down_finds_processes_of_a_killed_up(home: Home) -> None:
    with home.running(*SMALL) as (up, _):
        processes = home.processes()
        up.kill()
    assert len(processes) == 6 and all(map(procfs.is_running, processes))
    assert home.run("down").returncode == 0
    home.assert_nothing_left(processes)


def test_up_in_the_foreground_tells_what_changes_and_stops_the_cluster_when_interrupted(home: Home) -> None:
    with home.running(*SMALL) as (up, lines):
        processes = home.processes()
        (kubelet,) = (process["pid"] for process in home.status() if process["name"] == "kubelet-0")
        os.kill(kubelet, signal.SIGKILL)
        assert any("kubelet-0 has ended" in line for line in lines)
        up.send_signal(signal.SIGINT)
        assert up.wait(20) == 130
    assert not any(map(procfs.is_running, processes))
    assert home.run("start").returncode == 0
    assert len(home.run("get", "nodes", "-o", "name").stdout.split()) == 3


@pytest.mark.parametrize("verb", ["down", "stop"])
def test_up_in_the_foreground_ends_when_another_command_ends_the_cluster(home: Home, verb: str) -> None:
    with home.running(*SMALL) as (up, lines):
        assert home.run(verb).returncode == 0
        assert any("another command has stopped the cluster" in line for line in lines)
        assert up.wait(20) == 0


def test_down_stops_a_cluster_whose_folder_was_removed(home: Home) -> None:
    """It said that there was nothing to do, and forgot how to find the cluster; the next one came up beside it."""
    assert home.run("up", "--detach", *SMALL).returncode == 0
    processes = home.processes()
    shutil.rmtree(home.state.rename(home.state.with_name("removed")))
    again = home.run("up", "--detach", *SMALL)
    assert again.returncode == 4
    assert f"(pid {min(process.pid for process in processes)}" in again.stderr and "pinnace down" in again.stderr
    down = home.run("down")
    assert down.returncode == 0 and f"were killed: {len(processes)}" in down.stderr
    home.assert_nothing_left(processes)


def test_up_in_the_foreground_stops_a_cluster_whose_folder_was_removed(home: Home) -> None:
    with home.running(*SMALL) as (up, _):
        processes = home.processes()
        shutil.rmtree(home.state.rename(home.state.with_name("removed")))
        assert up.wait(20) == 1
    home.assert_nothing_left(processes)


def fake_etcd(folder: Path, body: str) -> dict[str, str]:
    """An etcd that says its version, and then does not work."""
    script = folder / "etcd"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "etcd Version: 3.5.9" && exit 0\n{body}\n')
    script.chmod(0o755)
    return {"ETCD_BIN": str(script)}


def test_start_that_fails_shows_the_log_and_leaves_it(home: Home, tmp_path: Path) -> None:
    up = home.run("up", "--detach", environment=fake_etcd(tmp_path, "echo 'the disk is on fire' >&2; exit 7"))
    assert up.returncode == 1
    assert "etcd-0 exited with 7" in up.stderr and "the disk is on fire" in up.stderr
    log = home.data_dir / "logs" / "etcd-0.log"
    assert f"({log})" in up.stderr and log.read_text() == "the disk is on fire\n"
    assert [path.name for path in home.data_dir.iterdir()] == ["logs"]
    assert "removed the logs of a start that failed" in home.run("down").stderr
    home.assert_nothing_left([])


def test_start_that_takes_too_long_says_what_it_waited_for(home: Home, tmp_path: Path) -> None:
    up = home.run("up", "--detach", "--timeout", "1s", environment=fake_etcd(tmp_path, "exec sleep 60"))
    assert up.returncode == 6
    assert "etcd-0 (no answer: connection refused)" in up.stderr
    home.run("down")
    home.assert_nothing_left([])


def test_up_resumes_a_killed_start(home: Home, tmp_path: Path) -> None:
    """It has a state, and no certificates are missing that it had not made yet."""
    broken = fake_etcd(tmp_path, "exec sleep 60")
    with subprocess.Popen(home.command("up", *SMALL), env=home.environment | broken, stderr=subprocess.DEVNULL) as up:
        until(lambda: (home.data_dir / "cluster.json").exists() and bool(home.processes()), "nothing was started")
        (etcd,) = home.processes()
        up.kill()
    assert procfs.send_signal(etcd, signal.SIGKILL)
    fake_etcd(tmp_path, "exit 7")
    again = home.run("up", "--detach")
    assert "going on with the cluster" in again.stderr and "etcd-0 exited with 7" in again.stderr
    assert home.run("down").returncode == 0
    home.assert_nothing_left([etcd])


@pytest.mark.parametrize(
    "arguments",
    [("--nodes", "0"), ("--schedulers", "-1"), ("--etcd-members", "2"), ("--kubelets", "11"), ("--data-dir", "/proc/x")],
)
def test_invalid_options_are_refused_in_one_line_with_a_hint(home: Home, arguments: tuple[str, str]) -> None:
    up = home.run("up", *arguments)
    assert up.returncode == 2
    message, hint = up.stderr.splitlines()
    assert message.startswith("error: ") and hint.startswith("hint: ")
