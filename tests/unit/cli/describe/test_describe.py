"""The layout of `describe`, and what it gathers."""

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerStatus,
    Event,
    LimitRange,
    Namespace,
    PersistentVolumeClaim,
    ResourceQuota,
    Toleration,
    Volume,
    VolumeSource,
)
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import ENDPOINT_SLICES, PODS, SERVICES, STORAGE_CLASSES
from pinnace.api.rollouts import REVISION_ANNOTATION
from pinnace.cli.describe import cluster, pods, storage, workloads
from pinnace.cli.describe.text import Detailed, Fields, NotShown, Rows, describe_object, events_table, instant, render
from tests.builders import make_node, make_pod
from tests.workloads import make_deployment, make_replica_set

NOW = 1_000_000_000.0
SERVICE = {
    "type": "NodePort",
    "selector": {"app.kubernetes.io/name": "web", "tier": "x"},
    "ports": [
        {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ],
}
SURROUNDED = {
    "serviceAccountName": "robot",
    "containers": [
        {
            "name": "main",
            "image": "app:1",
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "web"},
                "initialDelaySeconds": 5,
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            "readinessProbe": {
                "exec": {"command": ["cat", "/ready"]},
                "timeoutSeconds": 2,
                "periodSeconds": 3,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            "startupProbe": {
                "tcpSocket": {"port": 80},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 30,
            },
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "all", "optional": True}}],
            "env": [
                {"name": "LINES", "value": "one\ntwo"},
                {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "volumeMounts": [
                {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "db"},
                {"name": "cache", "mountPath": "/cache"},
            ],
        }
    ],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
        {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "share", "nfs": {"server": "nas", "path": "/x"}},
    ],
}
ENDPOINTS = {
    "addressType": "IPv4",
    "ports": [{"name": "http", "port": 8080}],
    "endpoints": [{"addresses": [f"10.0.0.{i}"], "conditions": {"ready": i < 5}} for i in range(1, 6)],
}


def text(fields: Fields) -> list[str]:
    return list(render(fields))


def test_layout() -> None:
    fields: Fields = {
        "Name": "a",
        "Labels": ["app=web", "tier=front"],
        "Nothing": [],
        "State": Detailed("Running", {"Started": "now"}),
        "Nested": {"Deep": {"x": "1"}, "Longer Label": "2"},
        "Empty": {},
        "Table": Rows(("Type", "Status"), [("Ready", "True\n")]),
        "No Rows": Rows(("Type",), []),
    }
    assert text(fields) == [
        "Name:     a",
        "Labels:   app=web",
        "          tier=front",
        "Nothing:  <none>",
        "State:    Running",
        "  Started:  now",
        "Nested:",
        "  Deep:",
        "    x:  1",
        "  Longer Label:  2",
        "Empty:    <none>",
        "Table:",
        "  Type   Status",
        "  ----   ------",
        "  Ready  True",
        "No Rows:  <none>",
    ]


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63)])
def test_an_instant_that_no_calendar_has(seconds: int) -> None:
    assert instant(Time(seconds=seconds))


def event(reason: str, seconds: float, count: int = 1) -> Event:
    made = Event(type="Normal", reason=reason, message=f"{reason}!", count=count, reportingComponent="scheduler")
    made.firstTimestamp.seconds, made.lastTimestamp.seconds = int(seconds) - 60, int(seconds)
    return made


def test_a_pod() -> None:
    pod = (
        make_pod("a").req(cpu="100m", memory="1Gi").label("app", "web").node("n").phase("Running").tolerate("gpu", "x").build()
    )
    pod.metadata.annotations["pinnace.io/last-applied-configuration"] = "{}"
    status = ContainerStatus(name="c0", ready=True, restartCount=2)
    status.state.running.startedAt.seconds = int(NOW)
    status.lastState.terminated.exitCode, status.lastState.terminated.reason = 1, "Error"
    pod.status.containerStatuses.append(status)
    pod.status.conditions.add(type="Ready", status="True")
    events = [event("Started", NOW - 5, count=3), event("Scheduled", NOW - 9)]
    lines = text({**pods.describe_pod(pod), "Events": events_table(events, NOW)})
    words = [line.split() for line in lines]
    for wanted in (
        ["Name:", "a"],
        ["Node:", "n"],
        ["Labels:", "app=web"],
        ["Annotations:", "<none>"],
        ["Status:", "Running"],
        ["State:", "Running"],
        ["Started:", "Sun,", "09", "Sep", "2001", "01:46:40", "+0000"],
        ["Last", "State:", "Terminated"],
        ["Exit", "Code:", "1"],
        ["Restart", "Count:", "2"],
        ["Requests:", "cpu:", "100m"],
        ["memory:", "1Gi"],
        ["Ready", "True"],
        ["Tolerations:", "gpu=x"],
        ["Normal", "Started", "5s", "(x3", "over", "65s)", "scheduler", "Started!"],
    ):
        assert wanted in words, wanted
    assert words.index(["Normal", "Scheduled", "9s", "scheduler", "Scheduled!"]) == len(words) - 2, (
        "events end it, oldest first"
    )


