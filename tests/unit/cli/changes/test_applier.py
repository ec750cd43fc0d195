"""What `apply` does with objects that are there, that are not, and that others change meanwhile."""

import copy
from typing import Any

import pytest

from pinnace.api import wire
from pinnace.api.codec import says_more, to_dict
from pinnace.api.manifest import Manifest, load
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS
from pinnace.api.status import Code
from pinnace.api.wire import MAX_BYTES
from pinnace.cli.objects.manifests import in_order
from pinnace.cli.verbs.apply import CHUNK, Applier, chunks, desired
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound, OutcomeUnknown
from tests.builders import make_node, make_pod
from tests.unit.cli.fakes import DOWN, FORBIDDEN, LOST, STALE, FakeApi, refusal

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default, labels: {app: web}}
spec:
  containers: [{name: main, image: "app:1"}]
"""


def pod(text: str = POD) -> list[Manifest]:
    return load(text, "pods.yaml")


def pods(*names: str) -> list[Manifest]:
    return [manifest(PODS, make_pod(name).req(cpu="1").new()) for name in names]


def manifest(resource: Any, obj: Any) -> Manifest:
    return Manifest(resource, obj, to_dict(obj), "x.yaml", 1)


async def applied(api: FakeApi, manifests: list[Manifest], *, dry_run: bool = False) -> list[str | ApiError]:
    return await Applier(api.client(), dry_run=dry_run).apply([desired(each) for each in manifests])


async def test_created_then_unchanged_then_configured() -> None:
    api = FakeApi()
    assert await applied(api, pod()) == ["created"]
    (stored,) = api.of(PODS).stored.values()
    assert LAST_APPLIED in stored.metadata.annotations
    assert await applied(api, pod()) == ["unchanged"]
    assert await applied(api, pod(POD.replace("app:1", "app:2"))) == ["configured"]
    (stored,) = api.of(PODS).stored.values()
    assert stored.spec.containers[0].image == "app:2"


async def test_apply_warns_about_objects_being_deleted() -> None:
    api, told = FakeApi(), list[str]()
    await applied(api, pod())
    (stored,) = api.of(PODS).stored.values()
    stored.metadata.deletionTimestamp.seconds = 1
    await api.of(PODS).put(stored)
    for manifests, outcome in ((pod(), "unchanged"), (pod(POD.replace("app:1", "app:2")), "configured")):
        applier = Applier(api.client(), dry_run=False, warn=told.append)
        assert await applier.apply([desired(each) for each in manifests]) == [outcome]
    assert told == ["pod/a is being deleted: apply it again after the deletion"] * 2


async def test_apply_keeps_unmodelled_fields() -> None:
    api = FakeApi()
    await applied(api, pod())
    (stored,) = api.of(PODS).stored.values()
    stored.spec.containers[0].MergeFromString(wire.field(9001, b"of the future"))
    await api.of(PODS).put(stored)
    assert await applied(api, pod(POD.replace("app:1", "app:2"))) == ["configured"]
    (stored,) = api.of(PODS).stored.values()
    assert stored.spec.containers[0].image == "app:2" and says_more(stored.spec.containers[0])


async def test_apply_removes_own_fields_and_keeps_others() -> None:
    api = FakeApi()
    await applied(api, pod())
    (stored,) = api.of(PODS).stored.values()
    stored.metadata.labels["theirs"] = "1"
    await api.of(PODS).put(stored)
    assert await applied(api, pod(POD.replace("app: web", "tier: front"))) == ["configured"]
    (stored,) = api.of(PODS).stored.values()
    assert dict(stored.metadata.labels) == {"tier": "front", "theirs": "1"}


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, creationTimestamp: null}
spec:
  replicas: 0
  paused: false
  minReadySeconds: 0
  progressDeadlineSeconds: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      hostNetwork: false
      priorityClassName: ""
      nodeSelector: {}
      tolerations: []
      containers:
      - {name: main, image: app, env: [{name: A, value: ""}], ports: [{containerPort: 80, hostPort: 0, protocol: ""}]}
status: {}
"""


def drift(deployment: Any) -> None:
    """What others set where the manifest says that there is nothing."""
    spec = deployment.spec
    spec.replicas, spec.paused, spec.minReadySeconds, spec.progressDeadlineSeconds = 4, True, 9, 60
    pod = spec.template.spec
    pod.hostNetwork, pod.priorityClassName = True, "high"
    pod.tolerations.add(operator="Exists")
    pod.containers[0].env[0].value = "changed"
    pod.containers[0].ports[0].hostPort = 80


async def test_null_removes_a_field() -> None:
    api = FakeApi()
    manifest = load(DEPLOYMENT, "web.yaml")
    assert await applied(api, manifest) == ["created"]
    (stored,) = api.of(DEPLOYMENTS).stored.values()
    wanted = copy.deepcopy(stored.spec)
    drift(stored)
    await api.of(DEPLOYMENTS).put(stored)
    assert await applied(api, manifest, dry_run=True) == ["configured"]
    assert await applied(api, manifest) == ["configured"]
    (stored,) = api.of(DEPLOYMENTS).stored.values()
    assert stored.spec == wanted


