"""The Helm chart, installed by the real helm in a cluster whose pods are processes: a control plane inside a control plane.

The chart does not know this. --images says where this machine has the programs of its images.
"""

import base64
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.cluster.etcd import find_etcd
from tests.clients.conftest import Kubectl, cluster, deployment, pod, until
from tests.helm import Helm, find_helm

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400), pytest.mark.xdist_group("process-runtime")]
CHART = Path(__file__).parents[2] / "deploy/helm/pinnace"
RELEASE = "pinnace"
READY = 150.0
"""Seconds until all pods of the chart are ready."""
PORTS = {"etcd": 2379, "apiserver": 7443, "scheduler": 7480, "controllers": 7480, "gateway": 6443, "kubelet": 10250}
"""A port on which each component listens, as its manifest says."""
SECRETS = {f"{RELEASE}-{name}-pki" for name in ("admin", "apiserver", "controllers", "etcd", "gateway", "kubelet", "scheduler")}
LABEL = f"app.kubernetes.io/instance={RELEASE}"


class Site:
    """The release: the outer cluster, where its pods are, and the inner one."""

    def __init__(self, helm: Helm, outer: Kubectl, program: str, folder: Path) -> None:
        self.helm, self.outer, self._program, self._folder = helm, outer, program, folder

    def install(self) -> None:
        self.helm("install", RELEASE, str(CHART), "--wait", "--timeout", f"{READY:.0f}s", timeout=READY + 30)

    def upgrade(self, *arguments: str) -> None:
        command = ("upgrade", RELEASE, str(CHART), "--wait", "--timeout", f"{READY:.0f}s", *arguments)
        self.helm(*command, timeout=READY + 30)

    @property
    def inner(self) -> Kubectl:
        """The administrator of the inner cluster, who reaches its gateways by their cluster IP."""
        secret = self.outer.json("get", "secret", f"{RELEASE}-admin-pki")["data"]["kubeconfig"]
        path = self._folder / "inner" / "kubeconfig"
        path.parent.mkdir(exist_ok=True)
        document = yaml.safe_load(base64.b64decode(secret))
        address = self.outer.json("get", "service", f"{RELEASE}-gateway")["spec"]["clusterIP"]
        document["clusters"][0]["cluster"] |= {"server": f"https://{address}:443", "tls-server-name": f"{RELEASE}-gateway"}
        path.write_text(yaml.safe_dump(document))
        return Kubectl(self._program, path, "default")

    def pods(self, component: str) -> list[dict[str, Any]]:
        selector = f"{LABEL},app.kubernetes.io/component={component}"
        return list(self.outer.json("get", "pods", "--selector", selector)["items"])

    def pid(self, item: dict[str, Any], component: str) -> int:
        """Return the process that listens at the address of the pod."""
        (pid,) = find_listeners(item["status"]["podIP"], PORTS[component])
        return pid

    def leader(self) -> str:
        """Return the name of the leading inner scheduler, which is that of its pod."""
        return str(self.inner.json("get", "lease", "kube-scheduler", "--namespace", "kube-system")["spec"]["holderIdentity"])


def find_listeners(address: str, port: int) -> set[int]:
    """Return the processes of this machine that listen at the address, by /proc."""
    octets = [int(part) for part in reversed(address.split("."))]
    local = f"{''.join(f'{octet:02X}' for octet in octets)}:{port:04X}"
    locals_ = (local, f"0000000000000000FFFF0000{local}")  # IPv6 sockets have the mapped address
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1] in locals_ and line[3] == "0A"}
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in sockets:
                found.add(int(link.parts[2]))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def disk(index: int, folder: Path) -> dict[str, Any]:
    """A local volume of one node, as an administrator of machines without a provisioner creates them."""
    path = folder / f"disk-{index}"
    path.mkdir()
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node-{index}"]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"disk-{index}"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


@pytest.fixture(scope="module")
def helm_program() -> Path:
    return find_helm()


@pytest.fixture(scope="module")
def site(program: str, helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("chart")
    path = f"{Path(sys.executable).parent}:{find_etcd().path.parent}:{os.environ['PATH']}"
    images = {"pinnace": {"args": ["pinnace"], "env": {"PATH": path}}, "coreos/etcd": {"args": ["etcd"], "env": {"PATH": path}}}
    (folder / "images.yaml").write_text(yaml.safe_dump({"images": images}))
    options = ("--nodes", "3", "--runtime", "process", "--images", str(folder / "images.yaml"), "--schedulers", "1")
    with cluster(folder, *options, "--controllers", "1", "--apiservers", "1") as kubeconfig:
        outer = Kubectl(program, kubeconfig, "default")
        outer("create", "-f", "-", stdin=[disk(index, folder) for index in range(3)])
        site = Site(Helm(helm_program, kubeconfig), outer, program, folder)
        site.install()
        yield site
        site.helm("uninstall", RELEASE, "--ignore-not-found", "--wait")


def test_chart_is_clean(helm_program: Path) -> None:
    helm = Helm(helm_program, None)
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    objects = [item for item in yaml.safe_load_all(helm("template", "one", str(CHART))) if item]
    assert {"Deployment", "StatefulSet", "Job", "NetworkPolicy", "PodDisruptionBudget"} <= {item["kind"] for item in objects}
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("etcd.replicas=2", "must be one of 1, 3, 5"),
        ("scheduler.replica=2", "additional properties 'replica' not allowed"),
        ("scheduler.extraArgs={seed=7}", "does not match pattern"),
        ("kubelet.fleets[0].name=etcd", "/kubelet/fleets/0"),
    ],
)
def test_chart_refuses_wrong_values(helm_program: Path, setting: str, message: str) -> None:
    assert message in Helm(helm_program, None)("template", "one", str(CHART), "--set", setting, fails=True)


