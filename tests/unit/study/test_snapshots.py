"""Clusters as traces: snapshots, imports with pseudonyms, and durations from stages."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.quantity import amounts
from pinnace.scheduler.config import parse_configuration
from pinnace.snapshot.documents import SnapshotError
from pinnace.snapshot.pseudonyms import Pseudonyms, import_objects
from pinnace.study.importing import write_import
from pinnace.study.plan import read_study
from pinnace.study.recording import Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.snapshots import read_snapshot, snapshot_trace, with_durations
from pinnace.study.trace import Shape, Trace, TraceError, read_csv

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
SECRETS = ("acme", "payments", "eu-dc1", "registry", "team-x", "vault", "pool-a", "critical-acme")
"""Parts of names that only the owner of the cluster knows."""


def node(name: str, **more: Any) -> Object:
    labels = {"kubernetes.io/hostname": name, ZONE: "eu-dc1-a", "acme.example/pool": "pool-a", "kubernetes.io/arch": "arm64"}
    labels["node-role.kubernetes.io/team-x"] = ""
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "acme.example/fpga": "2"} | more.pop("allocatable", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | more.pop("labels", {}), "annotations": {"vault": "x"}},
        "spec": more,
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "addresses": [{"type": "InternalIP", "address": "10.9.8.7"}],
        },
    }


def pod(name: str, created: str = "2026-05-04T10:00:00Z", owner: str = "", **more: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "payments", "labels": {"app": "acme-web"}, "creationTimestamp": created}
    if owner:
        kind, _, owner_name = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": "u", "controller": True}
        metadata["ownerReferences"] = [reference]
    requests = more.pop("requests", {"cpu": "1"})
    container = {"name": "acme", "image": "registry.acme/x:1", "resources": {"requests": requests}, "env": [{"name": "vault"}]}
    status = more.pop("status", {"phase": "Running"})
    metadata |= more.pop("metadata", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **more},
        "status": status,
    }


def play(trace: Trace) -> dict[str, str]:
    """Return the nodes of the tasks that were placed."""
    configuration = parse_configuration(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: s, plugins: {multiPoint: {enabled: [{name: GpuShare}]}}}]\n"
    )
    recorder = Recorder(trace, {}, inflated=False)
    Simulation(configuration, trace, recorder).run()
    return {str(row[1]): str(row[3]) for row in recorder.decisions if row[2] == "placed"}


def trace_for_seed(*objects: Object) -> Trace:
    return snapshot_trace("t", objects, "", "s.json")


def test_tasks_have_times_owners_and_durations_of_pods() -> None:
    finished = {
        "phase": "Succeeded",
        "startTime": "2026-05-04T10:00:10Z",
        "containerStatuses": [
            {
                "name": "acme",
                "image": "",
                "imageID": "",
                "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-05-04T10:01:10Z"}},
            }
        ],
    }
    annotated = pod("b", "2026-05-04T10:00:05Z", metadata={"annotations": {"pinnace.io/run-seconds": "30"}})
    trace = trace_for_seed(
        node("n"), annotated, pod("a", owner="ReplicaSet/web", status=finished), pod("c", "2026-05-04T10:00:07Z")
    )
    facts = [(task.name, task.arrival, task.duration, task.group) for task in trace.tasks]
    assert facts == [("a.payments", 0, 60, "web"), ("b.payments", 5, 30, ""), ("c.payments", 7, math.inf, "")]
    assert trace.tasks[0].shape == Shape(1000)


def test_pods_of_daemon_sets_reduce_their_nodes() -> None:
    agent = pod("agent", owner="DaemonSet/agent", nodeName="n", requests={"cpu": "500m", "memory": "1Gi"})
    trace = trace_for_seed(node("n"), agent, pod("a"))
    assert [task.name for task in trace.tasks] == ["a.payments"]
    allocatable = amounts(trace.machines[0].node().status.allocatable)
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == (7500, 15 << 30, 109)


def test_labels_taints_affinities_and_anti_affinity_decide() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    far = [{"labelSelector": {"matchLabels": {"app": "acme-web"}}, "topologyKey": "kubernetes.io/hostname"}]
    spread = {"podAntiAffinity": {required: far}}
    tainted = node("tainted", taints=[{"key": "acme.example/only", "value": "team-x", "effect": "NoSchedule"}])
    pool = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "acme.example/pool", "operator": "In", "values": ["pool-b"]}]}]}}}  # fmt: skip
    tolerating = pod(
        "tolerating",
        tolerations=[{"key": "acme.example/only", "value": "team-x"}],
        nodeSelector={"kubernetes.io/hostname": "tainted"},
    )
    objects = [
        *(node("n1"), node("n2", labels={"acme.example/pool": "pool-b"}), tainted, tolerating),
        *(pod("first", affinity=spread), pod("second", "2026-05-04T10:00:01Z", affinity=spread)),
        pod("third", "2026-05-04T10:00:02Z", affinity=spread),
        pod("pool", "2026-05-04T09:00:00Z", affinity=pool, metadata={"labels": {}}),
    ]
    plain = play(trace_for_seed(*objects))
    assert plain["tolerating.payments"] == "tainted" and plain["pool.payments"] == "n2"
    assert {plain["first.payments"], plain["second.payments"]} == {"n1", "n2"} and "third.payments" not in plain
    aliases = Pseudonyms("seed", ["n1", "n2", "tainted"], ["payments"], ["first", "second", "third", "pool", "tolerating"])
    hidden = play(trace_for_seed(*import_objects(objects, "seed")))
    task = {
        name: f"{aliases.alias(name)}.{aliases.alias('payments')}"
        for name in ("first", "second", "third", "pool", "tolerating")
    }
    assert hidden[task["tolerating"]] == aliases.alias("tainted") and hidden[task["pool"]] == aliases.alias("n2")
    assert {hidden[task["first"]], hidden[task["second"]]} == {aliases.alias("n1"), aliases.alias("n2")}
    assert task["third"] not in hidden


def test_device_plugin_gpus_become_devices() -> None:
    gpus = node("g", allocatable={"nvidia.com/gpu": "4"}, labels={"nvidia.com/gpu.product": "T4"})
    trace = trace_for_seed(
        gpus, node("n"), pod("a", requests={"cpu": "1", "nvidia.com/gpu": "3"}), pod("b", requests={"nvidia.com/gpu": "2"})
    )
    assert (trace.machines[0].gpus, trace.machines[0].model, trace.capacity) == (4, "T4", 4000)
    assert [task.shape for task in trace.tasks] == [Shape(1000, 0, 3, 1000), Shape(0, 0, 2, 1000)]
    assert play(trace) == {"a.payments": "g"}


def test_import_has_no_names_and_repeats_with_its_seed() -> None:
    term = {
        "namespaces": ["payments"],
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["acme-web"]}]},
    }
    weighted = [{"weight": 5, "podAffinityTerm": {**term, "topologyKey": "acme.example/rack"}}]
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["acme.example/rev"],
    }
    spec = {
        "nodeName": "acme-node-1",
        "serviceAccountName": "vault",
        "priorityClassName": "critical-acme",
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}},
        "topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "acme-web"}}}],
        "volumes": [{"name": "vault"}],
        "requests": {"cpu": "1500m", "acme.example/fpga": "1"},
    }
    objects = [
        node("acme-node-1", taints=[{"key": "acme.example/t", "value": "team-x", "effect": "NoExecute"}]),
        pod("payments-0", "2026-05-04T10:00:00Z", owner="StatefulSet/payments", **spec),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vault"}},
    ]
    imported = import_objects(objects, "seed")
    text = json.dumps(imported)
    assert not [word for word in (*SECRETS, "10.9.8.7", "2026") if word in text]
    assert imported == import_objects(objects, "seed") != import_objects(objects, "other")
    made_node, made_pod = imported
    assert (
        made_pod["spec"]["nodeName"]
        == made_node["metadata"]["name"]
        == made_node["metadata"]["labels"]["kubernetes.io/hostname"]
    )
    assert made_node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64" and ZONE in made_node["metadata"]["labels"]
    (fpga,) = [name for name in made_pod["spec"]["containers"][0]["resources"]["requests"] if "/" in name]
    assert made_node["status"]["allocatable"][fpga] == "2"
    assert made_pod["metadata"]["creationTimestamp"] == "2000-01-01T00:00:00Z"
    assert snapshot_trace("t", imported, "", "s").tasks[0].shape == Shape(1500)


def test_import_writes_a_study_that_can_be_read(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), pod("a"), pod("b", "2026-05-04T10:00:30Z")]
    trace, files = write_import(objects, "seed", tmp_path / "out")
    study = read_study(tmp_path / "out" / "study.yaml")
    assert [plan.name for plan in study.traces] == ["imported", "inflated"] and study.profiles == ["default", "pack"]
    assert study.traces[0].load().tasks == trace.tasks
    as_csv = read_csv("csv", tmp_path / "out" / "nodes.csv", tmp_path / "out" / "tasks.csv")
    assert [(task.name, task.shape) for task in as_csv.tasks] == [(task.name, task.shape) for task in trace.tasks]
    with pytest.raises(SnapshotError, match="already exists; nothing was written"):
        write_import(objects, "seed", tmp_path / "out")
    assert len(files) == 5
    idle = write_import([node("n"), pod("a", requests={})], "seed", tmp_path / "idle")
    assert idle and [plan.name for plan in read_study(tmp_path / "idle" / "study.yaml").traces] == ["imported"]


STAGE = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: exit}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}]}
  delay: {durationMilliseconds: 40000, jitterDurationMilliseconds: 50000}
  next: {exit: {code: 0}}
"""


