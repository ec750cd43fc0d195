import re
from pathlib import Path

import pytest

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Event, Namespace
from pinnace.api.resources import ALL, EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, Resource
from pinnace.api.selectors import FIELDS
from tests.builders import make_node, make_pod

_EMPTY = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.replicas": "0", "status.successful": "0"}
PROTO = Path(__file__).parents[3] / "proto" / "pinnace" / "api"


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_documented_field_selectors_match(resource: Resource) -> None:
    text = (PROTO / f"{resource.plural}.proto").read_text().replace("\n//", "")
    listed = re.search(r"Field selectors: ([^.]+(?:\.\w[^.]*)*)\.", text)
    assert listed is not None, "the comment of the service lists no field selectors"
    assert sorted(re.split(r",\s*", listed[1])) == sorted(FIELDS[resource.plural])


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_field_can_be_read_from_an_empty_object(resource: Resource) -> None:
    for name, read in FIELDS[resource.plural].items():
        assert read(resource.message()) == _EMPTY.get(name, "")


def test_fields_of_pods() -> None:
    pod = make_pod("a", "ns").node("n").phase("Running").scheduler("mine").restart_policy("Never").nominated("m").build()
    pod.spec.hostNetwork, pod.spec.serviceAccountName, pod.status.podIP = True, "robot", "10.0.0.7"
    assert {name: read(pod) for name, read in FIELDS[PODS.plural].items()} == {
        "metadata.name": "a",
        "metadata.namespace": "ns",
        "spec.hostNetwork": "true",
        "spec.nodeName": "n",
        "spec.restartPolicy": "Never",
        "spec.schedulerName": "mine",
        "spec.serviceAccountName": "robot",
        "status.nominatedNodeName": "m",
        "status.phase": "Running",
        "status.podIP": "10.0.0.7",
    }


def test_field_of_unschedulable_nodes() -> None:
    assert FIELDS[NODES.plural]["spec.unschedulable"](make_node("n").unschedulable().build()) == "true"


def test_fields_of_namespaces() -> None:
    namespace = Namespace()
    namespace.status.phase = "Terminating"
    assert FIELDS[NAMESPACES.plural]["status.phase"](namespace) == "Terminating"


def test_fields_of_events() -> None:
    event = Event(reason="Started", type="Normal", reportingComponent="kubelet")
    involved = event.involvedObject
    involved.apiVersion, involved.kind, involved.name, involved.namespace, involved.uid = "v1", "Pod", "a", "ns", "u"
    involved.fieldPath, involved.resourceVersion = "spec.containers{app}", "7"
    read = {name: read(event) for name, read in FIELDS[EVENTS.plural].items() if not name.startswith("metadata")}
    assert read == {
        "involvedObject.apiVersion": "v1",
        "involvedObject.fieldPath": "spec.containers{app}",
        "involvedObject.kind": "Pod",
        "involvedObject.name": "a",
        "involvedObject.namespace": "ns",
        "involvedObject.resourceVersion": "7",
        "involvedObject.uid": "u",
        "reason": "Started",
        "reportingComponent": "kubelet",
        "source": "kubelet",
        "type": "Normal",
    }
    event.source.component = "default-scheduler"
    assert FIELDS[EVENTS.plural]["source"](event) == "default-scheduler"


def test_fields_of_workloads() -> None:
    replica_set, job = ReplicaSet(), Job()
    replica_set.status.replicas, job.status.succeeded = 3, 2
    assert FIELDS[REPLICA_SETS.plural]["status.replicas"](replica_set) == "3"
    assert FIELDS[JOBS.plural]["status.successful"](job) == "2"