def test_an_argument_of_several_lines_is_shown_in_as_many() -> None:
    lines = text(pods.containers([Container(name="c", args=["-c", "echo a\necho b"])]))
    assert [line.strip() for line in lines[2:5]] == ["Args:    -c", "echo a", "echo b"]


def test_pod_description_contains_pod_fields() -> None:
    lines = text(pods.describe_pod(from_dict(PODS, {"metadata": {"name": "a", "namespace": "default"}, "spec": SURROUNDED})))
    shown = [" ".join(line.split()) for line in lines]
    for wanted in (
        "Service Account: robot",
        "Liveness: http-get http://:web/healthz delay=5s timeout=1s period=10s #success=1 #failure=3",
        "Readiness: exec [cat /ready] delay=0s timeout=2s period=3s #success=1 #failure=3",
        "Startup: tcp-socket :80 delay=0s timeout=1s period=10s #success=1 #failure=30",
        "Environment Variables from: all ConfigMap with prefix 'P_' Optional: true",
        "LINES: one",
        "MODE: <set to the key 'k' of config map 'm'> Optional: false",
        "PASSWORD: <set to the key 'k' in secret 's'> Optional: true",
        "NAME: (v1:metadata.name)",
        "CPU: (limits.cpu)",
        "Mounts: /cache from cache (rw)",
        '/data from data (ro,path="db")',
        "Type: PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        "ClaimName: db",
        "Type: EmptyDir (a temporary directory that shares a pod's lifetime)",
        "SizeLimit: 1Gi",
        "Server: nas",
    ):
        assert wanted in shown, wanted
    assert lines[next(i for i, line in enumerate(lines) if "LINES:" in line) + 1].split() == ["two"]


@pytest.mark.parametrize("kind", [field.name for field in VolumeSource.DESCRIPTOR.fields])
def test_every_kind_of_volume_has_a_form(kind: str) -> None:
    volume = Volume(name="v")
    getattr(volume.volumeSource, kind).SetInParent()
    assert pods.volumes([volume])["v"]["Type"] == pods.KINDS[kind]


def test_a_volume_of_a_kind_that_is_not_modelled() -> None:
    volume = Volume(name="v", volumeSource=VolumeSource.FromString(b"\xc2\x3e\x00"))
    assert pods.volumes([volume, Volume(name="w")]) == {
        "v": {"Type": "<unknown>"},
        "w": {"Type": pods.KINDS["emptyDir"], "Medium": "", "SizeLimit": "<unset>"},
    }


def test_a_namespace_shows_what_is_allowed_in_it() -> None:
    quota, limit_range = ResourceQuota(), LimitRange()
    quota.metadata.name, limit_range.metadata.name = "team", "each"
    quota.status.hard["pods"].string, quota.status.used["pods"].string = "10", "3"
    limit_range.spec.limits.add(type="Container").max["cpu"].string = "2"
    namespace = Namespace()
    namespace.metadata.name, namespace.status.phase = "a", "Active"
    words = [line.split() for line in text(cluster.describe_namespace(namespace, [quota], [limit_range]))]
    for wanted in (["Status:", "Active"], ["team:"], ["pods", "3", "10"], ["Container", "cpu", "-", "2", "-", "-", "-"]):
        assert wanted in words, wanted
    empty = cluster.describe_namespace(namespace, [], NotShown("<not shown: no>"))
    assert text(empty)[-2:] == ["Resource Quotas:    <none>", "Limit Ranges:       <not shown: no>"]


def test_a_pod_that_is_nowhere_yet() -> None:
    pod = make_pod("a").req(cpu="1").condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available").build()
    words = [line.split() for line in text(pods.describe_pod(pod))]
    assert ["Node:", "<none>"] in words
    assert ["PodScheduled", "False", "Unschedulable", "0/3", "nodes", "are", "available"] in words


def test_pending_pod_without_a_leading_scheduler_is_noted() -> None:
    lines = text(pods.describe_pod(make_pod("a").build(), leaderless="scheduler"))
    assert next(line for line in lines if line.startswith("Scheduling:")).endswith(
        'waiting: election "scheduler" has no leader'
    )
    assert not [line for line in text(pods.describe_pod(make_pod("a").build())) if line.startswith("Scheduling:")]