async def test_null_of_an_absent_field_is_unchanged() -> None:
    api = FakeApi()
    for expected in ("created", "unchanged"):
        assert await applied(api, load(DEPLOYMENT, "web.yaml")) == [expected]
    assert "update deployments" not in api.calls


async def test_a_cordon_and_a_taint_by_hand_are_taken_back() -> None:
    api = FakeApi()
    node = load("{apiVersion: v1, kind: Node, metadata: {name: n0}, spec: {unschedulable: false, taints: []}}", "node.yaml")
    await applied(api, node)
    (stored,) = api.of(NODES).stored.values()
    stored.spec.unschedulable = True
    stored.spec.taints.add(key="mine", effect="NoSchedule")
    await api.of(NODES).put(stored)
    assert await applied(api, node) == ["configured"]
    (stored,) = api.of(NODES).stored.values()
    assert not stored.spec.unschedulable and not stored.spec.taints


async def test_status_is_not_ours_to_change() -> None:
    api = FakeApi()
    await applied(api, pod())
    assert await applied(api, pod(POD + "status: {phase: Failed}\n")) == ["unchanged"]


async def test_the_status_of_a_new_node_is_set_once() -> None:
    api = FakeApi()
    node = load("{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {capacity: {cpu: 4}}}", "node.yaml")
    assert await applied(api, node) == ["created"]
    (stored,) = api.of(NODES).stored.values()
    assert stored.status.capacity["cpu"].string == "4"
    assert await applied(api, node) == ["unchanged"]


async def test_a_dry_run_writes_nothing() -> None:
    api = FakeApi()
    assert await applied(api, pod(), dry_run=True) == ["created"]
    assert not api.of(PODS).stored
    await applied(api, pod())
    before = dict(api.of(PODS).stored)
    assert await applied(api, pod(POD.replace("app:1", "app:2")), dry_run=True) == ["configured"]
    assert api.of(PODS).stored == before


@pytest.mark.parametrize("dry_run", [False, True])
async def test_server_defaults_are_no_change(dry_run: bool) -> None:
    """A list is replaced as a whole, and with it goes what was added to it by default, until the server adds it again."""
    api = FakeApi()

    def default(pod: Any) -> None:
        if not any(toleration.key == "not-ready" for toleration in pod.spec.tolerations):
            pod.spec.tolerations.add(key="not-ready")

    api.of(PODS).complete = default
    tolerant = POD + "  tolerations: [{key: gpu}]\n"
    assert await applied(api, pod(tolerant)) == ["created"]
    assert await applied(api, pod(tolerant), dry_run=dry_run) == ["unchanged"]
    assert "update pods" in api.calls
    assert await applied(api, pod(tolerant.replace("gpu", "tpu")), dry_run=dry_run) == ["configured"]


async def test_many_are_created_in_one_call_and_fail_alone() -> None:
    api = FakeApi()
    a, bad, b = await applied(api, pods("a", "_bad", "b"))
    assert (a, b) == ("created", "created") and isinstance(bad, Invalid)
    assert api.calls == ["list pods", "create_batch pods"]


async def test_apply_patches_after_a_concurrent_create() -> None:
    api = FakeApi()
    api.of(PODS).fail("create", refusal(Code.ALREADY_EXISTS, "AlreadyExists"))
    assert await applied(api, pod()) == ["created"]
    api = FakeApi()
    for _ in range(9):
        api.of(PODS).fail("create", refusal(Code.ALREADY_EXISTS, "AlreadyExists"))
    (outcome,) = await applied(api, pod())
    assert isinstance(outcome, AlreadyExists), "it gives up, and says why"


async def test_apply_retries_after_a_concurrent_update() -> None:
    api = FakeApi()
    await applied(api, pod())
    api.of(PODS).fail("update", STALE)
    assert await applied(api, pod(POD.replace("app:1", "app:2"))) == ["configured"]


async def test_a_revision_that_the_manifest_names_must_be_there() -> None:
    api = FakeApi()
    await applied(api, pod())
    stale = POD.replace("app:1", "app:2").replace("name: a,", 'name: a, resourceVersion: "77",')
    (outcome,) = await applied(api, pod(stale))
    assert isinstance(outcome, Conflict) and api.calls.count("update pods") == 1
    (stored,) = api.of(PODS).stored.values()
    assert stored.spec.containers[0].image == "app:1"


async def test_a_revision_of_0_names_none() -> None:
    """As in what a dry run has printed. The update is of what was read, and is done anew where somebody else was faster."""
    api, manifest = FakeApi(), POD.replace("name: a,", 'name: a, resourceVersion: "0",')
    await applied(api, pod(manifest))
    api.of(PODS).fail("update", STALE)
    assert await applied(api, pod(manifest.replace("app:1", "app:2"))) == ["configured"]
    assert api.calls.count("update pods") == 2


