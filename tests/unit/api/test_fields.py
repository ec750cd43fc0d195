import re
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Event, Namespace
from pinnace.api.fields import FIELDS
from pinnace.api.resources import ALL, EVENTS, NAMESPACES, NODES, PODS, Resource
from tests.builders import make_node, make_pod

PROTO = Path(__file__).parents[3] / "proto" / "pinnace" / "api"


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_the_api_documents_just_these_fields(resource: Resource) -> None:  # type: ignore[type-arg]
    text = (PROTO / f"{resource.plural}.proto").read_text().replace("\n//", "")
    listed = re.search(r"Field selectors: ([^.]+(?:\.\w[^.]*)*)\.", text)
    assert listed is not None, "the service's comment lists its field selectors"
    assert sorted(re.split(r",\s*", listed[1])) == sorted(FIELDS[resource.plural])


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_field_can_be_read_from_an_empty_object(resource: Resource) -> None:  # type: ignore[type-arg]
    for name, read in FIELDS[resource.plural].items():
        assert read(resource.message()) == ("false" if name == "spec.unschedulable" else "")


def test_pods() -> None:
    pod = make_pod("a", "ns").node("n").phase("Running").scheduler("mine").build()
    assert {name: read(pod) for name, read in FIELDS[PODS.plural].items()} == {
        "metadata.name": "a",
        "metadata.namespace": "ns",
        "spec.nodeName": "n",
        "spec.schedulerName": "mine",
        "status.phase": "Running",
    }


def test_nodes_that_take_no_pods() -> None:
    assert FIELDS[NODES.plural]["spec.unschedulable"](make_node("n").unschedulable().build()) == "true"


def test_namespaces() -> None:
    namespace = Namespace()
    namespace.status.phase = "Terminating"
    assert FIELDS[NAMESPACES.plural]["status.phase"](namespace) == "Terminating"


def test_events() -> None:
    event = Event(reason="Started", type="Normal")
    event.involvedObject.kind, event.involvedObject.name = "Pod", "a"
    event.involvedObject.namespace, event.involvedObject.uid = "ns", "u"
    read = {name: read(event) for name, read in FIELDS[EVENTS.plural].items() if not name.startswith("metadata")}
    assert read == {
        "involvedObject.kind": "Pod",
        "involvedObject.name": "a",
        "involvedObject.namespace": "ns",
        "involvedObject.uid": "u",
        "reason": "Started",
        "type": "Normal",
    }
