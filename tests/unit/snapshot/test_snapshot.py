"""Snapshots: the choice of objects, the file, the order of a restore, and the remapping of owners."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinnace.snapshot import restore
from pinnace.snapshot.api import ApiError
from pinnace.snapshot.documents import SnapshotError, read_objects, writing
from pinnace.snapshot.restore import Existing, new_object, restore_objects
from pinnace.snapshot.save import Selection, Summary, save_objects
from tests.unit.snapshot.server import FakeServer

Object = dict[str, Any]


@pytest.fixture(autouse=True)
def immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no controllers to wait for."""
    monkeypatch.setattr(restore, "SETTLING", 0.0)


def thing(kind: str, name: str, namespace: str = "team", owner: Object | None = None, **more: Any) -> Object:
    version = {"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "Job": "batch/v1"}.get(kind, "v1")
    metadata: Object = {"name": name, "uid": f"old-{name}", "resourceVersion": "7", "managedFields": [{}]}
    if kind not in ("Node", "Namespace"):
        metadata["namespace"] = namespace
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        metadata["ownerReferences"] = [{**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": version, "kind": kind, "metadata": metadata | more.pop("metadata", {}), **more}


def web() -> list[Object]:
    """A Deployment with its ReplicaSet and a Pod, in the order of a list."""
    deployment = thing("Deployment", "web", spec={})
    replicas = thing("ReplicaSet", "web-1", owner=deployment)
    pod = thing("Pod", "web-1-a", owner=replicas, spec={"nodeName": "n"}, status={"phase": "Running"})
    return [deployment, replicas, pod]


def path_of(kind: str, name: str) -> str:
    group = "/apis/apps/v1" if kind in ("deployments", "replicasets") else "/apis/batch/v1" if kind == "jobs" else "/api/v1"
    return f"{group}/namespaces/team/{kind}/{name}"


def fill(server: FakeServer, *objects: Object) -> None:
    plurals = {
        "Namespace": "namespaces",
        "Node": "nodes",
        "Pod": "pods",
        "Deployment": "deployments",
        "Event": "events",
        "ReplicaSet": "replicasets",
        "ConfigMap": "configmaps",
        "ServiceAccount": "serviceaccounts",
        "Job": "jobs",
    }
    for item in objects:
        group = "/api/v1" if item["apiVersion"] == "v1" else f"/apis/{item['apiVersion']}"
        namespace = item["metadata"].get("namespace")
        server.put(f"{group}{f'/namespaces/{namespace}' if namespace else ''}/{plurals[item['kind']]}", item)


def save(server: FakeServer, **selection: Any) -> tuple[list[Object], Summary]:
    saved: list[Object] = []
    summary = save_objects(server.api, Selection(**selection), saved.append)
    return saved, summary


def names(objects: list[Object]) -> list[str]:
    return sorted(f"{item['kind']}/{item['metadata']['name']}" for item in objects)


def test_saved_objects_and_reasons_against_others() -> None:
    server = FakeServer()
    leaving = thing("Pod", "leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    fill(server, thing("Namespace", "team"), thing("ConfigMap", "kube-root-ca.crt"), leaving, *web())
    saved, summary = save(server)
    assert names(saved) == ["Deployment/web", "Namespace/team", "Pod/web-1-a", "ReplicaSet/web-1"]
    assert summary.omitted == {
        ("namespaces", "each cluster has them"): 2,
        ("serviceaccounts", "each namespace has one"): 3,
        ("configmaps", "each namespace has one"): 1,
        ("pods", "they are being deleted"): 1,
        ("events", "they cannot be created"): 0,
    }
    (pod,) = [item for item in saved if item["kind"] == "Pod"]
    assert {"uid", "ownerReferences"} <= pod["metadata"].keys() and not {"resourceVersion", "managedFields"} & pod[
        "metadata"
    ].keys()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"kinds": ["pod", "deployments.apps"]}, ["Deployment/web", "Pod/a", "Pod/b", "Pod/web-1-a"]),
        ({"namespaces": ["other"]}, ["Namespace/other", "Pod/b"]),
        ({"selector": "app=x"}, ["Pod/a"]),
    ],
    ids=["kinds", "namespace", "labels"],
)
def test_selection(selection: Any, expected: list[str]) -> None:
    server = FakeServer()
    labelled = thing("Pod", "a", metadata={"labels": {"app": "x"}})
    fill(server, thing("Namespace", "team"), thing("Namespace", "other"), labelled, thing("Pod", "b", "other"), *web())
    assert names(save(server, **selection)[0]) == expected
    with pytest.raises(SnapshotError, match='doesn\'t have a resource type "nix"'):
        save(server, kinds=["nix"])


