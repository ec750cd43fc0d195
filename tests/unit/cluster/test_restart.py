"""Restart of ended processes, and the hints that suggest it."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.cli.main import run_command_line as run_main
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import connect_to_any_server
from pinnace.client.config import ClientConfig
from pinnace.cluster import certificates, processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import AlreadyRunning, FolderError, NoCluster, StartFailed, StartTimeout
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import ClusterSpec, ClusterState, ProcessPlan, fleet_node_names, initial_state, pki_folder
from pinnace.pki import Authority, Subject
from pinnace.pki.authority import CertificatePair
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity
from pinnace.runtime.tls import TlsFiles

pytestmark = pytest.mark.processes

DEAD = ProcessIdentity(1, 1, "an earlier boot")
SERVES = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if "hangs" in sys.argv[2] else 200)
        self.end_headers()
        self.wfile.write(b'{"health": "true"}')

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
BROKEN = "import sys; sys.exit('member 8e9e has already been bootstrapped' if 'etcd' in sys.argv[2] else 'no')"
"""etcd reports this when its data is gone."""
PLANS = [ProcessPlan("scheduler", f"scheduler-{i}", "127.0.0.1:1", "127.0.0.1:1", ("sh",)) for i in range(2)]


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "client"))
    monkeypatch.setattr(
        "pinnace.cli.local.clusters.refresh_context", lambda settings, config: None
    )  # these clusters have no API servers
    monkeypatch.setattr("pinnace.cluster.cluster.SETTLE_TIMEOUT", 0.0)  # the substitutes for processes listen nowhere


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster of two processes: scheduler-0 is the test process, scheduler-1 is dead."""
    myself = procfs.identify_process(os.getpid())
    assert myself is not None
    state = initial_state(ClusterSpec(data_dir=tmp_path), PLANS, [], 0.0)
    ClusterFolder(tmp_path).write(state.with_process("scheduler-0", myself).with_process("scheduler-1", DEAD))
    return Cluster.load(tmp_path)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes a cluster of dead processes. Each argument names a process, and tells whether it can start."""
    clusters: list[Cluster] = []
    ports = PortAllocator()  # reserves its ports while it exists

    def make(**processes: bool) -> Cluster:
        plans = []
        for name, well in processes.items():
            component, _, number = name.partition("_")
            address = f"127.0.0.1:{ports.next()}"
            argv = (sys.executable, "-c", SERVES if well else BROKEN, address.rpartition(":")[2], name, str(tmp_path))
            plans.append(ProcessPlan(component, f"{component}-{number}", address, address, argv))
        made = ClusterFolder(tmp_path / "cluster").create()
        state = initial_state(ClusterSpec(data_dir=tmp_path / "cluster"), plans, made, 0.0)
        for plan in plans:
            state = state.with_process(plan.name, DEAD)
        ClusterFolder(tmp_path / "cluster").claim_folder(state)
        clusters.append(Cluster.load(tmp_path / "cluster"))
        return clusters[-1]

    yield make
    for item in clusters:
        asyncio.run(item.down())


@pytest.mark.parametrize("verb", ["restart", "start"])
def test_unknown_process_name_is_rejected(cluster: Cluster, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert run_main([verb, "--data-dir", str(cluster.spec.data_dir), "scheduler-1", "scheduler-7"]) == ExitCode.NOT_FOUND
    assert "there are scheduler-0, scheduler-1" in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "ended"), [("start", []), ("restart", ["scheduler-0"])])
def test_running_process_is_kept_by_start_and_replaced_by_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, ended: list[str]
) -> None:
    started: list[str] = []
    stopped: list[str] = []

    async def start(self: Cluster, names: Sequence[str], *_: object, **__: object) -> None:
        started.extend(names)

    async def stop(self: Cluster, *, names: Sequence[str]) -> list[str]:
        stopped.extend(names)
        return []

    monkeypatch.setattr(Cluster, "restart", start)
    monkeypatch.setattr(Cluster, "stop", stop)
    command = [verb, "--data-dir", str(cluster.spec.data_dir)]
    assert run_main([*command, "scheduler-0", "scheduler-1", "scheduler-1"]) == 0
    assert started == ["scheduler-1", *ended] and stopped == ended
    assert (f"scheduler-0 runs already (pid {os.getpid()})" in capsys.readouterr().out) is (not ended)


@pytest.fixture
def rolling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a restart does, in its order, on a running cluster whose schedulers and controllers have the leaders scheduler-0 and
    controllers-1."""
    myself, done = procfs.identify_process(os.getpid()), list[str]()
    names = ["apiserver-0", "apiserver-1", "scheduler-0", "scheduler-1", "scheduler-2", "controllers-0", "controllers-1"]
    plans = [ProcessPlan(name.partition("-")[0], name, "127.0.0.1:1", "127.0.0.1:1", ("sh",)) for name in names]
    state = initial_state(ClusterSpec(data_dir=tmp_path), plans, [], 0.0)
    for name in names:
        state = state.with_process(name, myself)
    ClusterFolder(tmp_path).write(state)

    async def restart(self: Cluster, names: Sequence[str], *_: object, **__: object) -> None:
        done.append(f"start {' '.join(names)}")
        if names == ["scheduler-2"]:
            raise StartFailed("scheduler-2 exited with 1", hint="see its log")

    async def stop(self: Cluster, *, names: Sequence[str]) -> list[str]:
        done.append(f"stop {' '.join(names)}")
        return []

    async def leaders(cluster: Cluster, names: Sequence[str]) -> list[str]:
        return ["scheduler-0", "controllers-1"]

    monkeypatch.setattr(Cluster, "restart", restart)
    monkeypatch.setattr(Cluster, "stop", stop)
    monkeypatch.setattr("pinnace.cli.verbs.processes._find_leaders", leaders)
    return done