def test_a_pod_whose_scheduler_nothing_runs_says_so() -> None:
    unknown = 'no running scheduler has a profile named "x"; profiles: none'
    lines = text(pods.describe_pod(make_pod("a").build(), unknown=unknown))
    said = next(line for line in lines if line.startswith("Scheduling:"))
    assert said.endswith('waiting: no running scheduler has a profile named "x"; profiles: none')


def test_which_pods_wait_for_the_clusters_schedulers() -> None:
    assert pods.waits_for_scheduler(make_pod("a").build())
    assert not pods.waits_for_scheduler(make_pod("a").node("n").build())
    assert not pods.waits_for_scheduler(make_pod("a").phase("Failed").build())
    theirs, gated = make_pod("a").build(), make_pod("a").build()
    theirs.spec.schedulerName = "cheap"
    gated.spec.schedulingGates.add(name="x")
    assert not pods.waits_for_scheduler(theirs) and not pods.waits_for_scheduler(gated)
    assert pods.waits_for_a_node(theirs) and not pods.waits_for_a_node(gated)


@pytest.mark.parametrize(
    ("toleration", "shown"),
    [
        (Toleration(operator="Exists"), "op=Exists"),
        (Toleration(key="a", operator="Exists", effect="NoSchedule"), "a:NoSchedule op=Exists"),
        (Toleration(key="a", value="b", effect="NoExecute", tolerationSeconds=300), "a=b:NoExecute for 300s"),
    ],
)
def test_tolerations(toleration: Toleration, shown: str) -> None:
    assert pods.toleration(toleration) == shown


def test_a_node() -> None:
    node = (
        make_node("n")
        .capacity(cpu=4, memory="8Gi", pods=10)
        .taint("gpu", "true")
        .unschedulable()
        .condition("Ready", "True")
        .build()
    )
    running = make_pod("a").req(cpu="1", memory="2Gi").container(limits={"cpu": "1"}).created(NOW - 5).node("n").build()
    done = make_pod("b").req(cpu="3").node("n").phase("Succeeded").build()
    lease = Lease()
    lease.spec.holderIdentity = "fleet-0"
    lines = text(cluster.describe_node(node, lease, [running, done], NOW))
    words = [line.split() for line in lines]
    for wanted in (
        ["Taints:", "gpu=true:NoSchedule"],
        ["Unschedulable:", "true"],
        ["Lease:", "held", "by", "fleet-0"],
        ["Non-terminated", "Pods", "(1", "in", "total):"],
        ["default", "a", "2", "(50%)", "1", "(25%)", "2Gi", "(25%)", "0", "(0%)", "5s"],
        ["cpu", "2", "(50%)", "1", "(25%)"],
        ["memory", "2Gi", "(25%)", "0", "(0%)"],
        ["pods", "1", "(10%)", "0", "(0%)"],
    ):
        assert wanted in words, wanted
    lines = text(cluster.describe_node(node, None, [], NOW))
    assert ["Lease:", "<none>", "(no", "heartbeats)"] in [line.split() for line in lines]


def test_limits_of_a_node_are_those_of_sidecars_and_init_containers_too() -> None:
    node = make_node("n").capacity(cpu="4", memory="8Gi", pods=10).build()
    pod = make_pod("a").container(limits={"cpu": "1", "memory": "1Gi"}).init(sidecar=True).init().node("n").build()
    sidecar, first = pod.spec.initContainers
    sidecar.resources.limits["cpu"].string = "1"
    first.resources.limits["memory"].string = "4Gi"
    words = [line.split() for line in text(cluster.describe_node(node, None, [pod], NOW))]
    assert [each[3:] for each in words if each[:1] in (["cpu"], ["memory"])] == [["2", "(50%)"], ["4Gi", "(50%)"]]


def test_any_other_object() -> None:
    lease = Lease()
    lease.metadata.name, lease.metadata.namespace = "n", "kube-node-lease"
    lease.spec.holderIdentity, lease.spec.leaseDurationSeconds = "fleet-0", 40
    lines = text(describe_object(lease))
    assert lines[:2] == ["Name:               n", "Namespace:          kube-node-lease"]
    assert "  Holder Identity:         fleet-0" in lines and "  Lease Duration Seconds:  40" in lines