def test_list_continues_after_its_page_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.snapshot.api.PAGE", 2)
    server = FakeServer()
    fill(server, *(thing("Pod", f"p{number}") for number in range(5)))
    expected = [f"p{number}" for number in range(5)]
    (kind,) = [kind for kind in server.api.discover_kinds() if kind.resource == "pods"]
    assert [item["metadata"]["name"] for item in server.api.list_objects(kind)] == expected
    pods, names_read = server.api.list_objects(kind), []
    for item in pods:
        names_read.append(item["metadata"]["name"])
        if len(names_read) == 2:
            server.refuse["GET", "/api/v1/pods"] = [(410, "Expired")]
    assert names_read == expected


def test_dependents_precede_owners_and_get_their_new_uids() -> None:
    server = FakeServer()
    objects = [*web(), thing("Namespace", "team"), thing("Node", "n", status={"allocatable": {"cpu": "3"}, "phase": "x"})]
    result = restore_objects(server.api, objects)
    assert result.failures == [] and result.created.total() == 5
    order = [name for name in server.created if not name.startswith("ServiceAccount")]
    assert order == ["Namespace/team", "Node/n", "Pod/web-1-a", "ReplicaSet/web-1", "Deployment/web"]
    pod, replicas, deployment = (
        server.objects[path_of(kind, name)]["metadata"]
        for kind, name in (("pods", "web-1-a"), ("replicasets", "web-1"), ("deployments", "web"))
    )
    assert pod["ownerReferences"][0]["uid"] == replicas["uid"] != "old-web-1"
    assert replicas["ownerReferences"][0]["uid"] == deployment["uid"]
    assert server.objects["/api/v1/nodes/n"]["status"] == {"allocatable": {"cpu": "3"}}, "of the status, only the input"
    assert "status" not in server.objects[path_of("pods", "web-1-a")]


def test_owner_outside_of_the_snapshot_is_omitted() -> None:
    """The garbage collector would delete the object."""
    server = FakeServer()
    fill(server, thing("Namespace", "team"))
    result = restore_objects(server.api, [web()[2]])
    assert "ownerReferences" not in server.objects[path_of("pods", "web-1-a")]["metadata"]
    assert result.omitted == {("ownerReferences of Pod", "the owners are not in the snapshot"): 1}


def test_end_of_pods_and_jobs_is_restored() -> None:
    server = FakeServer()
    fill(server, thing("Namespace", "team"))
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    job = thing("Job", "j", spec={"selector": {"matchLabels": {"u": "old-j"}}, "suspend": False}, status=complete)
    tracked = {"finalizers": ["batch.kubernetes.io/job-tracking", "mine"]}
    pod = thing("Pod", "j-1", owner=job, spec={}, status={"phase": "Succeeded"}, metadata=tracked)
    assert restore_objects(server.api, [job, pod]).failures == []
    stored = server.objects[path_of("jobs", "j")]
    assert stored["status"] == complete and stored["spec"] == {
        "selector": {"matchLabels": {"u": "old-j"}},
        "manualSelector": True,
    }
    made = server.objects[path_of("pods", "j-1")]
    assert made["status"] == {"phase": "Succeeded"} and made["metadata"]["finalizers"] == ["mine"]


