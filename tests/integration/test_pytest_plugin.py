"""The pytest plugin, as the author of an operator uses it: real clusters, and nothing left in the end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinnace.runtime import procfs

pytestmark = [pytest.mark.stories, pytest.mark.timeout(180)]
PATIENCE = 30.0
TESTS = """
import os
from kubernetes import client, config

SPEC = {"containers": [{"name": "web", "image": "web:1"}]}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": SPEC}

def test_pod_runs_in_namespace_of_test(pinnace_cluster, namespace):
    pinnace_cluster.apply(POD, namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/web"
    pinnace_cluster.wait(lambda: pinnace_cluster.request("GET", path)["status"].get("phase") == "Running")

def test_nodes_are_added(pinnace_cluster):
    before = len(pinnace_cluster.request("GET", "/api/v1/nodes")["items"])
    names = pinnace_cluster.add_nodes(2, metadata={"labels": {"disk": "ssd"}})
    assert len(pinnace_cluster.request("GET", "/api/v1/nodes")["items"]) == before + 2
    assert len(pinnace_cluster.request("GET", "/api/v1/nodes", labelSelector="disk=ssd")["items"]) >= len(names)

def test_client_of_kubernetes_uses_cluster(kubernetes_client, namespace):
    assert namespace in [item.metadata.name for item in client.CoreV1Api(kubernetes_client).list_namespace().items]

def test_kubeconfig_is_that_of_cluster(kubeconfig):
    assert os.environ["KUBECONFIG"] == str(kubeconfig)

def test_client_that_was_imported_before_uses_cluster(kubeconfig):
    config.load_kube_config()
    assert client.CoreV1Api().list_node().items
"""
FAILS = """
def test_fails(pinnace_cluster):
    pinnace_cluster.add_nodes()
    pinnace_cluster.wait(lambda: "of 2 nodes" in pinnace_cluster.log("kubelet-0"))
    assert False
"""
HANGS = """
import pathlib, time

def test_hangs(namespace):
    pathlib.Path("ready").touch()
    time.sleep(60)
"""
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_cluster(pinnace_cluster, number):
    with open("clusters", "a") as file:
        file.write(f"{pinnace_cluster.server}\\n")
"""
CONFIGURED = """
def test_manifest_is_there(pinnace_cluster):
    assert pinnace_cluster.request("GET", "/api/v1/namespaces/team-a")
    assert len(pinnace_cluster.request("GET", "/api/v1/nodes")["items"]) == 3
"""
OWN_PACKAGES = """
import gateway, scheduler

def test_own_packages_are_imported(pinnace_cluster, namespace):
    assert scheduler.NAME == "scheduler of the project" and gateway.NAME == "gateway of the project"
    assert pinnace_cluster.request("GET", f"/api/v1/namespaces/{namespace}")
"""
PROCESS = """
import pathlib, time

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"},
    "spec": {"containers": [{"name": "main", "image": "any", "command": ["sleep", "98765"]}]},
}

def test_container_is_process(pinnace_cluster, namespace):
    pinnace_cluster.apply(POD, namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/sleeper"
    pinnace_cluster.wait(lambda: pinnace_cluster.request("GET", path)["status"].get("phase") == "Running")
    pathlib.Path("ready").touch()
    time.sleep(60)
"""


class Project:
    """The folder of a user's project, and its clusters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clusters = folder / "clusters-of-tests"

    def command(self, *arguments: str) -> list[str]:
        plugins = ("-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
        return [sys.executable, "-m", "pytest", "-q", *plugins, f"--pinnace-data-dir={self.clusters}", *arguments]

    def run(self, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "test_user.py").write_text(text)
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env=os.environ | environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    @contextmanager
    def running(self, text: str, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
        """pytest, in a test that hangs."""
        (self.folder / "test_user.py").write_text(text)
        with subprocess.Popen(self.command(*arguments), cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            try:
                until((self.folder / "ready").exists)
                yield process
            finally:
                process.kill()

    def processes(self) -> list[tuple[int, list[str]]]:
        """The processes of clusters."""
        return [(pid, argv) for pid, argv in procfs.list_own_processes() if any(f"{self.clusters}/" in word for word in argv)]

    def is_clean(self) -> bool:
        return not self.processes() and not list(self.clusters.glob("*"))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("-n", "2"), ("-n", "2", "--pinnace-shared")])
def test_fixtures_give_cluster_and_leave_nothing(project: Project, arguments: tuple[str, ...]) -> None:
    done = project.run(TESTS, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    assert project.is_clean()


@pytest.mark.parametrize(("arguments", "count"), [((), 2), (("--pinnace-shared",), 1)])
def test_workers_have_own_cluster_unless_it_is_shared(project: Project, arguments: tuple[str, ...], count: int) -> None:
    done = project.run(SHARED, "-n", "2", "--dist", "each" if not arguments else "load", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(set((project.folder / "clusters").read_text().split())) == count
    assert project.is_clean()


def test_packages_of_the_project_may_have_names_of_components(project: Project) -> None:
    for name in ("gateway", "scheduler"):
        (project.folder / name).mkdir()
        (project.folder / name / "__init__.py").write_text(f"NAME = '{name} of the project'\n")
    done = project.run(OWN_PACKAGES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_pytest_leaves_nothing(project: Project, number: signal.Signals) -> None:
    with project.running(HANGS) as pytest_process:
        assert len(project.processes()) > 2
        pytest_process.send_signal(number)
        until(project.is_clean)


def test_containers_of_killed_pytest_end(project: Project) -> None:
    """Containers of the process runtime survive their kubelet, but not their cluster."""

    def sleepers() -> list[int]:
        return [pid for pid, argv in procfs.list_own_processes() if argv == ["sleep", "98765"]]

    with project.running(PROCESS, "--pinnace-runtime", "process") as pytest_process:
        assert sleepers()
        pytest_process.kill()
        until(lambda: project.is_clean() and not sleepers())


def test_processes_of_killed_server_end_and_next_run_removes_its_folder(project: Project) -> None:
    with project.running(HANGS):
        (server, *_) = [pid for pid, argv in project.processes() if "pinnace.testing.server" in argv]
        os.kill(server, signal.SIGKILL)
        until(lambda: not project.processes())
        assert list(project.clusters.glob("*"))
    assert project.run(SHARED).returncode == 0
    assert project.is_clean()


def test_interrupted_start_leaves_nothing(project: Project) -> None:
    (project.folder / "test_user.py").write_text(HANGS)
    with subprocess.Popen(project.command(), cwd=project.folder, stdout=subprocess.DEVNULL) as process:
        until(project.processes)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    until(project.is_clean)


def test_report_of_failed_test_has_new_lines_of_components(project: Project) -> None:
    done = project.run(FAILS)
    assert done.returncode == 1
    assert "log of kubelet-0" in done.stdout
    assert "log of etcd-0" not in done.stdout, "etcd has logged nothing since the test began"


def test_cluster_of_failed_test_can_be_kept(project: Project) -> None:
    done = project.run(FAILS, "--pinnace-keep-on-failure")
    match = re.search(r"pinnace down --data-dir (\S+)\)", done.stdout)
    assert match, done.stdout
    assert project.processes()
    program = str(Path(sys.executable).with_name("pinnace"))
    subprocess.run([program, "down", "--data-dir", match[1]], capture_output=True, timeout=60, check=True)
    until(project.is_clean)


def test_missing_etcd_says_what_to_install(project: Project) -> None:
    done = project.run(TESTS, ETCD_BIN=str(project.folder / "missing"))
    assert done.returncode == 1
    assert "is no etcd that runs" in done.stdout
    assert "hint:" in done.stdout
    assert "Traceback" not in done.stdout
    assert project.is_clean()


def test_failed_start_shows_log_of_component(project: Project) -> None:
    done = project.run(TESTS, PINNACE_APISERVER_EVENT_MAX_COUNT="none")
    assert "apiserver-0 exited with 2 while it was starting" in done.stdout
    assert "'none' is not a valid integer" in done.stdout
    assert project.is_clean()


def test_configuration_file_sets_options(project: Project) -> None:
    (project.folder / "manifests").mkdir()
    (project.folder / "manifests" / "team.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    (project.folder / "pytest.ini").write_text("[pytest]\npinnace_nodes = 3\npinnace_manifests = manifests\n")
    done = project.run(CONFIGURED)
    assert done.returncode == 0, done.stdout


def test_unknown_kind_in_manifests_is_named(project: Project) -> None:
    (project.folder / "wrong.yaml").write_text("apiVersion: example.com/v1\nkind: Site\nmetadata: {name: a}\n")
    done = project.run(TESTS, "--pinnace-manifests", "wrong.yaml")
    assert 'the cluster has no kind "Site" in example.com/v1' in done.stdout
    assert project.is_clean()


def test_modules_of_user_do_not_replace_those_of_cluster(project: Project) -> None:
    """A project may have a package `scheduler`, and a module with the name of one that the cluster needs."""
    (project.folder / "scheduler").mkdir()
    (project.folder / "scheduler" / "__init__.py").write_text("MINE = True\n")
    (project.folder / "yaml.py").write_text("raise RuntimeError('a module of the user')\n")
    text = "import scheduler\n\ndef test_own_package(namespace):\n    assert scheduler.MINE\n"
    done = project.run(text, PYTHONWARNINGS="error::ImportWarning")
    assert done.returncode == 0, done.stdout
