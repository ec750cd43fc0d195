"""Resuming a cluster whose processes have ended: replaced ports, changed options and stopping processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pinnace.cli.main import run_command_line
from pinnace.cli.outcomes import ExitCode
from pinnace.cli.verbs.up import check_options
from pinnace.client.config import load_config
from pinnace.cluster import certificates, inputs, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, OtherOptions, StartFailed
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import (
    ClusterSpec,
    ClusterState,
    ProcessPlan,
    fleet_node_names,
    initial_state,
    listening_addresses,
    pki_folder,
    plan_processes,
)
from pinnace.cluster.startup import SILENT_PROGRESS
from pinnace.cluster.view import is_stopping
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity

pytestmark = pytest.mark.processes

DEAD = ProcessIdentity(1, 1, "an earlier boot")
BINARY = EtcdBinary(Path("/bin/false"), (3, 5, 21), False)


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "client"))
    monkeypatch.setattr(
        "pinnace.cli.local.clusters.refresh_context", lambda settings, config: None
    )  # these clusters have no API servers


def dead(spec: ClusterSpec) -> Cluster:
    """A cluster whose processes have all ended."""
    ports = PortAllocator()
    folder = ClusterFolder(spec.data_dir)
    state = initial_state(spec, plan_processes(spec, BINARY, ports.next), folder.create(), 0.0)
    for record in state.processes:
        state = state.with_process(record.name, DEAD)
    folder.claim_folder(state)
    return Cluster.load(spec.data_dir)


@pytest.fixture
def taken() -> Iterator[Callable[[str], None]]:
    """Makes another program listen at an address."""
    sockets = []

    def take(address: str) -> None:
        sockets.append(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))

    yield take
    for item in sockets:
        item.close()


def test_port_in_use_is_replaced_in_all_plans_and_configurations(tmp_path: Path, taken: Callable[[str], None]) -> None:
    """Regression: the only remedy was to remove the cluster."""
    cluster = dead(ClusterSpec(nodes=2, data_dir=tmp_path / "data"))
    pki = pki_folder(cluster.spec.data_dir)
    certificates.create_certificates(pki, cluster.endpoints, fleet_node_names(cluster.spec), local=True)
    before = {record.name: record.plan for record in cluster.state.processes}
    old = [before["etcd-0"].address, before["apiserver-0"].address, listening_addresses(before["kubelet-0"])[-1]]
    peer = listening_addresses(before["etcd-0"])[-1]
    assert len({*old, peer, before["etcd-0"].http, before["kubelet-0"].http}) == 6
    for address in (*old, peer):
        taken(address)
    cluster._replace_taken_ports(cluster.stopped_processes(), SILENT_PROGRESS)

    after = {record.name: record.plan for record in Cluster.load(cluster.spec.data_dir).state.processes}
    text = str(after)
    assert not any(address in text for address in (*old, peer))
    assert after["etcd-0"].address in after["apiserver-1"].argv[after["apiserver-1"].argv.index("--etcd") + 1]
    servers = cluster.endpoints
    assert servers[1] == before["apiserver-1"].address and servers[0] != old[1]
    assert all(",".join(servers) in after[name].argv for name in ("scheduler-0", "kubelet-0"))
    assert sorted(load_config(file=pki / "scheduler.conf").endpoints) == sorted(servers)


async def test_port_of_a_process_that_was_killed_just_now_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its threads held the port for a moment, and the gateway got another address than its kubeconfig names."""
    cluster = dead(ClusterSpec(nodes=1, data_dir=tmp_path))
    looks = iter([False, False])
    monkeypatch.setattr("pinnace.cluster.cluster.is_port_free", lambda address, shared=False: next(looks, True))
    await cluster._wait_for_ports(["apiserver-0"])
    assert next(looks, None) is None
    before = cluster.endpoints
    cluster._replace_taken_ports(["apiserver-0"], SILENT_PROGRESS)
    assert cluster.endpoints == before


def test_port_known_to_a_running_process_is_not_replaced(tmp_path: Path, taken: Callable[[str], None]) -> None:
    cluster = dead(ClusterSpec(nodes=1, data_dir=tmp_path))
    myself = procfs.identify_process(os.getpid())
    ClusterFolder(tmp_path).write(cluster.state.with_process("scheduler-0", myself))
    cluster = Cluster.load(tmp_path)
    taken(cluster.endpoints[0])
    with pytest.raises(StartFailed, match="is in use by another program") as refused:
        cluster._replace_taken_ports(["apiserver-0"], SILENT_PROGRESS)
    assert "`pinnace stop`" in refused.value.hint