def test_stages_give_durations_to_tasks_without_one(tmp_path: Path) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text(STAGE)
    annotated = pod("x", owner="Job/j", metadata={"annotations": {"pinnace.io/run-seconds": "7"}})
    base = trace_for_seed(node("n"), pod("job", owner="Job/j"), pod("other", owner="ReplicaSet/r"), annotated)
    timed = with_durations(base, str(stages))
    durations = {task.name: task.duration for task in timed.tasks}
    assert 40 <= durations["job.payments"] <= 50 and durations["other.payments"] == math.inf and durations["x.payments"] == 7
    assert timed == with_durations(base, str(stages)) and timed.digest != base.digest


def test_unsupported_stage_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STAGE.replace("next: {exit: {code: 0}}", "next: {statusTemplate: 'phase: Succeeded'}"))
    with pytest.raises(TraceError, match=r"s\.yaml:8: spec\.next\.statusTemplate"):
        with_durations(trace_for_seed(node("n"), pod("a")), str(tmp_path / "s.yaml"))


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([pod("a")], "has no nodes"),
        ([node("n")], "has no pods"),
        ([node("n"), pod("a"), pod("a")], "two pods have the name a.payments"),
        ([node("n"), pod("a", requests={"cpu": "much"})], "Pod a: .*much"),
        ([node("n"), pod("a", priority="high")], "Pod a: spec.priority"),
        ([node("n", allocatable={"cpu": "?"}), pod("a")], "Node n: "),
        ([node("n"), pod("a", requests={"pinnace.io/gpu-milli": "1500"})], "Pod a: pinnace.io/gpu-milli must be"),
    ],
    ids=["no nodes", "no pods", "twice", "quantity", "type", "node", "gpus"],
)
def test_unusable_snapshot_is_an_error_that_names_the_object(objects: list[Object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text("".join(f"{json.dumps(item)}\n" for item in objects))
    with pytest.raises(TraceError, match=f"s.json: .*{message}"):
        read_snapshot("t", file)


def test_manifest_keeps_the_spec_of_the_pod() -> None:
    made: Pod = trace_for_seed(node("n"), pod("a", nodeName="n", tolerations=[{"operator": "Exists"}])).tasks[0].pod("mine")
    assert (made.metadata.name, made.metadata.namespace, made.spec.schedulerName) == ("a.payments", "payments", "mine")
    assert not made.spec.nodeName and len(made.spec.tolerations) == 1 and made.status.phase == "Pending"
