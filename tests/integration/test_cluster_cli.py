"""`pinnace up`, `status` and `down`, as a person uses them: real processes, and nothing left in the end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pinnace.cluster import state
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Identity

pytestmark = [pytest.mark.stories, pytest.mark.timeout(180)]
PATIENCE = 20.0
SMALL = ("--nodes", "3", "--schedulers", "2", "--apiservers", "1", "--controllers", "0")


class Home:
    """A user with a home of their own: its state, its configuration."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.data_dir = self.state / "pinnace" / "default"
        self.config = folder / "config"
        self.environment = os.environ | {
            "HOME": str(folder), "XDG_STATE_HOME": str(self.state), "XDG_CONFIG_HOME": str(self.config), "NO_COLOR": "1",
        }  # fmt: skip
        for name in ("PINNACE_SERVER", "PINNACE_CONFIG", "PINNACE_DATA_DIR"):
            self.environment.pop(name, None)

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment | (environment or {}),
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
        return [sys.executable, "-m", "pinnace.cli.main", *arguments]

    def processes(self) -> list[Identity]:
        """Those that the state file names."""
        found = state.decode((self.data_dir / "cluster.json").read_text())
        return [record.process for record in found.processes if record.process]

    def status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("status", "-o", "json").stdout)
        return found

    def assert_nothing_left(self, processes: list[Identity]) -> None:
        assert not [process for process in processes if procfs.alive(process)]
        assert not self.state.exists() or not list(self.state.iterdir())
        assert not self.config.exists() or not list(self.config.iterdir())


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


def test_up_status_kill_down(home: Home) -> None:
    up = home.run("up", "--detach", *SMALL, "--controllers", "1")
    assert up.returncode == 0, up.stderr
    assert "pinnace down" in up.stdout

    status = home.run("status", "-o", "json")
    found = json.loads(status.stdout)
    assert status.returncode == 0
    assert [process["name"] for process in found] == [
        "etcd-0",
        "apiserver-0",
        "scheduler-0",
        "scheduler-1",
        "controllers-0",
        "kubelet-0",
    ]
    assert all(process["ready"] and process["pid"] for process in found) and len(leaders(found)) == 1
    processes = home.processes()

    second = home.run("up", "--detach")
    assert second.returncode == 4
    assert str(home.data_dir) in second.stderr and "pinnace down" in second.stderr

    nodes = home.run("get", "nodes", "-o", "name")
    assert nodes.stdout.split() == ["node/node-0", "node/node-1", "node/node-2"], nodes

    (first,) = leaders(found)
    os.kill(next(process["pid"] for process in found if process["name"] == first), signal.SIGKILL)
    until(lambda: leaders(home.status()) not in ([], [first]), f"nobody leads after {first} was killed")
    status = home.run("status")
    assert status.returncode == 1 and "not running" in status.stdout

    down = home.run("down")
    assert down.returncode == 0, down.stderr
    home.assert_nothing_left(processes)
    assert home.run("down").returncode == 0
    assert home.run("status").returncode == 3


def test_restart_starts_what_has_ended(home: Home) -> None:
    assert home.run("up", "--detach", *SMALL).returncode == 0
    before = home.status()
    pids = {process["name"]: process["pid"] for process in before}

    running = home.run("restart", "scheduler-0")
    assert running.returncode == 4 and "scheduler-0 runs" in running.stderr and "hint: " in running.stderr
    unknown = home.run("restart", "schedular-0")
    assert unknown.returncode == 3 and 'did you mean "scheduler-0"?' in unknown.stderr
    assert "nothing to do" in home.run("restart").stdout

    for name in ("apiserver-0", "scheduler-1"):
        os.kill(pids[name], signal.SIGKILL)
    get = home.run("get", "nodes")
    assert get.returncode == 6 and "`pinnace restart`" in get.stderr
    again = home.run("up", "--detach")
    assert again.returncode == 4 and "a cluster of 3 processes" in again.stderr and "`pinnace restart" in again.stderr
    one = home.run("restart", "apiserver-0")
    assert one.returncode == 0 and one.stdout.startswith("apiserver-0 started again"), one
    assert len(one.stdout.splitlines()) == 1

    for process in home.status():
        if process["pid"]:
            os.kill(process["pid"], signal.SIGKILL)
    everything = home.run("restart")
    assert everything.returncode == 0 and len(everything.stdout.splitlines()) == 5, everything
    until(lambda: len(leaders(home.status())) == 1, "nobody leads")
    after = home.status()
    assert all(process["ready"] for process in after)
    assert [process["address"] for process in after] == [process["address"] for process in before]
    assert home.run("get", "nodes", "-o", "name").stdout.split() == ["node/node-0", "node/node-1", "node/node-2"]


