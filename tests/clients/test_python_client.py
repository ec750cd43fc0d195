"""The official Python client (`kubernetes`): CRUD, watches, patches, subresources, leader election, pages and errors."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import deployment, lease, pod, until

client = pytest.importorskip("kubernetes.client", reason="pip install '.[clients]'")
config = pytest.importorskip("kubernetes.config")
watch = pytest.importorskip("kubernetes.watch")
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
WATCH_SECONDS = 20
EVENTS, ANNOTATION = 600, 240_000
"""Patches, and bytes of each: together more than an API server keeps of its events."""


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Any]:
    with config.new_client_from_config(str(kubeconfig)) as result:
        yield result


@pytest.fixture
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


def status(caught: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(caught.value.body)
    return result


def test_crud(core: Any, namespace: str) -> None:
    created = core.create_namespaced_pod(namespace, pod("a"))
    assert (created.metadata.namespace, created.spec.containers[0].image) == (namespace, "nginx:1")
    assert created.metadata.creation_timestamp.tzinfo is not None
    created.metadata.labels["tier"] = "web"
    until(lambda: core.read_namespaced_pod("a", namespace).status.phase == "Running")
    namespaced_pod = core.read_namespaced_pod("a", namespace)
    namespaced_pod.metadata.labels["tier"] = "web"
    assert core.replace_namespaced_pod("a", namespace, namespaced_pod).metadata.labels["tier"] == "web"
    assert [item.metadata.name for item in core.list_namespaced_pod(namespace, label_selector="tier=web").items] == ["a"]
    assert [
        item.metadata.name for item in core.list_pod_for_all_namespaces(field_selector=f"metadata.namespace={namespace}").items
    ] == ["a"]
    core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    until(lambda: not core.list_namespaced_pod(namespace).items)


def test_dry_run_writes_nothing(core: Any, namespace: str) -> None:
    assert core.create_namespaced_pod(namespace, pod("a"), dry_run="All").metadata.uid
    assert core.list_namespaced_pod(namespace).items == []


@pytest.mark.parametrize(
    ("media_type", "patch"),
    [
        ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
        ("application/merge-patch+json", {"metadata": {"labels": {"x": "1"}}}),
        ("application/strategic-merge-patch+json", {"metadata": {"labels": {"x": "1"}}}),
    ],
)
def test_patches(api: Any, core: Any, namespace: str, media_type: str, patch: Any) -> None:
    core.create_namespaced_pod(namespace, pod("a"))
    request = api.param_serialize(
        "PATCH", f"/api/v1/namespaces/{namespace}/pods/a", header_params={"Content-Type": media_type}, body=patch,
        auth_settings=["BearerToken"],
    )  # fmt: skip
    response = api.call_api(*request)
    response.read()
    assert response.status == 200
    patched = core.read_namespaced_pod("a", namespace)
    assert patched.metadata.labels == {"app": "a", "x": "1"}


def test_strategic_patch_merges_containers_by_name(api: Any, namespace: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment("web", 1))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    patched = apps.patch_namespaced_deployment("web", namespace, patch)
    assert {container.name for container in patched.spec.template.spec.containers} == {"main", "side"}
    assert apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 3}}).spec.replicas == 3
    assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas == 3
    until(lambda: apps.read_namespaced_deployment_status("web", namespace).status.ready_replicas == 3)


def test_watch_sees_what_happens_and_resumes(core: Any, namespace: str) -> None:
    start = core.list_namespaced_pod(namespace).metadata.resource_version
    core.create_namespaced_pod(namespace, pod("a"))
    core.create_namespaced_pod(namespace, pod("b"))
    watcher = watch.Watch()
    seen: list[tuple[str, str]] = []
    for event in watcher.stream(
        core.list_namespaced_pod, namespace, resource_version=start, timeout_seconds=WATCH_SECONDS, label_selector="app"
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if {("ADDED", "a"), ("ADDED", "b")} <= set(seen):
            watcher.stop()
    core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    resumed = watch.Watch()
    for event in resumed.stream(
        core.list_namespaced_pod, namespace, resource_version=watcher.resource_version, timeout_seconds=WATCH_SECONDS
    ):
        assert event["type"] != "ADDED", "the first watch has seen both already"
        if (event["type"], event["object"].metadata.name) == ("DELETED", "a"):
            resumed.stop()
            break
    else:
        pytest.fail("the watch ended without the deletion")


def test_expired_watch_is_410_and_a_new_one_begins(core: Any, namespace: str) -> None:
    """The API servers keep a bounded number of bytes of events."""
    old = core.create_namespaced_pod(namespace, pod("a")).metadata.resource_version
    for number in range(EVENTS):
        core.patch_namespaced_pod("a", namespace, {"metadata": {"annotations": {"x": str(number) * (ANNOTATION // 3)}}})
    with pytest.raises(client.ApiException) as caught:
        for _ in watch.Watch().stream(core.list_namespaced_pod, namespace, resource_version=old, timeout_seconds=3):
            pass
    assert caught.value.status == 410


def test_pages_have_one_revision(core: Any, namespace: str) -> None:
    for number in range(7):
        core.create_namespaced_pod(namespace, pod(f"p{number}"))
    page = core.list_namespaced_pod(namespace, limit=3)
    names, versions = [item.metadata.name for item in page.items], {page.metadata.resource_version}
    assert page.metadata.remaining_item_count == 4
    core.create_namespaced_pod(namespace, pod("p9"))
    while page.metadata._continue:
        page = core.list_namespaced_pod(namespace, limit=3, _continue=page.metadata._continue)
        names += [item.metadata.name for item in page.items]
        versions.add(page.metadata.resource_version)
    assert names == [f"p{number}" for number in range(7)]
    assert len(versions) == 1
    with pytest.raises(client.ApiException) as caught:
        core.list_namespaced_pod(namespace, limit=3, _continue="garbage")
    assert (caught.value.status, status(caught)["reason"]) == (400, "BadRequest")


def test_errors_are_statuses(core: Any, namespace: str) -> None:
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_pod("x", namespace)
    assert (caught.value.status, status(caught)["reason"]) == (404, "NotFound")
    assert status(caught)["details"] == {"name": "x", "kind": "pods"}
    created = core.create_namespaced_pod(namespace, pod("a"))
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod(namespace, pod("a"))
    assert (caught.value.status, status(caught)["reason"]) == (409, "AlreadyExists")
    created.metadata.resource_version = "1"
    with pytest.raises(client.ApiException) as caught:
        core.replace_namespaced_pod("a", namespace, created)
    assert (caught.value.status, status(caught)["reason"]) == (409, "Conflict")
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod(namespace, pod("b", containers=[{"name": "main"}] * 2))
    assert (caught.value.status, status(caught)["reason"]) == (422, "Invalid")
    assert any(item["field"].startswith("spec.containers") for item in status(caught)["details"]["causes"])
    with pytest.raises(client.ApiException) as caught:
        core.delete_namespaced_pod(
            "a", namespace, body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
        )
    assert (caught.value.status, status(caught)["reason"]) == (409, "Conflict")


def test_eviction_is_refused_by_a_budget(api: Any, core: Any, namespace: str) -> None:
    apps, policy = client.AppsV1Api(api), client.PolicyV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment("web", 1))
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    policy.create_namespaced_pod_disruption_budget(namespace, budget)
    until(lambda: policy.read_namespaced_pod_disruption_budget_status("web", namespace).status.current_healthy == 1)
    name = core.list_namespaced_pod(namespace).items[0].metadata.name
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod_eviction(name, namespace, eviction)
    assert (caught.value.status, status(caught)["reason"]) == (429, "TooManyRequests")
    (cause,) = status(caught)["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 1 healthy pods and has 1 currently"
    policy.delete_namespaced_pod_disruption_budget("web", namespace)
    until(lambda: not policy.list_namespaced_pod_disruption_budget(namespace).items)
    core.create_namespaced_pod_eviction(name, namespace, eviction)
    until(lambda: name not in {item.metadata.name for item in core.list_namespaced_pod(namespace).items})


def test_binding_starts_a_pod_without_a_scheduler(core: Any, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("a", schedulerName="my-scheduler"))
    target = client.V1ObjectReference(kind="Node", api_version="v1", name="node-1")
    body = client.V1Binding(metadata=client.V1ObjectMeta(name="a"), target=target)
    core.create_namespaced_pod_binding("a", namespace, body, _preload_content=False)
    until(lambda: core.read_namespaced_pod("a", namespace).status.phase == "Running")
    assert core.read_namespaced_pod("a", namespace).spec.node_name == "node-1"
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod_binding("a", namespace, body, _preload_content=False)
    assert caught.value.status == 409


def test_leases_have_microseconds_and_optimistic_locks(api: Any, namespace: str) -> None:
    leases = client.CoordinationV1Api(api)
    created = leases.create_namespaced_lease(namespace, lease("lock", "me"))
    assert created.spec.acquire_time.microsecond == 123456
    stale = created.metadata.resource_version
    created.spec.holder_identity = "you"
    leases.replace_namespaced_lease("lock", namespace, created)
    created.metadata.resource_version = stale
    with pytest.raises(client.ApiException) as caught:
        leases.replace_namespaced_lease("lock", namespace, created)
    assert caught.value.status == 409


def test_exec_in_a_simulated_container(core: Any, namespace: str) -> None:
    stream = pytest.importorskip("kubernetes.stream")
    core.create_namespaced_pod(namespace, pod("a"))
    until(lambda: core.read_namespaced_pod("a", namespace).status.phase == "Running")
    options = {"command": ["hostname"], "stdout": True, "_preload_content": False}
    ran = stream.stream(core.connect_get_namespaced_pod_exec, "a", namespace, **options)
    ran.run_forever(timeout=40)
    assert (ran.read_stdout(), ran.returncode) == ("a\n", 0)
    ran.sock.shutdown()  # `close` leaves the socket open if the server has closed the connection


def test_discovery_and_dynamic_client(api: Any, namespace: str) -> None:
    dynamic = pytest.importorskip("kubernetes.dynamic")
    result = dynamic.DynamicClient(api)
    pods = result.resources.get(api_version="v1", kind="Pod")
    created = pods.create(body=pod("a"), namespace=namespace)
    assert created.metadata.name == "a"
    assert {item.metadata.name for item in pods.get(namespace=namespace).items} == {"a"}
    events = [event["type"] for event in pods.watch(namespace=namespace, timeout=1)]
    assert events[0] == "ADDED"
    pods.delete(name="a", namespace=namespace)


def test_leader_election_by_its_own_library(kubeconfig: Path, namespace: str) -> None:
    """The library keeps its record in an annotation of a lock object, which is a Lease here."""
    leaderelection = pytest.importorskip("kubernetes.leaderelection.leaderelection")
    electionconfig = pytest.importorskip("kubernetes.leaderelection.electionconfig")
    leaselock = pytest.importorskip("kubernetes.leaderelection.resourcelock.leaselock")
    config.load_kube_config(str(kubeconfig))
    leading, stopped = threading.Event(), threading.Event()

    def lead() -> None:
        leading.set()

    lock = leaselock.LeaseLock("election", namespace, "me")
    wanted = electionconfig.Config(lock, 4, 3, 1, onstarted_leading=lead, onstopped_leading=stopped.set)
    thread = threading.Thread(target=leaderelection.LeaderElection(wanted).run, daemon=True)
    thread.start()
    assert leading.wait(30)
    held = client.CoordinationV1Api().read_namespaced_lease("election", namespace)
    assert held.spec.holder_identity == "me"