async def test_deleted_between_reading_and_updating() -> None:
    api = FakeApi()
    await applied(api, pod())
    api.of(PODS).fail("update", refusal(Code.NOT_FOUND, "NotFound"))
    changed = pod(POD.replace("app:1", "app:2"))
    assert await applied(api, changed) == ["configured"]


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_a_lost_answer_is_resolved_by_reading(happened: bool, names: tuple[str, ...]) -> None:
    api = FakeApi()
    api.of(PODS).fail("create" if len(names) == 1 else "create_batch", LOST, after=happened)
    assert await applied(api, pods(*names)) == ["created"] * len(names)
    assert len(api.of(PODS).stored) == len(names)


async def test_an_update_whose_answer_was_lost() -> None:
    api = FakeApi()
    await applied(api, pod())
    api.of(PODS).fail("update", LOST, after=True)
    assert await applied(api, pod(POD.replace("app:1", "app:2"))) == ["configured"]


async def test_answers_that_are_lost_for_ever() -> None:
    api = FakeApi()
    for _ in range(9):
        api.of(PODS).fail("create", LOST)
    (outcome,) = await applied(api, pod())
    assert isinstance(outcome, OutcomeUnknown)


async def test_no_server_is_each_objects_error() -> None:
    api = FakeApi()
    api.of(PODS).fail("create_batch", DOWN)
    outcomes = await applied(api, pods("a", "b"))
    assert outcomes == [DOWN, DOWN]


async def test_apply_gets_named_objects_without_list_permission() -> None:
    api = FakeApi()
    await applied(api, pod())
    api.calls.clear()
    api.of(PODS).fail("list", FORBIDDEN)
    both = [*pod(POD.replace("app:1", "app:2")), *pod(POD.replace("name: a,", "name: b,"))]
    assert await applied(api, both) == ["configured", "created"]
    assert sorted(api.calls) == ["create pods", "get pods", "get pods", "list pods", "update pods"]


async def test_failed_read_of_one_object_does_not_stop_apply() -> None:
    api = FakeApi()
    for verb, error in (("list", FORBIDDEN), ("get", FORBIDDEN)):
        api.of(PODS).fail(verb, error)
    elsewhere = pod(POD.replace("namespace: default", "namespace: elsewhere"))
    assert await applied(api, [*pod(), *elsewhere]) == [FORBIDDEN, "created"]
    api.of(PODS).fail("list", DOWN)
    assert await applied(api, [*pod(), *elsewhere]) == [DOWN, "unchanged"]


async def test_a_lost_answer_and_then_no_server() -> None:
    api = FakeApi()
    api.of(PODS).fail("create", LOST, after=True)
    api.of(PODS).complete = lambda obj: api.of(PODS).fail("list", DOWN)
    assert await applied(api, pod()) == [LOST], "it may have happened"


async def test_apply_creates_the_permitted_part_of_a_batch() -> None:
    api = FakeApi()
    api.of(PODS).fail("create_batch", FORBIDDEN)
    api.of(PODS).fail("create", FORBIDDEN)
    assert await applied(api, pods("a", "b")) == [FORBIDDEN, "created"]


async def test_a_missing_namespace_is_final() -> None:
    api = FakeApi()
    api.of(PODS).fail("create", refusal(Code.NOT_FOUND, "NamespaceNotFound"))
    (outcome,) = await applied(api, pod())
    assert isinstance(outcome, NotFound)


def test_dependencies_are_applied_first() -> None:
    space = NAMESPACES.message()
    space.metadata.name = "x"
    found = in_order([*pods("b", "a"), manifest(NODES, make_node("n").build()), manifest(NAMESPACES, space)])
    assert [each.obj.metadata.name for each in found] == ["x", "n", "b", "a"]


def test_chunks_are_of_one_resource_and_bounded() -> None:
    many = pods(*(f"p{i}" for i in range(CHUNK + 1)))
    half = "y" * (MAX_BYTES // 2)
    found = [len(chunk) for chunk in chunks([*many, manifest(NODES, make_node("n").build())])]
    assert found == [CHUNK, 1, 1]
    large = [each for name in "abc" for each in pod(POD.replace("name: a,", f"name: {name}, annotations: {{x: {half}}},"))]
    assert [len(chunk) for chunk in chunks(large)] == [1, 1, 1]


async def test_batch_size_includes_the_last_applied_annotation() -> None:
    """What was applied is remembered as JSON, which is larger than the message: most of all where that has many numbers."""
    ports = ", ".join(f"{{containerPort: {port}}}" for port in range(10_000, 11_500))
    text = POD.replace('image: "app:1"', f'image: "app:1", ports: [{ports}]')
    many = [each for i in range(60) for each in pod(text.replace("name: a,", f"name: p{i},"))]
    api = FakeApi()
    for chunk in chunks(many):
        before = len(api.of(PODS).stored)
        await Applier(api.client(), dry_run=False).apply(chunk)
        assert sum(each.ByteSize() for each in list(api.of(PODS).stored.values())[before:]) < 1.1 * MAX_BYTES
    assert len(api.of(PODS).stored) == len(many)


def test_an_object_that_is_given_twice_is_applied_twice_in_order() -> None:
    assert [len(chunk) for chunk in chunks(pods("a", "b", "a"))] == [2, 1]