def test_existing_objects_are_kept_unless_asked() -> None:
    server = FakeServer()
    fill(server, thing("Namespace", "team"), thing("ConfigMap", "a", data={"x": "present"}))
    objects = [thing("ConfigMap", "a", data={"x": "saved"}), thing("ConfigMap", "b")]
    before = dict(server.objects)
    with pytest.raises(SnapshotError, match="1 objects already exist") as refused:
        restore_objects(server.api, objects)
    assert refused.value.details == ["configmap/a in namespace team"] and server.objects == before
    skipped = restore_objects(server.api, objects, Existing.SKIP)
    assert skipped.created == {"ConfigMap": 1} and skipped.omitted == {("ConfigMap", "they already exist"): 1}
    assert server.objects[path_of("configmaps", "a")]["data"] == {"x": "present"}
    assert restore_objects(server.api, objects, Existing.OVERWRITE).overwritten == {"ConfigMap": 2}
    assert server.objects[path_of("configmaps", "a")]["data"] == {"x": "saved"}


def test_refused_object_does_not_prevent_the_others() -> None:
    server = FakeServer()
    fill(server, thing("Namespace", "team"))
    server.refuse["POST", "/api/v1/namespaces/team/configmaps"] = [(403, "Forbidden")]
    result = restore_objects(server.api, [thing("ConfigMap", "a"), thing("ConfigMap", "b")])
    assert result.failures == ["configmap/a in namespace team: refused: Forbidden"] and result.created == {"ConfigMap": 1}


def test_busy_server_is_asked_again() -> None:
    server = FakeServer()
    fill(server, thing("Namespace", "team"))
    server.refuse["POST", "/api/v1/namespaces/team/configmaps"] = [(429, "TooManyRequests")]
    assert restore_objects(server.api, [thing("ConfigMap", "a")]).created == {"ConfigMap": 1}


def test_unknown_kind_and_repeated_object_are_errors_before_anything_is_written() -> None:
    server = FakeServer()
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    for objects, message in (([widget], "does not serve 1 kinds"), ([thing("Pod", "a")] * 2, "pod/a in namespace team twice")):
        with pytest.raises(SnapshotError, match=message):
            restore_objects(server.api, objects)
    assert server.requests["POST"] == 0


def test_addresses_of_services_are_not_restored() -> None:
    spec = {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30000}]}
    assert new_object(thing("Service", "s", spec=spec))["spec"] == {"ports": [{"port": 80}]}
    assert new_object(thing("Service", "s", spec={"clusterIP": "None"}))["spec"] == {"clusterIP": "None"}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_file_round_trip(suffix: str, tmp_path: Path) -> None:
    file, objects = tmp_path / f"s.{suffix}", [thing("ConfigMap", "a", data={"x": "yes", "ü": "1\n2"}), *web()]

    def write_all(write: Callable[[Object], None]) -> None:
        for item in objects:
            write(item)

    with writing(file) as write:
        write_all(write)
    assert read_objects(file) == objects and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SnapshotError, match="already exists"), writing(file) as write:
        write_all(write)
    with pytest.raises(RuntimeError), writing(file, overwrite=True):
        raise RuntimeError
    assert read_objects(file) == objects and list(tmp_path.iterdir()) == [file], "a failure leaves the old file, and no other"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"kind": "Pod"}', r"a.json:1: expected an object with apiVersion, kind and metadata"),
        ("a.json", '{"a": \n', "a.json:2: expected JSON"),
        ("a.json", json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {}}), "metadata.name: expected a name"),
        ("a.json", "", "has no objects"),
        ("a.yaml", "a: [", r"a.yaml:\d: expected YAML"),
        ("a.yaml", "--- 5\n", "document 1: expected an object"),
    ],
    ids=["no metadata", "cut off", "no name", "empty", "yaml", "scalar"],
)
def test_unreadable_file_is_an_error_with_its_place(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SnapshotError, match=message):
        read_objects(tmp_path / name)


def test_list_of_kubectl_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": web()}))
    assert read_objects(tmp_path / "a.yaml") == web()


def test_refusal_of_the_server_has_its_message() -> None:
    server = FakeServer()
    server.refuse["GET", "/apis"] = [(401, "Unauthorized")]
    with pytest.raises(ApiError, match="refused: Unauthorized"):
        save(server)
