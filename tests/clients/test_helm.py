"""helm 4 and ten charts: installed, upgraded, rolled back, tested and removed, with pods, claims, hooks and passwords."""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.charts import CHARTS, GONE, KEPT, Chart, write_chart
from tests.clients.conftest import Kubectl, until
from tests.helm import Helm, find_helm

pytestmark = pytest.mark.clients
AT_ONCE = 5
"""Number of charts that are installed at the same time."""
RELEASE = "r"
BROKEN = {"podAnnotations": {"pinnace.io/ready-after-seconds": "3600"}}
_BY_HOOK = ("pre-install", "post-install", "pre-upgrade", "post-upgrade")
_CLUSTER_KINDS = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations"
_KINDS = "all,configmaps,secrets,serviceaccounts,ingresses,networkpolicies,poddisruptionbudgets,roles,rolebindings"


@pytest.fixture(scope="module")
def helm_program() -> Path:
    return find_helm()


@pytest.fixture(scope="module")
def lives(
    helm_program: Path, program: str, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[None]]]:
    """The life of each chart. They run at the same time."""
    folder = tmp_path_factory.mktemp("charts")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {}
        for chart in CHARTS.values():
            kubectl = Kubectl(program, kubeconfig, f"helm-{chart.name}")
            helm = Helm(helm_program, kubeconfig, kubectl.namespace)
            futures[chart.name] = pool.submit(run_chart, helm, kubectl, chart, write_chart(chart, folder))
        yield futures


@pytest.mark.parametrize("name", CHARTS)
def test_life_of_chart(name: str, lives: Mapping[str, Future[None]]) -> None:
    lives[name].result()


def run_chart(helm: Helm, kubectl: Kubectl, chart: Chart, folder: Path) -> None:
    kubectl("create", "namespace", kubectl.namespace)
    try:
        installed = helm("install", RELEASE, str(folder), "--wait", "--wait-for-jobs", "--timeout=60s")
        assert f"{chart.name} runs as {RELEASE}, revision 1." in installed
        check_running(kubectl, chart, tag="1")
        check_hooks(kubectl, chart, {"pre-install": "1", "post-install": "1"})
        password = read_password(kubectl, chart)

        helm("upgrade", RELEASE, str(folder), "--set=global.tag=2", "--wait", "--rollback-on-failure", "--timeout=60s")
        check_running(kubectl, chart, tag="2")
        check_hooks(kubectl, chart, {"pre-upgrade": "2", "post-upgrade": "2"})
        assert read_password(kubectl, chart) == password, "the chart looks up the password that it has created"

        helm("rollback", RELEASE, "1", "--wait", "--timeout=60s")
        check_running(kubectl, chart, tag="1")
        tested = helm("test", RELEASE, "--timeout=60s")
        assert re.search(rf"TEST SUITE:\s+{RELEASE}-{chart.name}-test", tested) and "Succeeded" in tested
        statuses = [line.split("\t")[2].strip() for line in helm("history", RELEASE).splitlines()[1:]]
        assert statuses == ["superseded", "superseded", "deployed"]

        helm("uninstall", RELEASE, "--wait", "--timeout=60s")
        check_hooks(kubectl, chart, {"pre-delete": "1", "post-delete": "1"})
        check_removed(kubectl, chart)
    finally:
        kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
        for definition in chart.crds:  # helm does not delete definitions of the folder crds
            kubectl("delete", "crd", definition, "--ignore-not-found", "--wait=false")
    until(lambda: kubectl.namespace not in kubectl("get", "pv", "-A"))


def check_running(kubectl: Kubectl, chart: Chart, tag: str) -> None:
    """All pods of workloads run the image with this tag and are ready, and all claims are bound."""

    def all_run_this_tag() -> bool:
        objects = kubectl.json("get", "pods,pvc,daemonsets")["items"]
        of_kind = {
            kind: [obj for obj in objects if obj["kind"] == kind] for kind in ("Pod", "PersistentVolumeClaim", "DaemonSet")
        }
        pods = [pod for pod in of_kind["Pod"] if "component" in pod["metadata"].get("labels", {})]
        images = {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}
        phases = [claim["status"]["phase"] for claim in of_kind["PersistentVolumeClaim"]]
        assert phases == ["Bound"] * sum(map(count_claims, (chart, *chart.subcharts)))
        count = count_pods(chart, nodes=sum(daemons["status"]["desiredNumberScheduled"] for daemons in of_kind["DaemonSet"]))
        return len(pods) == count and images == {tag} and all(map(is_ready, pods))

    until(all_run_this_tag, timeout=20)


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", [])}
    return (
        pod["status"]["phase"] == "Running" and conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
    )


