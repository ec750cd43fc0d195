"""What a pod that says little becomes."""

from typing import Any

import pytest

from pinnace.api import wire
from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import NOT_READY_TAINT, UNREACHABLE_TAINT
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategies.pods import DefaultTolerationSeconds, PodStrategy
from tests.unit.registry.objects import Data, copy, pod

STAYS: list[Data] = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def defaulted(obj: Pod) -> Data:
    STRATEGIES["pods"].prepare_create(obj)
    return to_dict(obj)


def container_of(given: Data, **spec: Any) -> Data:
    result: Data = defaulted(pod(given, **spec))["spec"]["containers"][0]
    return result


def test_pod_that_says_nothing() -> None:
    assert defaulted(pod()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "image": "app:1",
                    "imagePullPolicy": "IfNotPresent",
                    "name": "c",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "tolerations": STAYS,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def test_explicit_values_are_kept() -> None:
    given: Data = {
        "dnsPolicy": "Default",
        "enableServiceLinks": False,
        "preemptionPolicy": "Never",
        "restartPolicy": "Never",
        "schedulerName": "mine",
        "securityContext": {"runAsUser": 0},
        "terminationGracePeriodSeconds": 0,
    }
    spec = defaulted(pod(**given))["spec"]
    assert {name: spec[name] for name in given} == given


def test_defaults_are_set_once() -> None:
    obj = pod({"resources": {"limits": {"cpu": 1}}, "ports": [{"containerPort": 1}]}, volumes=[{"name": "v"}])
    STRATEGIES["pods"].prepare_create(obj)
    again = copy(obj)
    STRATEGIES["pods"].prepare_create(again)
    assert again == obj


def test_client_sets_no_status() -> None:
    obj = pod()
    obj.status.phase, obj.status.podIP = "Running", "10.0.0.1"
    assert defaulted(obj)["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "Always"),
        ("", "Always"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert container_of({"image": image})["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("limits", "requests", "becomes"),
    [
        ({"cpu": "1"}, {}, {"cpu": "1"}),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m"}, {"cpu": "500m", "memory": "1Gi"}),
        ({}, {"cpu": "1"}, {"cpu": "1"}),
    ],
)
def test_limits_are_requests_too(limits: Data, requests: Data, becomes: Data) -> None:
    resources = {"limits": limits, "requests": requests}
    assert container_of({"resources": resources})["resources"]["requests"] == becomes
    init = defaulted(pod(initContainers=[{"name": "i", "image": "i:1", "resources": resources}]))["spec"]["initContainers"][0]
    assert init["resources"]["requests"] == becomes


def test_ports_are_tcp_and_of_the_host_when_the_network_is() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "hostPort": 5353}]
    assert container_of({"ports": ports})["ports"] == [ports[0] | {"protocol": "TCP"}, ports[1]]
    assert container_of({"ports": ports}, hostNetwork=True)["ports"][0]["hostPort"] == 80


def test_probes_and_hooks() -> None:
    container = container_of(
        {
            "livenessProbe": {"httpGet": {"port": 80}},
            "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 9},
            "startupProbe": {"exec": {"command": ["true"]}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80, "scheme": "HTTPS"}}},
        }
    )
    counts = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **counts}
    assert container["readinessProbe"] == {"tcpSocket": {"port": 80}, **counts, "periodSeconds": 1, "failureThreshold": 9}
    assert container["startupProbe"] == {"exec": {"command": ["true"]}, **counts}
    assert container["lifecycle"]["preStop"]["httpGet"] == {"path": "/", "port": 80, "scheme": "HTTPS"}


def test_field_references_are_of_v1() -> None:
    env = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "b"}]
    assert container_of({"env": env})["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 0o644}}),
        ({"configMap": {"name": "c", "defaultMode": 0}}, {"configMap": {"name": "c", "defaultMode": 0}}),
        ({"downwardAPI": {}}, {"downwardAPI": {"defaultMode": 0o644}}),
        ({"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "defaultMode": 0o644,
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                }
            },
        ),
    ],
)
def test_volumes(given: Data, becomes: Data) -> None:
    assert defaulted(pod(volumes=[{"name": "v", **given}]))["spec"]["volumes"] == [{"name": "v", **becomes}]


def test_volume_of_a_kind_that_is_not_modelled_is_left_alone() -> None:
    obj = pod(volumes=[{"name": "v"}])
    obj.spec.volumes[0].volumeSource.MergeFromString(wire.field(5, b""))
    STRATEGIES["pods"].prepare_create(obj)
    assert not obj.spec.volumes[0].volumeSource.HasField("emptyDir")
    assert STRATEGIES["pods"].validate(obj) == []


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], STAYS),
        ([{"key": "gpu", "operator": "Exists"}], STAYS),
        ([{"key": STAYS[0]["key"], "operator": "Exists", "effect": "NoExecute"}], STAYS[1:]),
        ([{"key": STAYS[1]["key"], "operator": "Exists"}], STAYS[:1]),
        ([{"key": STAYS[0]["key"], "operator": "Exists", "effect": "NoSchedule"}], STAYS),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], STAYS),
    ],
)
def test_pod_stays_five_minutes_on_a_node_that_is_lost(given: list[Data], added: list[Data]) -> None:
    assert defaulted(pod(tolerations=given))["spec"]["tolerations"] == [*given, *added]


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 1}}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "0"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{}, {}], "BestEffort"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": "2", "memory": "2Gi"}}], "Guaranteed"),
    ],
)
def test_quality_of_service(containers: list[Data], qos: str) -> None:
    given = [{"name": f"c{i}", "image": "a:1", "resources": resources} for i, resources in enumerate(containers)]
    assert defaulted(pod(containers=given))["status"]["qosClass"] == qos
    if len(given) > 1:
        assert defaulted(pod(containers=given[:1], initContainers=given[1:]))["status"]["qosClass"] == qos


def test_quantity_that_is_none_does_not_stop_the_defaults() -> None:
    obj = pod()
    obj.spec.containers[0].resources.limits["cpu"].string = "lots"
    assert defaulted(obj)["status"]["qosClass"] == "BestEffort"


def test_gated_pod_says_so() -> None:
    (condition,) = defaulted(pod(schedulingGates=[{"name": "g"}]))["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


def test_administrator_says_how_long_pods_stay_on_a_lost_node() -> None:
    strategy, new = PodStrategy(DefaultTolerationSeconds(not_ready=7, unreachable=0)), pod()
    strategy.prepare_create(new)
    assert [(toleration.key, toleration.tolerationSeconds) for toleration in new.spec.tolerations] == [
        (NOT_READY_TAINT, 7),
        (UNREACHABLE_TAINT, 0),
    ]
    old = copy(new)
    del new.spec.tolerations[:]
    strategy.prepare_update(new, old)
    assert new == old


def test_fence_annotation_of_a_new_pod_is_removed() -> None:
    """As a copy of one that was bound does."""
    new = pod(metadata={"annotations": {"pinnace.io/fence": "scheduler/42", "mine": "stays"}})
    assert defaulted(new)["metadata"]["annotations"] == {"mine": "stays"}
