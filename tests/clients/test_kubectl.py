"""kubectl 1.37, verb by verb. What a user sees is checked, and what the object is afterwards."""

from typing import Any

import pytest

from tests.clients.conftest import Kubectl, deployment, pod

pytestmark = pytest.mark.clients


def test_version_and_cluster(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36" in kubectl("version")
    assert "is running at https://127.0.0.1:" in kubectl("cluster-info")
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "kubernetes-admin" in kubectl("auth", "whoami")


def test_discovery(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources", "--no-headers")
    for line in ("pods", "deployments", "jobs", "rolebindings", "endpointslices"):
        assert f"\n{line} " in f"\n{listed}"
    assert set(kubectl("api-versions").split()) >= {"v1", "apps/v1", "batch/v1", "policy/v1", "events.k8s.io/v1"}
    assert "deployments.apps" in kubectl("api-resources", "-o", "name", "--api-group", "apps", "--namespaced")
    assert "containers" in kubectl("explain", "pod.spec")
    assert "RollingUpdate" in kubectl("explain", "deployment.spec.strategy.type")
    assert "fencing token" in kubectl("explain", "elections.status.token")
    assert "the server doesn't have a resource type" in kubectl("get", "widgets", fails=True)


def test_apply_changes_what_is_there(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in kubectl("apply", "-f", "-", stdin=[deployment("web", 2)])
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=[deployment("web", 2)])
    changed = [deployment("web", 3, image="nginx:2")]
    assert "nginx:2" in kubectl.run("diff", "-f", "-", stdin=changed).out
    assert "configured (server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=changed)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 2
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    result = kubectl.json("get", "deployment", "web")
    assert result["spec"]["replicas"] == 3
    assert result["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    assert "deleted" in kubectl("delete", "-f", "-", stdin=changed)


def test_server_side_apply(kubectl: Kubectl) -> None:
    applying = ("apply", "--server-side", "-f", "-")
    labelled = deployment("web", 2)
    labelled["metadata"]["labels"] = {"app": "web", "tier": "front"}
    assert "deployment.apps/web serverside-applied" in kubectl(*applying, stdin=[labelled])
    shown = kubectl("get", "deployment", "web", "-o", "yaml", "--show-managed-fields")
    assert "manager: kubectl\n" in shown and "operation: Apply" in shown
    assert "managedFields" not in kubectl("get", "deployment", "web", "-o", "yaml")

    replicas = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
    other = (*applying, "--field-manager", "other")
    conflict = kubectl(*other, stdin=[replicas], fails=True)
    assert 'conflict with "kubectl": .spec.replicas' in conflict and "--force-conflicts" in conflict
    assert "serverside-applied" in kubectl(*other, "--force-conflicts", stdin=[replicas])
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 5

    mine = deployment("web", 2)
    del mine["spec"]["replicas"]
    kubectl(*applying, stdin=[mine])
    result = kubectl.json("get", "deployment", "web")
    assert result["spec"]["replicas"] == 5, "another manager owns it"
    assert result["metadata"]["labels"] == {"app": "web"}, "nobody owns the other one any more"
    assert "nginx:2" in kubectl.run("diff", "--server-side", "-f", "-", stdin=[deployment("web", 5, image="nginx:2")]).out


def test_server_side_apply_replaces_client_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[deployment("web", 2)])
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=[deployment("web", 3, image="nginx:2")])
    result = kubectl.json("get", "deployment", "web", "--show-managed-fields")
    assert result["spec"]["replicas"] == 3
    assert ("kubectl", "Apply") in {(item["manager"], item["operation"]) for item in result["metadata"]["managedFields"]}
    last = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert "nginx:2" in last, "client-side apply can go on"
    assert "configured" in kubectl("apply", "-f", "-", stdin=[deployment("web", 4, image="nginx:2")])


def test_rollout(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[deployment("web", 3)])
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    assert "image updated" in kubectl("set", "image", "deployment/web", "main=nginx:2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    assert len(kubectl("rollout", "history", "deployment/web").strip().splitlines()) == 4
    assert "rolled back" in kubectl("rollout", "undo", "deployment/web")
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={..image}") == "nginx:1"
    assert "restarted" in kubectl("rollout", "restart", "deployment/web")
    assert "paused" in kubectl("rollout", "pause", "deployment/web")
    assert "resumed" in kubectl("rollout", "resume", "deployment/web")
    assert "env updated" in kubectl("set", "env", "deployment/web", "MODE=fast")
    assert "resource requirements updated" in kubectl("set", "resources", "deployment/web", "--limits=cpu=200m")
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=5")
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    assert kubectl("get", "deployment", "web", "--no-headers").split()[1] == "5/5"
    assert "scaled" in kubectl("scale", "--current-replicas=5", "--replicas=1", "deployment/web")
    assert "Expected replicas to be 5" in kubectl("scale", "--current-replicas=5", "--replicas=2", "deployment/web", fails=True)


def test_every_output_of_get(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a"), pod("b")])
    kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=40s")
    assert [line.split()[:3] for line in kubectl("get", "pods").splitlines()] == [
        ["NAME", "READY", "STATUS"], ["a", "1/1", "Running"], ["b", "1/1", "Running"],
    ]  # fmt: skip
    assert "NOMINATED NODE" in kubectl("get", "pods", "-o", "wide")
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/a", "pod/b"]
    assert kubectl("get", "pods", "-l", "app=b", "-o", "jsonpath={.items[*].metadata.name}") == "b"
    assert kubectl("get", "pods", "--field-selector", "metadata.name=a", "-o", "name").split() == ["pod/a"]
    assert "kind: Pod" in kubectl("get", "pod", "a", "-o", "yaml")
    assert [item["kind"] for item in kubectl.json("get", "pods")["items"]] == ["Pod", "Pod"]
    assert kubectl("get", "pods", "-o", "custom-columns=:metadata.name").split() == ["a", "b"]
    assert kubectl("get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}},{{end}}") == "a,b,"
    assert kubectl("get", "pods", "--sort-by=.metadata.name", "-o", "name").split() == ["pod/a", "pod/b"]
    assert "app=a" in kubectl("get", "pods", "--show-labels")
    assert kubectl("get", "pods", "-L", "app").splitlines()[0].split()[-1] == "APP"
    assert "pod/a" in kubectl("get", "all")
    assert kubectl.namespace in kubectl("get", "pods", "-A")
    assert kubectl("get", "pods", "--chunk-size=1", "-o", "name").split() == ["pod/a", "pod/b"]
    assert kubectl("get", "pod/a", "node/node-0", "--no-headers").count("\n") >= 2
    assert 'pods "c" not found' in kubectl("get", "pod", "c", fails=True)
    assert kubectl("get", "pod", "c", "--ignore-not-found") == ""
    assert "No resources found" in kubectl.run("get", "secrets").err  # none yet


def test_create_and_its_generators(kubectl: Kubectl) -> None:
    for arguments in (
        ("deployment", "web", "--image=nginx:1"),
        ("job", "once", "--image=nginx:1"),
        ("quota", "limits", "--hard=pods=20"),
        ("role", "reader", "--verb=get", "--resource=pods"),
        ("rolebinding", "readers", "--role=reader", "--user=bob"),
        ("poddisruptionbudget", "web", "--selector=app=web", "--min-available=1"),
        ("service", "clusterip", "web", "--tcp=80:80"),
    ):
        assert "created" in kubectl("create", *arguments)
    assert 'deployments.apps "web" already exists' in kubectl("create", "deployment", "web", "--image=nginx:1", fails=True)
    assert "exposed" in kubectl("expose", "deployment", "web", "--name=other", "--port=80")
    assert "created" in kubectl("run", "single", "--image=nginx:1", "--labels=a=b")
    generated = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "some-"}, "spec": pod("x")["spec"]}
    assert kubectl("create", "-f", "-", "-o", "name", stdin=[generated]).startswith("pod/some-")


def test_patches_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a")])
    assert "labeled" in kubectl("label", "pod", "a", "tier=web")
    assert "already has a value" in kubectl("label", "pod", "a", "tier=db", fails=True)
    assert "labeled" in kubectl("label", "--overwrite", "pod", "a", "tier=db")
    assert "unlabeled" in kubectl("label", "pod", "a", "tier-")
    assert "annotated" in kubectl("annotate", "pod", "a", "note=x")
    for kind, patch in (
        ("strategic", '{"metadata": {"labels": {"one": "1"}}}'),
        ("merge", '{"metadata": {"labels": {"two": "2"}}}'),
        ("json", '[{"op": "add", "path": "/metadata/labels/three", "value": "3"}]'),
    ):
        assert "patched" in kubectl("patch", "pod", "a", f"--type={kind}", "-p", patch)
    labels = kubectl.json("get", "pod", "a")["metadata"]["labels"]
    assert (labels["one"], labels["two"], labels["three"], labels.get("tier")) == ("1", "2", "3", None)
    assert "patched (no change)" in kubectl("patch", "pod", "a", "-p", '{"metadata": {"labels": {"one": "1"}}}')
    result = kubectl.json("get", "pod", "a")
    result["metadata"]["labels"]["four"] = "4"
    assert "replaced" in kubectl("replace", "-f", "-", stdin=[result])
    result["metadata"]["labels"]["four"] = "5"
    assert "the object has been modified" in kubectl("replace", "-f", "-", stdin=[result], fails=True)


def test_nodes(kubectl: Kubectl) -> None:
    assert "cordoned" in kubectl("cordon", "node-3")
    assert "SchedulingDisabled" in kubectl("get", "node", "node-3")
    assert "uncordoned" in kubectl("uncordon", "node-3")
    assert "tainted" in kubectl("taint", "nodes", "node-3", "only=gpu:NoSchedule")
    assert "untainted" in kubectl("taint", "nodes", "node-3", "only-")
    kubectl("apply", "-f", "-", stdin=[pod("a", nodeName="node-3")])
    kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
    drained = kubectl("drain", "node-3", "--force", "--ignore-daemonsets", "--timeout=40s")
    assert "evicting pod" in drained or "pod/a evicted" in drained
    kubectl("uncordon", "node-3")
    described = kubectl("describe", "node", "node-3")
    assert "Allocatable:" in described and "Conditions:" in described


def test_eviction_respects_a_budget(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[deployment("web", 1)])
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/web", "--timeout=40s")
    node = kubectl("get", "pods", "-o", "jsonpath={.items[0].spec.nodeName}")
    refused = kubectl.run("drain", node, "--timeout=3s", "--ignore-daemonsets", "--force", "--pod-selector=app=web")
    assert refused.code != 0 and "Cannot evict pod as it would violate the pod's disruption budget" in refused.err
    kubectl("uncordon", node)


def test_events_and_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a"), pod("b", nodeSelector={"no": "such"})])
    kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
    kubectl("wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "pod/b", "--timeout=40s")
    assert "Scheduled" in kubectl("describe", "pod", "a")
    assert "FailedScheduling" in kubectl("events", "--for", "pod/b")
    assert "FailedScheduling" in kubectl("get", "events")
    assert "Scheduled" in kubectl("get", "events.events.k8s.io")


def test_waiting_and_watching(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a")])
    assert "condition met" in kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/a", "--timeout=40s")
    watched = kubectl("get", "pods", "--watch", "--request-timeout=2s", "-o", "name")
    assert watched.splitlines()[0] == "pod/a"
    assert "deleted" in kubectl("delete", "pod", "a", "--wait=true", "--timeout=40s")
    assert 'pods "a" not found' in kubectl("get", "pod", "a", fails=True)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (pod("a") | {"spec": {"containers": []}}, "spec.containers: Required value"),
        (pod("A_B"), "metadata.name: Invalid value"),
        (pod("a", restartPolicy="Sometimes"), "spec.restartPolicy: Unsupported value"),
        (pod("a", nodeNam="x"), 'unknown field "spec.nodeNam"'),
    ],
    ids=("required", "name", "unsupported", "unknown-field"),
)
def test_refusal_names_the_field(kubectl: Kubectl, manifest: dict[str, Any], message: str) -> None:
    assert message in kubectl("create", "-f", "-", stdin=[manifest], fails=True)


def test_rights(kubectl: Kubectl) -> None:
    kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=pods")
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=bob")
    as_bob = ("--as", "bob")
    assert kubectl("auth", "can-i", "list", "pods", *as_bob).strip() == "yes"
    assert kubectl.run("auth", "can-i", "delete", "pods", *as_bob).out.startswith("no")
    assert "No resources found" in kubectl.run("get", "pods", *as_bob).err
    denied = kubectl("delete", "pod", "a", *as_bob, fails=True)
    assert 'User "bob" cannot delete resource "pods" in API group ""' in denied
    assert "bob" in kubectl("auth", "whoami", *as_bob)
    assert "pods" in kubectl("auth", "can-i", "--list", *as_bob)


def test_usage(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a")])
    kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
    assert kubectl("top", "pods", "--no-headers").split()[0] == "a"
    assert {line.split()[0] for line in kubectl("top", "nodes", "--no-headers").splitlines()} >= {"node-0", "node-3"}


def test_streams_check_pod_and_permission_first(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("a")])
    kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
    kubectl("create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")
    for arguments in (("attach", "a"), ("port-forward", "a", "8080:80"), ("exec", "a", "--", "true")):
        assert 'User "bob" cannot create resource "pods/' in kubectl("--as=bob", *arguments, fails=True)
        assert 'pods "b" not found' in kubectl(arguments[0], "b", *arguments[2:], fails=True)