def test_what_a_killed_up_leaves_is_found_by_down(home: Home) -> None:
    with home.running(*SMALL) as (up, _):
        processes = home.processes()
        up.kill()
    assert len(processes) == 5 and all(map(procfs.alive, processes))
    assert home.run("down").returncode == 0
    home.assert_nothing_left(processes)


def test_up_in_the_foreground_tells_what_changes_and_takes_all_down_when_interrupted(home: Home) -> None:
    with home.running(*SMALL) as (up, lines):
        processes = home.processes()
        (kubelet,) = (process["pid"] for process in home.status() if process["name"] == "kubelet-0")
        os.kill(kubelet, signal.SIGKILL)
        assert any("kubelet-0 has ended" in line for line in lines)
        up.send_signal(signal.SIGINT)
        assert up.wait(20) == 130
    home.assert_nothing_left(processes)


def test_up_in_the_foreground_ends_when_another_command_takes_the_cluster_down(home: Home) -> None:
    with home.running(*SMALL) as (up, lines):
        assert home.run("down").returncode == 0
        assert any("brought down by another command" in line for line in lines)
        assert up.wait(20) == 0


def test_down_ends_a_cluster_whose_folder_somebody_has_removed(home: Home) -> None:
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


def test_up_in_the_foreground_ends_a_cluster_whose_folder_somebody_has_removed(home: Home) -> None:
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


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(home: Home, tmp_path: Path) -> None:
    up = home.run("up", "--detach", environment=fake_etcd(tmp_path, "echo 'the disk is on fire' >&2; exit 7"))
    assert up.returncode == 1
    assert "etcd-0 exited with 7" in up.stderr and "the disk is on fire" in up.stderr
    home.assert_nothing_left([])


def test_a_start_that_takes_too_long_says_what_it_waited_for(home: Home, tmp_path: Path) -> None:
    up = home.run("up", "--detach", "--timeout", "1s", environment=fake_etcd(tmp_path, "exec sleep 60"))
    assert up.returncode == 6
    assert "etcd-0 (not healthy)" in up.stderr
    home.assert_nothing_left([])


def test_processes_that_are_long_dead_do_not_stand_in_the_way(home: Home, tmp_path: Path) -> None:
    """A state whose processes have all ended is replaced, not refused."""
    broken = fake_etcd(tmp_path, "exec sleep 60")
    with subprocess.Popen(home.command("up"), env=home.environment | broken, stderr=subprocess.DEVNULL) as up:
        until(lambda: (home.data_dir / "cluster.json").exists() and bool(home.processes()), "nothing was started")
        (etcd,) = home.processes()
        up.kill()
    assert procfs.send_signal(etcd, signal.SIGKILL)
    again = home.run("up", "--detach", environment=fake_etcd(tmp_path, "exit 7"))
    assert "etcd-0 exited with 7" in again.stderr, "it was started anew"
    assert f"removed what a cluster whose processes had all ended left in {home.data_dir}\n" in again.stderr
    home.assert_nothing_left([etcd])


@pytest.mark.parametrize(
    "arguments",
    [("--nodes", "0"), ("--schedulers", "-1"), ("--etcd-members", "2"), ("--kubelets", "11"), ("--data-dir", "/proc/x")],
)
def test_what_cannot_be_is_refused_in_one_line_with_a_hint(home: Home, arguments: tuple[str, str]) -> None:
    up = home.run("up", *arguments)
    assert up.returncode == 2
    message, hint = up.stderr.splitlines()
    assert message.startswith("error: ") and hint.startswith("hint: ")