def test_pods_of_the_chart_are_processes_that_listen_at_their_addresses(site: Site) -> None:
    numbers = {component: len(site.pods(component)) for component in PORTS}
    assert numbers == {"etcd": 3, "apiserver": 2, "scheduler": 3, "controllers": 2, "gateway": 2, "kubelet": 1}
    pids = {site.pid(item, component): component for component in PORTS for item in site.pods(component)}
    assert len(pids) == sum(numbers.values()), "each pod has a process of its own"
    for pid, component in pids.items():
        assert re.search(r"\betcd --name" if component == "etcd" else rf"\bpinnace-{component} ", command_line(pid))
    rows = site.inner("get", "nodes", "--no-headers").splitlines()
    assert [row.split()[:2] for row in rows] == [[f"{RELEASE}-kubelet-0-{index}", "Ready"] for index in range(10)]


def test_inner_cluster_runs_pods_and_outlives_its_leading_scheduler(site: Site) -> None:
    inner, leader = site.inner, site.leader()
    inner("apply", "-f", "-", stdin=[deployment("web", 3)])
    inner("rollout", "status", "deployment/web", "--timeout=40s")
    (item,) = (item for item in site.pods("scheduler") if item["metadata"]["name"] == leader)
    os.kill(site.pid(item, "scheduler"), signal.SIGKILL)
    killed = time.monotonic()
    inner("create", "-f", "-", stdin=[pod("after")])
    until(lambda: inner.json("get", "pod", "after")["spec"].get("nodeName"), timeout=20)
    print(f"the next pod is bound at most {time.monotonic() - killed:.1f} s after the kill")
    assert site.leader() != leader
    until(lambda: site.outer.json("get", "pod", leader)["status"]["containerStatuses"][0]["restartCount"] == 1)
    until(lambda: site.outer.json("get", "pod", leader)["status"]["containerStatuses"][0]["ready"])


def test_release_is_upgraded_and_rolled_back_under_a_running_cluster(site: Site) -> None:
    site.inner("apply", "-f", "-", stdin=[deployment("kept", 2)])
    etcd = {site.pid(item, "etcd") for item in site.pods("etcd")}
    site.upgrade("--set", "scheduler.replicas=2", "--set", "scheduler.extraArgs={--seed=7}")
    until(lambda: len(site.pods("scheduler")) == 2)
    assert all("--seed=7" in command_line(site.pid(item, "scheduler")) for item in site.pods("scheduler"))
    until(lambda: site.leader() in {item["metadata"]["name"] for item in site.pods("scheduler")})
    site.helm("rollback", RELEASE, "1", "--wait", "--timeout", f"{READY:.0f}s", timeout=READY + 30)
    until(lambda: len(site.pods("scheduler")) == 3)
    assert not any("--seed=7" in command_line(site.pid(item, "scheduler")) for item in site.pods("scheduler"))
    assert {site.pid(item, "etcd") for item in site.pods("etcd")} == etcd, "what did not change runs on"
    site.inner("rollout", "status", "deployment/kept", "--timeout=40s")
    history = json.loads(site.helm("history", RELEASE, "--output", "json"))
    assert [entry["status"] for entry in history] == ["superseded", "superseded", "deployed"]


def test_number_of_members_of_etcd_cannot_change(site: Site) -> None:
    command = ("upgrade", RELEASE, str(CHART), "--set", "etcd.replicas=5")
    assert "etcd.replicas cannot be changed from 3 to 5" in site.helm(*command, fails=True)


def test_uninstalled_release_leaves_its_data_and_resumes_from_it(site: Site) -> None:
    site.inner("apply", "-f", "-", stdin=[deployment("kept", 2)])
    pids = {site.pid(item, component) for component in PORTS for item in site.pods(component)}
    site.helm("uninstall", RELEASE, "--wait")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    kinds = "deployments,statefulsets,jobs,pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"
    assert site.outer.json("get", kinds, "--selector", LABEL)["items"] == []
    left = {item["metadata"]["name"] for item in site.outer.json("get", "secrets", "--selector", LABEL)["items"]}
    assert left == {*SECRETS, f"{RELEASE}-pki"}
    claims = {item["metadata"]["name"] for item in site.outer.json("get", "pvc")["items"]}
    assert claims == {f"data-{RELEASE}-etcd-{index}" for index in range(3)}
    site.install()
    site.inner("rollout", "status", "deployment/kept", "--timeout=60s")