def test_restart_of_several_processes_is_rolling_and_the_leader_is_last(rolling: list[str], tmp_path: Path) -> None:
    """Regression: all named schedulers were stopped at once, and nothing was scheduled until one of them led again."""
    names = ["controllers-1", "scheduler-0", "scheduler-1", "controllers-0", "apiserver-1", "apiserver-0"]
    assert run_main(["restart", "--data-dir", str(tmp_path), *names]) == 0
    order = ["apiserver-0", "apiserver-1", "scheduler-1", "scheduler-0", "controllers-0", "controllers-1"]
    assert rolling == [f"{what} {name}" for name in order for what in ("stop", "start")]


def test_process_that_does_not_start_again_ends_a_rolling_restart(
    rolling: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["scheduler-0", "scheduler-2", "controllers-0"]
    assert run_main(["restart", "--data-dir", str(tmp_path), *names]) == ExitCode.SERVER
    assert rolling == ["stop scheduler-2", "start scheduler-2"]
    assert "hint: see its log; not restarted, and running on: scheduler-0, controllers-0" in capsys.readouterr().err


def test_expired_certificates_are_renewed(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cluster.spec.data_dir
    pki = pki_folder(folder)
    command = ["restart", "--data-dir", str(folder)]
    of_cluster = fleet_node_names(cluster.spec)
    running = cluster.state.find_process("scheduler-0").process
    ClusterFolder(folder).write(cluster.state.with_process("scheduler-1", running))
    assert run_main(command) == 0 and "nothing to do" in capsys.readouterr().out
    assert not pki.exists(), "a missing authority is not replaced: etcd would not trust a new one"

    certificates.create_certificates(pki, ["127.0.0.1:1"], of_cluster)
    before = {path: path.read_bytes() for path in pki.rglob("*.crt")}
    authority = Authority(CertificatePair(before[pki / "ca.crt"], (pki / "ca.key").read_bytes()))
    ended = authority.issue(Subject("kubernetes-admin", ("system:masters",)), datetime.now(UTC) - timedelta(days=360))
    (pki / "admin.crt").write_bytes(ended.certificate)
    (pki / "admin.key").write_bytes(ended.key)
    assert run_main(command) == 0 and capsys.readouterr().out == "certificates renewed: admin\n"
    assert (pki / "admin.crt").read_bytes() != ended.certificate
    assert all(path.read_bytes() == data for path, data in before.items() if path.name != "admin.crt")
    assert run_main(command) == 0 and "nothing to do" in capsys.readouterr().out

    (pki / "admin.crt").write_text("-")
    assert run_main(command) != 0 and "cannot be renewed" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", ["ca.key", "kubelet-0.crt"])
def test_damaged_certificate_does_not_block_other_processes(
    damaged: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    async def start(self: Cluster, *_: object, **__: object) -> list[str]:
        started.extend(self.stopped_processes())
        return started

    pki = pki_folder(cluster.spec.data_dir)
    certificates.create_certificates(pki, ["127.0.0.1:1"], {"kubelet-0": ["n0"]})
    (pki / damaged).write_text("x")
    monkeypatch.setattr(Cluster, "resume", start)
    monkeypatch.setattr("pinnace.cli.verbs.processes.fleet_node_names", lambda spec: {"kubelet-0": ["n0"]})
    assert run_main(["restart", "--data-dir", str(cluster.spec.data_dir)]) != 0
    assert started == ["scheduler-1"] and damaged in capsys.readouterr().err


async def test_failed_etcd_member_does_not_block_other_processes(serving: Callable[..., Cluster]) -> None:
    cluster = serving(etcd_0=False, etcd_1=True, etcd_2=True, apiserver_0=False, apiserver_1=True, scheduler_0=True)
    with pytest.raises(StartFailed) as failed:
        await cluster.restart(cluster.stopped_processes(), timeout=20)
    assert cluster.stopped_processes() == ["etcd-0", "apiserver-0"]
    assert "etcd-0 exited with 1" in failed.value.message and "apiserver-0 exited with 1" in failed.value.message
    assert set(failed.value.logs) == {"etcd-0", "apiserver-0"}
    assert "etcd-0 has lost its data" in failed.value.hint and "`pinnace status`" in failed.value.hint


@pytest.mark.parametrize(
    ("processes", "left", "message"),
    [
        ({"etcd_0": False, "etcd_1": False, "etcd_2": True}, ["etcd-2"], "1 of 3 processes of etcd run"),
        ({"etcd_0": True, "apiserver_0": False, "apiserver_1": False}, ["etcd-0"], "0 of 2 processes of apiserver run"),
    ],
)
async def test_process_with_failed_dependencies_is_not_started(
    serving: Callable[..., Cluster], processes: dict[str, bool], left: list[str], message: str
) -> None:
    cluster = serving(**processes, scheduler_0=True)
    with pytest.raises(StartFailed, match=message):
        await cluster.restart(cluster.stopped_processes(), timeout=20)
    assert [record.name for record in cluster.state.processes if cluster.pid(record.name)] == left


async def test_unready_process_blocks_no_independent_process(serving: Callable[..., Cluster]) -> None:
    cluster = serving(etcd_0=True, apiserver_0=True, apiserver_hangs=True, scheduler_0=True)
    with pytest.raises(StartTimeout, match="apiserver-hangs"):
        await cluster.restart(cluster.stopped_processes(), timeout=3)
    assert not cluster.stopped_processes()


async def test_cluster_removed_meanwhile_is_not_started(cluster: Cluster) -> None:
    ClusterFolder(cluster.spec.data_dir).remove(cluster.state)
    with pytest.raises(NoCluster):
        await cluster.restart(["scheduler-1"])
    assert not list(cluster.spec.data_dir.iterdir())


async def test_up_of_a_partly_running_cluster_suggests_start_or_down(cluster: Cluster) -> None:
    with pytest.raises(AlreadyRunning) as refused:
        await Cluster(ClusterSpec(data_dir=cluster.spec.data_dir)).up()
    assert refused.value.message == f"a cluster runs in {cluster.spec.data_dir} already (pid {os.getpid()})"
    assert "`pinnace start --data-dir" in refused.value.hint and "`pinnace down --data-dir" in refused.value.hint


def test_unreachable_cluster_is_reported_as_stopped_or_missing(tmp_path: Path) -> None:
    """Regression: a removed cluster was reported to have invalid certificates."""
    server = ProcessPlan("apiserver", "apiserver-0", "127.0.0.1:1", "127.0.0.1:1", ("sh",))
    scheduler = ProcessPlan("scheduler", "scheduler-0", "127.0.0.1:3", "127.0.0.1:3", ("sh",))
    state = initial_state(ClusterSpec(data_dir=tmp_path), [server, scheduler], [], 0.0)
    state = state.with_process("apiserver-0", DEAD).with_process("scheduler-0", procfs.identify_process(os.getpid()))
    folder = ClusterFolder(tmp_path)
    gone = TlsFiles(*(tmp_path / "pki" / name for name in ("ca.crt", "admin.crt", "admin.key")))

    def refusal(*servers: str, tls: TlsFiles | None = None) -> tuple[str, str]:
        with pytest.raises(Failure) as refused:
            asyncio.run(connect_to_any_server(ClientConfig(servers, data_dir=tmp_path, tls=tls)))
        return str(refused.value), refused.value.report.hint

    folder.write(state)
    message, hint = refusal("127.0.0.1:1")
    assert message.startswith("no API server answers") and f"`pinnace start --data-dir {tmp_path}`" in hint
    assert "`pinnace up`" in refusal("127.0.0.1:2")[1], "the address is not one of its API servers"
    folder.write(state.with_process("scheduler-0", DEAD))
    message, hint = refusal("127.0.0.1:1")
    assert message == f"no cluster is running at {tmp_path}: all of its 2 processes have exited"
    assert hint == f"start it with `pinnace start --data-dir {tmp_path}`; its objects are kept"
    folder.write(replace(state.with_process("scheduler-0", DEAD), stopped=True))
    assert refusal("127.0.0.1:1")[0].endswith("it is stopped")
    folder.remove(Cluster.load(tmp_path).state)
    for tls in (gone, None):
        message, hint = refusal("127.0.0.1:1", tls=tls)
        assert message == f"no cluster is running at {tmp_path}: it does not exist"
        assert f"`pinnace up --data-dir {tmp_path}`" in hint


async def test_restarted_process_uses_the_current_installation(tmp_path: Path) -> None:
    """The installation may have been upgraded, or another environment may be active. etcd is not part of it, and keeps its
    program.
    """
    path, elsewhere = tmp_path / "cluster", "/elsewhere/bin/python"
    addresses = iter(PortAllocator().next, None)
    plans = [
        ProcessPlan(component, f"{component}-0", f"127.0.0.1:{next(addresses)}", f"127.0.0.1:{next(addresses)}", argv)
        for component, argv in {
            "etcd": (sys.executable, "-c", "import time; time.sleep(60)", "etcd", str(path)),
            "scheduler": (elsewhere, "-c", "import time; time.sleep(60)", "scheduler", str(path)),
        }.items()
    ]
    made = ClusterFolder(path).create()
    state = initial_state(ClusterSpec(data_dir=path), plans, made, 0.0)
    ClusterFolder(path).claim_folder(state.with_process("etcd-0", DEAD).with_process("scheduler-0", DEAD))
    cluster = Cluster.load(path)
    try:
        cluster.start_without_waiting(["etcd-0", "scheduler-0"])
        records = {record.component: record for record in Cluster.load(path).state.processes}
        assert records["etcd"].plan == plans[0]
        assert records["scheduler"].plan == replace(plans[1], argv=(sys.executable, *plans[1].argv[1:]))
        for name, record in records.items():
            assert procfs.find_process(record.plan.argv) == record.process, name
    finally:
        await cluster.down()


async def test_unrecorded_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster"
    address = f"127.0.0.1:{PortAllocator().next()}"
    plan = ProcessPlan("etcd", "etcd-0", address, address, (sys.executable, "-c", "import time; time.sleep(60)", str(path)))
    made = ClusterFolder(path).create()
    ClusterFolder(path).claim_folder(initial_state(ClusterSpec(data_dir=path), [plan], made, 0.0).with_process("etcd-0", DEAD))
    children: list[processes.ChildProcess] = []
    spawn = processes.spawn_process

    def fill_the_disk(plan: ProcessPlan, log: Path, *, launch: processes.ProcessLauncher) -> processes.ChildProcess:
        children.append(spawn(plan, log, launch=launch))
        monkeypatch.setattr(ClusterFolder, "write", full)
        return children[-1]

    def full(folder: ClusterFolder, state: ClusterState) -> None:
        (path / "cluster.tmp").write_text("{")
        raise FolderError("no space left on device")

    monkeypatch.setattr(processes, "spawn_process", fill_the_disk)
    try:
        with pytest.raises(FolderError):
            Cluster.load(path).start_without_waiting(["etcd-0"])
        assert Cluster.load(path).pid("etcd-0") == children[0].pid
        await Cluster.load(path).down()
        assert procfs.identify_process(children[0].pid) is None, "the process is killed"
        assert not path.exists()
    finally:
        children[0].kill()
        children[0].wait()