def test_peer_ports_of_etcd_members_are_not_replaced(tmp_path: Path, taken: Callable[[str], None]) -> None:
    cluster = dead(ClusterSpec(nodes=1, etcd_members=3, data_dir=tmp_path))
    taken(listening_addresses(cluster.state.find_process("etcd-1").plan)[-1])
    with pytest.raises(StartFailed) as refused:
        cluster._replace_taken_ports(cluster.stopped_processes(), SILENT_PROGRESS)
    assert "end that program" in refused.value.hint


def test_etcd_without_its_data_is_not_started(tmp_path: Path) -> None:
    """Otherwise an empty cluster would replace one that had objects."""
    cluster = dead(ClusterSpec(nodes=1, data_dir=tmp_path))
    with pytest.raises(StartFailed, match="etcd's data is gone") as refused:
        cluster.start_without_waiting(["etcd-0"])
    assert "--fresh" in refused.value.hint


def test_copied_folder_is_rejected(tmp_path: Path) -> None:
    """Regression: `down` in a copy would have ended the processes of the original cluster."""
    cluster = dead(ClusterSpec(nodes=1, data_dir=tmp_path / "data"))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "cluster.json").write_bytes((tmp_path / "data" / "cluster.json").read_bytes())
    with pytest.raises(FolderError, match="moved or copied") as refused:
        Cluster.load(tmp_path / "copy")
    assert str(cluster.spec.data_dir) in refused.value.hint


def refused(cluster: Cluster, given: dict[str, Any], environ: dict[str, str], cwd: Path) -> str:
    with pytest.raises(OtherOptions) as caught:
        check_options(cluster, given, environ, cwd)
    assert "--fresh" in caught.value.hint
    return caught.value.message.partition("was started with ")[2]


def test_changed_options_are_rejected_by_name(tmp_path: Path) -> None:
    """Regression: `pinnace up --nodes 6` removed an existing cluster of 10 nodes."""
    (tmp_path / "policy.yaml").write_text("a: 1")
    spec = ClusterSpec(nodes=4, controllers=2, data_dir=tmp_path / "data", scheduler_config=str(tmp_path / "policy.yaml"))
    cluster = dead(spec)
    cluster._state = replace(cluster.state, digests=inputs.file_digests(spec, tmp_path))

    check_options(cluster, {}, {}, tmp_path)
    check_options(cluster, {"nodes": 4, "scheduler_config": "policy.yaml"}, {}, tmp_path)
    check_options(cluster, {}, {"PINNACE_SCHEDULER_CONFIG": "policy.yaml"}, tmp_path)
    assert refused(cluster, {"nodes": 6}, {}, tmp_path) == "--nodes 4, and now --nodes 6 is given"
    assert refused(cluster, {"nodes": 6, "kubelets": 2}, {}, tmp_path) == (
        "--nodes 4 and --kubelets 1, and now --nodes 6 and --kubelets 2 are given"
    )
    assert refused(cluster, {"cpu": "8"}, {}, tmp_path) == "no --cpu, and now --cpu 8 is given"
    path = f"--scheduler-config {tmp_path}/policy.yaml"
    assert refused(cluster, {"stages": "chaos"}, {}, tmp_path) == "no --stages, and now --stages chaos is given"
    assert refused(cluster, {}, {"PINNACE_SCHEDULER_SEED": "7"}, tmp_path) == (
        "no PINNACE_SCHEDULER_SEED, and now PINNACE_SCHEDULER_SEED=7 is given"
    )
    (tmp_path / "policy.yaml").write_text("a: 2")
    said = refused(cluster, {"scheduler_config": "policy.yaml"}, {}, tmp_path)
    assert said == f"{path}, and now {path} with other contents is given"


def test_changed_configuration_file_is_rejected_with_the_way_to_change_it(tmp_path: Path) -> None:
    policy, folder = tmp_path / "policy.yaml", tmp_path / "data"
    policy.write_text("a: 1")
    spec = ClusterSpec(nodes=1, schedulers=2, data_dir=folder, scheduler_config=str(policy), stages="fast")
    cluster = dead(spec)
    cluster._state = replace(cluster.state, digests=inputs.file_digests(spec, tmp_path))
    (folder / "config" / "scheduler.yaml").write_text("a: 1")
    policy.write_text("a: 2")
    with pytest.raises(OtherOptions) as refused:
        check_options(cluster, {"scheduler_config": "policy.yaml", "stages": "chaos"}, {}, tmp_path)
    remedy, _, others = refused.value.hint.partition("; ")
    assert remedy == (
        f"to change it in that cluster, edit its copy {folder}/config/scheduler.yaml, then "
        f"`pinnace restart --data-dir {folder} scheduler-0 scheduler-1`"
    )
    assert others.startswith(f"`pinnace up --data-dir {folder}` without them"), "a set of stages has no copy"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("shutdown: the process is stopping", True),
        ("cache: not loaded; shutdown: the process is stopping", True),
        ("no answer: connection refused", True),
        ("no answer: connection reset by peer", True),
        ("no answer: invalid HTTP response", True),
        ("event loop: no answer", True),
        ("no answer: timed out", False),
        ("cache: not loaded", False),
        ("not healthy", False),
        ("", False),
    ],
)
def test_stopping_process_is_recognized_by_its_problem(problem: str, expected: bool) -> None:
    assert is_stopping(problem) is expected


