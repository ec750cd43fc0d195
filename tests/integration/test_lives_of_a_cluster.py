"""A cluster whose processes are killed, stopped and started in random orders: nothing that it had is ever gone.

    PINNACE_SEED=7 PINNACE_ORDERS=50 PINNACE_OBJECTS=1000 pytest -m stories tests/integration/test_lives_of_a_cluster.py

Story: `pinnace up` in the folder of a cluster whose processes had all ended removed every object.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinnace.cluster import spec as states
from pinnace.cluster.processes import is_port_free
from pinnace.cluster.spec import listening_addresses
from pinnace.runtime import procfs

SEED = int(os.environ.get("PINNACE_SEED", "1"))
ORDERS = int(os.environ.get("PINNACE_ORDERS", "3"))
OBJECTS = int(os.environ.get("PINNACE_OBJECTS", "100"))
TIMEOUT = 60.0
pytestmark = [pytest.mark.stories, pytest.mark.timeout(120 + 60 * ORDERS)]

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: pod-{}}}
spec: {{containers: [{{name: main, image: nginx, resources: {{requests: {{cpu: 1m}}}}}}]}}
"""


class Life:
    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self._environment = os.environ | {"KUBECONFIG": str(folder / "config"), "NO_COLOR": "1"}
        for name in ("PINNACE_SERVER", "PINNACE_DATA_DIR"):
            self._environment.pop(name, None)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pinnace.cli.entry", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)

    def well(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done)
        return done.stdout

    def state(self) -> states.ClusterState:
        return states.decode_state((self.data_dir / "cluster.json").read_text())

    def pods(self) -> dict[str, Any]:
        """By UID, those that are Running."""
        done = self.run("get", "pods", "-o", "json")
        result = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in result if pod["status"]["phase"] == "Running"}

    def until_running(self, expected: dict[str, Any]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while (result := self.pods()) != expected:
            assert time.monotonic() < deadline, f"{len(result)} of {len(expected)} pods are there and Running"
            time.sleep(0.2)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path)
    life.well("up", "--detach", "--nodes", "12", "--schedulers", "2", "--controllers", "1", "--data-dir", str(life.data_dir))
    yield life
    life.well("down", "--data-dir", str(life.data_dir))
    assert not life.data_dir.exists()


def kill_all(life: Life, rng: random.Random) -> None:
    """As a reboot does, but one after the other, in any order."""
    records = list(life.state().processes)
    for record in rng.sample(records, len(records)):
        if record.process:
            procfs.send_signal(record.process, signal.SIGKILL)


def kill_some(life: Life, rng: random.Random) -> None:
    names = [record.name for record in life.state().processes]
    how = rng.choice(["KILL", "TERM", "INT"])
    life.run("kill", *rng.sample(names, rng.randint(1, len(names))), "--signal", how)  # some may be dead already


def ask_some_to_end(life: Life, rng: random.Random) -> None:
    """And do not wait for it."""
    records = list(life.state().processes)
    for record in rng.sample(records, rng.randint(1, len(records))):
        if record.process:
            procfs.send_signal(record.process, signal.SIGTERM)


def stop(life: Life, rng: random.Random) -> None:
    life.well("stop")


def kill_a_start(life: Life, rng: random.Random) -> None:
    """A reboot, and the start after it is killed."""
    kill_all(life, rng)
    command = [sys.executable, "-m", "pinnace.cli.entry", "up", "--detach", "--data-dir", str(life.data_dir)]
    with subprocess.Popen(command, env=life._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        time.sleep(rng.uniform(0, 3))
        up.kill()


DEEDS: list[Callable[[Life, random.Random], None]] = [kill_all, kill_some, ask_some_to_end, stop, kill_a_start]


def test_cluster_state_survives_every_order_of_kills_and_starts(life: Life, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    (tmp_path / "pods.yaml").write_text("---".join(POD.format(number) for number in range(OBJECTS)))
    life.well("apply", "-f", str(tmp_path / "pods.yaml"))
    deadline = time.monotonic() + TIMEOUT
    while len(expected := life.pods()) < OBJECTS:
        assert time.monotonic() < deadline, len(expected)
        time.sleep(0.2)

    for order in range(ORDERS):
        did = []
        for _ in range(rng.randint(1, 3)):
            deed = rng.choice(DEEDS)
            did.append(deed.__name__)
            deed(life, rng)
        taken = []
        if rng.random() < 0.3 and not any(
            record.process and procfs.is_running(record.process) for record in life.state().processes
        ):
            record = rng.choice(life.state().processes)  # another program has a port of it
            address = rng.choice(listening_addresses(record.plan))
            taken.append(holder := subprocess.Popen([sys.executable, "-m", "http.server", address.rpartition(":")[2]]))
            did.append(f"{address} of {record.name} is taken")
            while is_port_free(address):
                assert holder.poll() is None
        start = rng.choice([("start", "--data-dir", str(life.data_dir)), ("up", "--detach", "--data-dir", str(life.data_dir))])
        print(f"{order}: {', '.join(did)}; {start[0]}", flush=True)
        try:
            life.well(*start)
            life.until_running(expected)
        except AssertionError as error:
            error.add_note(f"seed {SEED}, order {order}: {did}, {start}; {life.run('status').stdout}")
            raise
        finally:
            for item in taken:
                item.kill()
                item.wait()


def test_start_whose_output_cannot_be_written_stops_nothing(life: Life) -> None:
    """`pinnace up --detach | head -3` ended all processes of a cluster that ran."""
    life.well("kill", "kubelet-0", "--data-dir", str(life.data_dir))
    command = f"{sys.executable} -m pinnace.cli.entry up --detach --data-dir {life.data_dir} 2>&1 | head -3"
    subprocess.run(["bash", "-c", command], env=life._environment, timeout=120, check=True)
    started = life.well("status", "--data-dir", str(life.data_dir), "-o", "json")
    assert [load["name"] for load in json.loads(started) if load["ready"] is not True] == []


def test_fresh_start_with_an_unusable_plugin_keeps_the_cluster(life: Life, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("class Useless:\n    name = 'Useless'\n")
    refused = life.run("up", "--fresh", "--detach", "--data-dir", str(life.data_dir), "--scheduler-plugin", f"{plugin}:Useless")
    assert refused.returncode != 0 and "Useless implements no extension point" in refused.stderr
    assert life.run("get", "nodes").returncode == 0
