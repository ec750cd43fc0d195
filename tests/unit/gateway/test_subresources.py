"""Bodies of subresources, reviews and deletes: their type, their name and namespace, and their preconditions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.gateway.http import User
from pinnace.gateway.media_types import PROTOBUF, envelope
from tests.unit.gateway.serving import Answer, Gateway, gateway

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALE = f"{DEPLOYMENTS}/web/scale"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
EVE = User("eve", ("system:authenticated",))
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


@asynccontextmanager
async def cluster() -> AsyncIterator[Gateway]:
    """A gateway with the pods a and b, and the deployment web of two replicas."""
    async with gateway() as served:
        for name in ("a", "b"):
            pod = {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
            assert (await served.ask("POST", PODS, pod)).code == 201
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE}
        assert (await served.ask("POST", DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})).code == 201
        yield served


async def replicas(served: Gateway) -> int:
    return int((await served.ask("GET", SCALE)).json["spec"]["replicas"])


async def pods(served: Gateway) -> list[str]:
    return [pod["metadata"]["name"] for pod in (await served.ask("GET", PODS)).json["items"]]


def reason(answer: Answer) -> tuple[int, str]:
    return answer.code, answer.json.get("reason", "")


def eviction(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"}} | fields


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (eviction(metadata={"name": "b"}), "name in URL does not match name in Eviction object"),
        (eviction(metadata={}), "name in URL does not match name in Eviction object"),
        (
            eviction(metadata={"name": "a", "namespace": "other"}),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            eviction(apiVersion="v1", kind="Pod"),
            'Pod in version "v1" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown conversion',
        ),
        (
            eviction(kind="Evict"),
            'Evict in version "v1" cannot be handled as a Eviction: no kind "Evict" is registered for version "policy/v1" '
            'in scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            {"kind": "Eviction", "apiVersion": "v2", "metadata": {"name": "a"}},
            'Eviction in version "v2" cannot be handled as a Eviction: no kind "Eviction" is registered for version "v2" '
            'in scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            eviction(kind=5),
            "the object provided is unrecognized (must be of type Eviction): couldn't get version/kind; json parse error: "
            'json: cannot unmarshal number into Go struct field .kind of type string ({"apiVersion": "policy/v1", "k ...)',
        ),
    ],
)
async def test_eviction_of_another_object_or_type_is_refused(body: Any, message: str) -> None:
    """Each of these evicted the pod of the URL."""
    async with cluster() as served:
        answer = await served.ask("POST", f"{PODS}/a/eviction", body)
        assert (answer.code, answer.json["message"]) == (400, message)
        assert await pods(served) == ["a", "b"]


async def test_eviction_without_body_or_with_bad_options_is_refused() -> None:
    async with cluster() as served:
        assert reason(await served.ask("POST", f"{PODS}/a/eviction")) == (400, "BadRequest")
        both = eviction(deleteOptions={"orphanDependents": True, "propagationPolicy": "Orphan"})
        assert reason(await served.ask("POST", f"{PODS}/a/eviction", both)) == (422, "Invalid")
        assert await pods(served) == ["a", "b"]
        assert (await served.ask("POST", f"{PODS}/a/eviction", eviction(apiVersion="policy/v1beta1"))).code == 201
        assert await pods(served) == ["b"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"apiVersion": "v1", "kind": "Service"}, 400),
        ({"metadata": {"name": "b"}}, 400),
        ({"metadata": {}}, 400),
        ({"metadata": {"name": "a", "namespace": "other"}}, 400),
        ({"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}, 409),
        ({"metadata": {"name": "a", "resourceVersion": "1"}}, 409),
        ({}, 201),
    ],
)
async def test_binding_is_checked(change: dict[str, Any], code: int) -> None:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    async with cluster() as served:
        answer = await served.ask("POST", f"{PODS}/a/binding", body | change)
        assert answer.code == code, answer.body
        node = (await served.ask("GET", f"{PODS}/a")).json["spec"].get("nodeName")
        assert node == ("n1" if code == 201 else None)


async def test_review_of_another_type_is_refused() -> None:
    """A SelfSubjectAccessReview of kind Pod was answered."""
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    async with gateway() as served:
        for head in ({"apiVersion": "v1", "kind": "Pod"}, {"kind": "SubjectAccessReview"}, {"apiVersion": "v1"}):
            assert reason(await served.ask("POST", review, head | {"spec": spec})) == (400, "BadRequest")
        body = envelope("v1", "Pod", Pod().SerializeToString())
        assert (await served.ask("POST", review, body, content_type=PROTOBUF)).code == 400
        assert (await served.ask("POST", review)).code == 400
        assert (await served.ask("POST", review, {"spec": spec})).code == 201


@pytest.mark.parametrize("head", [{"kind": "Deployment"}, {"apiVersion": "apps/v1"}, {"apiVersion": "events.k8s.io/v1"}])
async def test_object_of_a_partly_given_type_is_refused(head: dict[str, Any]) -> None:
    """The type was checked only if apiVersion and kind were both given."""
    async with gateway() as served:
        pod = head | {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        assert reason(await served.ask("POST", PODS, pod)) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("", {"orphanDependents": True, "propagationPolicy": "Orphan"}, (422, "Invalid")),
        ("?orphanDependents=false&propagationPolicy=Orphan", None, (422, "Invalid")),
        ("", {"apiVersion": "v1", "kind": "ConfigMap"}, (400, "BadRequest")),
        ("", {"kind": "Pod"}, (400, "BadRequest")),
        ("", {"apiVersion": "nope/v1", "kind": "DeleteOptions"}, (400, "BadRequest")),
        ("", {"gracePeriodSeconds": "soon"}, (400, "BadRequest")),
    ],
)
async def test_options_of_delete_are_checked(query: str, body: Any, expected: tuple[int, str]) -> None:
    """Each of these deleted the pod."""
    async with cluster() as served:
        assert reason(await served.ask("DELETE", f"{PODS}/a{query}", body)) == expected
        assert reason(await served.ask("DELETE", f"{PODS}{query}", body)) == expected
        assert await pods(served) == ["a", "b"]


async def test_message_of_contradicting_options() -> None:
    async with cluster() as served:
        options = {"orphanDependents": False, "propagationPolicy": "Foreground"}
        answer = await served.ask("DELETE", f"{PODS}/a", options)
        cause = 'Invalid value: "Foreground": orphanDependents and deletionPropagation cannot be both set'
        assert answer.json["message"] == f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {cause}'
        assert answer.json["details"]["causes"] == [
            {"reason": "FieldValueInvalid", "message": cause, "field": "propagationPolicy"}
        ]


async def test_collection_is_not_deleted_with_a_list_as_options() -> None:
    async with cluster() as served:
        assert (await served.ask("DELETE", PODS, {"apiVersion": "v1", "kind": "PodList", "items": []})).code == 400
        assert await pods(served) == ["a", "b"]


@pytest.mark.parametrize("api_version", ["v1", "meta.k8s.io/v1", "apps/v1", None])
async def test_options_of_delete_can_have_the_version_of_any_group(api_version: str | None) -> None:
    async with cluster() as served:
        head = {"apiVersion": api_version, "kind": "DeleteOptions"} if api_version else {}
        answer = await served.ask("DELETE", f"{PODS}/a", head | {"gracePeriodSeconds": 0, "future": 1})
        assert (answer.code, answer.warnings) == (200, [])
        assert await pods(served) == ["b"]


@pytest.mark.parametrize(("orphan", "finalizers"), [(True, ["orphan"]), (False, None)])
async def test_orphan_dependents_of_protobuf_options(orphan: bool, finalizers: list[str] | None) -> None:
    """The field was unknown in protobuf bodies, so dependents were deleted."""
    async with cluster() as served:
        body = envelope("v1", "DeleteOptions", DeleteOptions(orphanDependents=orphan).SerializeToString())
        assert (await served.ask("DELETE", f"{DEPLOYMENTS}/web", body, content_type=PROTOBUF)).code == 200
        left = await served.ask("GET", f"{DEPLOYMENTS}/web")
        assert left.json["metadata"].get("finalizers") == finalizers if orphan else left.code == 404


def scale(number: int = 5, **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web", "namespace": "default"} | metadata,
        "spec": {"replicas": number},
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (scale(resourceVersion="1"), (409, "Conflict")),
        (scale(uid="00000000-0000-0000-0000-000000000000"), (409, "Conflict")),
        (scale(name="other"), (400, "BadRequest")),
        (scale(name=""), (400, "BadRequest")),
        (scale(namespace="other"), (400, "BadRequest")),
        (scale() | {"apiVersion": "apps/v1", "kind": "Deployment"}, (400, "BadRequest")),
        (scale() | {"spec": {"replicas": "5"}}, (400, "BadRequest")),
        (scale() | {"spec": []}, (400, "BadRequest")),
        (scale(-1), (422, "Invalid")),
        ("", (400, "BadRequest")),
    ],
)
async def test_refused_update_of_scale(body: Any, expected: tuple[int, str]) -> None:
    """Updates with another uid, name, namespace or kind scaled the deployment."""
    async with cluster() as served:
        assert reason(await served.ask("PUT", SCALE, body)) == expected
        assert await replicas(served) == 2


@pytest.mark.parametrize(
    ("patch", "content_type", "expected"),
    [
        ({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}}, MERGE, (409, "Conflict")),
        ({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "spec": {"replicas": 5}}, MERGE, (409, "Conflict")),
        ({"metadata": {"name": "other"}, "spec": {"replicas": 5}}, MERGE, (400, "BadRequest")),
        ({"metadata": {"namespace": "other"}, "spec": {"replicas": 5}}, MERGE, (400, "BadRequest")),
        ({"kind": "Deployment", "spec": {"replicas": 5}}, MERGE, (400, "BadRequest")),
        ({"spec": {"replicas": -3}}, MERGE, (422, "Invalid")),
        (
            [{"op": "test", "path": "/spec/replicas", "value": 9}, {"op": "replace", "path": "/spec/replicas", "value": 5}],
            JSON_PATCH,
            (422, "Invalid"),
        ),
        ({"spec": {"replicas": 5}}, "application/json", (415, "UnsupportedMediaType")),
    ],
)
async def test_refused_patch_of_scale(patch: Any, content_type: str, expected: tuple[int, str]) -> None:
    """A patch with an old resourceVersion or another uid scaled the deployment: the update of another client was lost."""
    async with cluster() as served:
        assert reason(await served.ask("PATCH", SCALE, patch, content_type=content_type)) == expected
        assert await replicas(served) == 2


async def test_accepted_changes_of_scale() -> None:
    async with cluster() as served:
        read = (await served.ask("GET", SCALE)).json
        assert read["status"] == {"replicas": 0, "selector": "app=web"} and read["kind"] == "Scale"
        changed = await served.ask("PUT", SCALE, scale(3, resourceVersion=read["metadata"]["resourceVersion"]))
        assert changed.json["spec"] == {"replicas": 3} and changed.json["apiVersion"] == "autoscaling/v1"
        operations = [
            {"op": "test", "path": "/spec/replicas", "value": 3},
            {"op": "replace", "path": "/spec/replicas", "value": 4},
        ]
        assert (await served.ask("PATCH", SCALE, operations, content_type=JSON_PATCH)).json["spec"] == {"replicas": 4}
        stopped = await served.ask("PATCH", SCALE, {"spec": {"replicas": 0}}, content_type=MERGE)
        assert stopped.json["spec"] == {}
        assert (await served.ask("PUT", f"{SCALE}?dryRun=All", scale(7))).json["spec"] == {"replicas": 7}
        assert (await served.ask("GET", SCALE)).json["spec"] == {}


async def test_scale_as_protobuf() -> None:
    async with cluster() as served:
        wanted = Scale()
        wanted.metadata.name, wanted.spec.replicas = "web", 6
        body = envelope("autoscaling/v1", "Scale", wanted.SerializeToString())
        answer = await served.ask("PUT", SCALE, body, content_type=PROTOBUF, accept=PROTOBUF)
        assert answer.code == 200 and answer.content_type == PROTOBUF and b"autoscaling/v1" in answer.body
        assert await replicas(served) == 6
        wrong = envelope("apps/v1", "Deployment", wanted.SerializeToString())
        assert (await served.ask("PUT", SCALE, wrong, content_type=PROTOBUF)).code == 400


async def test_missing_object_has_no_scale() -> None:
    async with cluster() as served:
        for method, body in (("GET", None), ("PUT", scale(name="gone")), ("PATCH", {"spec": {"replicas": 1}})):
            answer = await served.ask(
                method, f"{DEPLOYMENTS}/gone/scale", body, content_type=MERGE if method == "PATCH" else ""
            )
            assert (answer.code, answer.json["message"]) == (404, 'deployments.apps "gone" not found')


async def test_scale_has_a_permission_of_its_own() -> None:
    """Reads required `get deployments`, and changes `patch deployments`."""
    async with cluster() as served:
        meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "scaler"}}
        rules = [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]}]
        assert (await served.ask("POST", f"{_RBAC}/clusterroles", meta | {"kind": "ClusterRole", "rules": rules})).code == 201
        binding = meta | {
            "kind": "ClusterRoleBinding",
            "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "scaler", "apiGroup": "rbac.authorization.k8s.io"},
        }
        assert (await served.ask("POST", f"{_RBAC}/clusterrolebindings", binding)).code == 201
        assert (await served.ask("GET", SCALE, user=EVE)).code == 200
        assert (await served.ask("PUT", SCALE, scale(3), user=EVE)).code == 200
        refused = await served.ask("PATCH", SCALE, {"spec": {"replicas": 9}}, content_type=MERGE, user=EVE)
        assert refused.code == 403 and 'cannot patch resource "deployments/scale"' in refused.json["message"]
        assert (await served.ask("GET", f"{DEPLOYMENTS}/web", user=EVE)).code == 403


async def test_resize_by_update_changes_resources_only() -> None:
    """An update of the subresource changed labels, and left the resources."""
    async with cluster() as served:
        pod = (await served.ask("GET", f"{PODS}/a")).json
        pod["metadata"]["labels"] = {"changed": "yes"}
        pod["spec"]["containers"][0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
        answer = await served.ask("PUT", f"{PODS}/a/resize", pod)
        assert answer.code == 200, answer.body
        assert answer.json["metadata"]["labels"] == {"app": "x"}
        assert answer.json["spec"]["containers"][0]["resizePolicy"] == pod["spec"]["containers"][0]["resizePolicy"]


async def test_kubectl_debug_adds_an_ephemeral_container() -> None:
    """kubectl reads the subresource, and sends a strategic merge patch."""
    async with cluster() as served:
        path = f"{PODS}/a/ephemeralcontainers"
        assert (await served.ask("GET", path)).json["kind"] == "Pod"
        debugger = {"name": "debugger", "image": "busybox", "stdin": True, "tty": True, "targetContainerName": "c"}
        patch = {"metadata": {"labels": {"changed": "yes"}}, "spec": {"ephemeralContainers": [debugger]}}
        content_type = "application/strategic-merge-patch+json"
        answer = await served.ask("PATCH", path, patch, content_type=content_type)
        assert answer.code == 200, answer.body
        (added,) = answer.json["spec"]["ephemeralContainers"]
        defaults = {
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
        assert added == debugger | defaults | {"resources": {}}
        assert answer.json["metadata"]["labels"] == {"app": "x"} and answer.json["metadata"]["generation"] == 2
        second = {"spec": {"ephemeralContainers": [{"name": "second", "image": "busybox"}]}}
        answer = await served.ask("PATCH", path, second, content_type=content_type)
        assert {item["name"] for item in answer.json["spec"]["ephemeralContainers"]} == {"debugger", "second"}
        pod = answer.json
        del pod["spec"]["ephemeralContainers"]
        refused = await served.ask("PUT", path, pod)
        assert refused.code == 422
        assert (
            'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debugger" may not be removed'
            in (refused.json["message"])
        )
        assert (await served.ask("PUT", f"{PODS}/a", pod)).code == 422, "they change through the subresource alone"


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/pods"), ("DELETE", "/api/v1/pods"), ("PUT", "/api/v1/pods")])
async def test_objects_are_not_changed_across_namespaces(method: str, path: str) -> None:
    """A pod was created in the namespace default."""
    async with cluster() as served:
        pod = {"metadata": {"name": "c"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        assert reason(await served.ask(method, path, pod)) == (405, "MethodNotAllowed")
        assert await pods(served) == ["a", "b"]


async def test_local_review_requires_a_namespace() -> None:
    async with gateway() as served:
        assert (await served.ask("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", {})).code == 404