SERVES_AND_STOPS = """
import asyncio, sys
from pinnace.runtime import process
from pinnace.runtime.http import StatusServer

async def main(stop):
    status = StatusServer("127.0.0.1", int(sys.argv[1]), {}, asyncio.get_running_loop())
    status.start()
    await stop.wait()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)  # the process ends after its stdin is closed

sys.exit(process.run_component(main))
"""


async def test_settle_waits_for_a_stopping_process(tmp_path: Path) -> None:
    """Regression: `pinnace restart` right after a kill found that all processes ran, and then they ended."""
    address = f"127.0.0.1:{(ports := PortAllocator()).next()}"
    argv = (sys.executable, "-c", SERVES_AND_STOPS, address.rpartition(":")[2], str(tmp_path))
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:  # noqa: ASYNC220 (the call does not block)
        state = initial_state(
            ClusterSpec(data_dir=tmp_path), [ProcessPlan("scheduler", "scheduler-0", address, address, argv)], [], 0.0
        )
        ClusterFolder(tmp_path).write(state.with_process("scheduler-0", procfs.identify_process(child.pid)))
        cluster = Cluster.load(tmp_path)
        (record,) = cluster.state.processes
        while await view.process_problem(record):
            assert child.poll() is None
        child.terminate()
        while not (why := await view.process_problem(record)):
            assert child.poll() is None
        assert why == "shutdown: the process is stopping" and cluster.stopped_processes() == []

        class Ends:
            """Lets the process end once the caller waits for it."""

            def waiting(self, what: str) -> None:
                if child.stdin and not child.stdin.closed:
                    child.stdin.close()

            def done(self, what: str) -> None: ...
            def warn(self, what: str) -> None: ...

        await cluster.wait_until_stopped(Ends())
        assert cluster.stopped_processes() == ["scheduler-0"]
    del ports


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process scheduler-0 of a cluster in tmp_path, which also has a dead process, scheduler-1."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        result = procfs.identify_process(child.pid)
        plans = [ProcessPlan("scheduler", f"scheduler-{i}", "127.0.0.1:1", "127.0.0.1:1", ("sh", str(i))) for i in range(2)]
        state: ClusterState = initial_state(ClusterSpec(data_dir=tmp_path), plans, [], 0.0)
        ClusterFolder(tmp_path).write(state.with_process("scheduler-0", result).with_process("scheduler-1", DEAD))
        yield child
        child.kill()


@pytest.mark.parametrize("number", ["TERM", "sigterm", "15"])
def test_kill_sends_a_signal_and_names_the_process(
    tmp_path: Path, process: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str], number: str
) -> None:
    assert run_command_line(["kill", "scheduler-0", "--signal", number, "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"kill -TERM {process.pid}: scheduler-0\n"
    assert process.wait(10) == -signal.SIGTERM


def test_suspended_process_is_reported_as_suspended(
    tmp_path: Path,
    process: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["kill", "scheduler-0", "-s", "STOP", "--data-dir", str(tmp_path)]) == 0
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    capsys.readouterr()
    monkeypatch.setattr("pinnace.cluster.cluster.SETTLE_TIMEOUT", 0.0)
    (record, _) = Cluster.load(tmp_path).state.processes
    assert asyncio.run(view.process_problem(record)) == "suspended by a signal"
    assert run_command_line(["start", "scheduler-0", "--data-dir", str(tmp_path)]) == 0
    assert "`pinnace kill scheduler-0 --signal CONT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["scheduler-1"], ExitCode.CONFLICT, "scheduler-1 does not run\nhint: `pinnace start --data-dir"),
        (["scheduler-7"], ExitCode.NOT_FOUND, 'there is no process "scheduler-7"; did you mean'),
        (["scheduler-0", "--signal", "NOPE"], ExitCode.USAGE, 'there is no signal "NOPE"'),
        ([], ExitCode.USAGE, "NAME|leader"),
    ],
)
def test_unkillable_process_is_refused(
    tmp_path: Path,
    process: "subprocess.Popen[bytes]",
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: ExitCode,
    said: str,
) -> None:
    assert run_command_line(["kill", *arguments, "--data-dir", str(tmp_path)]) == code
    assert said in capsys.readouterr().err
    assert process.poll() is None