def test_keys_that_are_no_fields_are_shown_as_they_are() -> None:
    claim = PersistentVolumeClaim()
    claim.spec.selector.matchLabels.update({"app.kubernetes.io/name": "db", "ssdTier": "a"})
    claim.spec.resources.requests["example.com/fastDisk"].string = "1"
    claim.spec.selector.matchExpressions.add(key="diskType", operator="Exists")
    words = [line.split() for line in text(describe_object(claim))]
    for wanted in (
        ["Match", "Labels:", "app.kubernetes.io/name=db,ssdTier=a"],
        ["Requests:", "example.com/fastDisk=1"],
        ["Key:", "diskType"],
    ):
        assert wanted in words, wanted


def test_a_service_says_where_its_ports_are_reached() -> None:
    service = from_dict(SERVICES, {"metadata": {"name": "web", "namespace": "default"}, "spec": SERVICE})
    slices = [from_dict(ENDPOINT_SLICES, ENDPOINTS)]
    words = [line.split() for line in text(workloads.describe_service(service, slices))]
    for wanted in (
        ["Selector:", "app.kubernetes.io/name=web,tier=x"],
        ["Type:", "NodePort"],
        ["http", "80/TCP", "web/TCP", "30080/TCP"],
        ["dns", "53/UDP", "53/UDP", "<none>"],
        ["http", "10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080", "+", "1", "more..."],
        ["dns", "<none>"],
    ):
        assert wanted in words, wanted
    assert workloads.describe_service(service, NotShown("<not shown: no>"))["Endpoints"] == "<not shown: no>"


def test_description_of_a_service_shows_endpoints_that_are_not_ready() -> None:
    service = from_dict(SERVICES, {"metadata": {"name": "web", "namespace": "default"}, "spec": SERVICE})
    ready, starting = ({"addresses": [f"10.0.0.{i}"], "conditions": {"ready": i == 1}} for i in (1, 2))
    one = {"addressType": "IPv4", "ports": [{"name": "http", "port": 8080}]}
    shown = workloads.describe_service(service, [from_dict(ENDPOINT_SLICES, {**one, "endpoints": [ready, starting]})])
    tables = [shown[each] for each in ("Endpoints", "Not Ready Endpoints")]
    assert [each.rows[0] for each in tables if isinstance(each, Rows)] == [
        ("http", "10.0.0.1:8080"),
        ("http", "10.0.0.2:8080"),
    ]
    assert "Not Ready Endpoints" not in workloads.describe_service(
        service, [from_dict(ENDPOINT_SLICES, {**one, "endpoints": [ready]})]
    )


def test_a_storage_class_in_kubectls_form() -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    data = {"provisioner": "p", "parameters": {"iopsPerGB": "10", "type": "io1"}, "allowedTopologies": terms}
    assert text(storage.describe_storage_class(from_dict(STORAGE_CLASSES, {"metadata": {"name": "fast"}} | data))) == [
        "Name:                  fast",
        "IsDefaultClass:        No",
        "Annotations:           <none>",
        "Provisioner:           p",
        "Parameters:            iopsPerGB=10,type=io1",
        "AllowVolumeExpansion:  <unset>",
        "MountOptions:          <none>",
        "ReclaimPolicy:         Delete",
        "VolumeBindingMode:     Immediate",
        "AllowedTopologies:",
        "  Term 0:  zone in [a, b]",
    ]


def test_a_deployment_names_its_replica_sets_old_and_new() -> None:
    web, sets = make_deployment("web", replicas=3), []
    for number, image in enumerate(("app:0", "app:1"), 1):
        each = make_replica_set(f"web-{number}", replicas=number)
        each.metadata.ownerReferences.add(controller=True, uid=web.metadata.uid)
        each.metadata.annotations[REVISION_ANNOTATION] = str(number)
        each.spec.template.CopyFrom(web.spec.template)
        each.spec.template.spec.containers[0].image = image
        sets.append(each)
    fields = workloads.describe_deployment(web, [*sets, make_replica_set("other")])
    assert fields["OldReplicaSets"] == "web-1 (0/1 replicas created)"
    assert fields["NewReplicaSet"] == "web-2 (0/2 replicas created)"
    assert workloads.describe_deployment(web, [])["NewReplicaSet"] == "<none>"


def test_a_disruption_budget_says_how_many_may_go() -> None:
    budget = PodDisruptionBudget()
    budget.metadata.name, budget.spec.minAvailable.intVal = "db", 2
    budget.spec.selector.matchLabels["app"] = "db"
    budget.status.disruptionsAllowed, budget.status.currentHealthy = 1, 3
    words = [line.split() for line in text(workloads.describe_disruption_budget(budget))]
    for wanted in (["Selector:", "app=db"], ["Min", "available:", "2"], ["Allowed", "disruptions:", "1"], ["Current:", "3"]):
        assert wanted in words, wanted