def count_pods(chart: Chart, nodes: int) -> int:
    """The number of pods of all workloads. `nodes`: that of a DaemonSet."""
    workloads = [workload for item in (chart, *chart.subcharts) for workload in item.workloads.values()]
    return sum(
        nodes if item["kind"] == "DaemonSet" else item.get("replicas", item.get("hpa", {}).get("min", 1)) for item in workloads
    )


def count_claims(chart: Chart) -> int:
    templates = sum(item.get("replicas", 1) for item in chart.workloads.values() if "storage" in item)
    return templates + ("claim" in chart.values)


def check_hooks(kubectl: Kubectl, chart: Chart, revisions: Mapping[str, str]) -> None:
    """The hooks ran in these revisions. Their Jobs are complete, or were deleted after their success."""
    hooks = chart.values.get("hooks", {})
    ran = revisions.keys() & hooks.keys()
    if not ran:
        return
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in kubectl.json("get", "configmaps,jobs")["items"]}
    for hook in ran:
        name = f"{RELEASE}-{chart.name}-{hook}"
        assert objects["ConfigMap", name]["data"]["revision"] == revisions[hook]
        job = objects.get(("Job", name))
        assert (job["status"]["succeeded"] == 1 and hooks[hook] == KEPT) if job is not None else hooks[hook] == GONE


def read_password(kubectl: Kubectl, chart: Chart) -> str:
    if not chart.values.get("password"):
        return ""
    password: str = kubectl.json("get", "secret", f"{RELEASE}-{chart.name}")["data"]["password"]
    assert password
    return password


def check_removed(kubectl: Kubectl, chart: Chart) -> None:
    """Nothing of the release is left but the resources of hooks, and the claims of stateful sets."""
    hooks = (*_BY_HOOK, "pre-delete", "post-delete", "test")

    def left() -> list[str]:
        names = kubectl("get", _KINDS, "-o", "name").split()
        return [name for name in names if f"/{RELEASE}-" in name and not any(f"-{hook}" in name for hook in hooks)]

    until(lambda: not left(), timeout=20)
    claims = kubectl("get", "pvc", "-o", "name").split()
    assert len(claims) == sum(count_claims(item) - ("claim" in item.values) for item in (chart, *chart.subcharts))
    assert f"/{RELEASE}-{chart.name}" not in kubectl("get", _CLUSTER_KINDS, "-o", "name")


@pytest.fixture
def helm(helm_program: Path, kubectl: Kubectl) -> Helm:
    return Helm(helm_program, kubectl.kubeconfig, kubectl.namespace)


def test_failed_upgrade_is_rolled_back(helm: Helm, kubectl: Kubectl, tmp_path: Path) -> None:
    chart = CHARTS["nginx"]
    folder = write_chart(chart, tmp_path)
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(BROKEN))
    helm("install", RELEASE, str(folder), "--wait", "--timeout=60s")
    upgrade = ("upgrade", RELEASE, str(folder), f"--values={tmp_path / 'broken.yaml'}", "--set=global.tag=2")
    failed = helm(*upgrade, "--wait", "--rollback-on-failure", "--timeout=4s", fails=True)
    assert "has been rolled back due to rollback-on-failure being set" in failed
    check_running(kubectl, chart, tag="1")
    assert [line.split("\t")[2].strip() for line in helm("history", RELEASE).splitlines()[1:]] == [
        "superseded",
        "failed",
        "deployed",
    ]
    helm("uninstall", RELEASE, "--wait", "--timeout=60s")


def test_failed_install_is_removed(helm: Helm, kubectl: Kubectl, tmp_path: Path) -> None:
    chart = CHARTS["redis"]
    folder = write_chart(chart, tmp_path)
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(BROKEN))
    install = ("install", RELEASE, str(folder), f"--values={tmp_path / 'broken.yaml'}")
    failed = helm(*install, "--wait", "--rollback-on-failure", "--timeout=3s", fails=True)
    assert "has been uninstalled due to rollback-on-failure being set" in failed
    assert not helm("list", "--short").strip()
    assert "pod" not in kubectl("get", "pods", "-o", "name")
