"""What a patch makes of an object, and how a bad one is refused: by the name of the field."""

import json
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.mutation import patch_function
from pinnace.apiserver.registry.strategy import collect_warnings
from tests.builders import make_pod


def request(patch: object, kind: PatchRequest.Type = PatchRequest.STRATEGIC_MERGE, **fields: str) -> PatchRequest:
    text = patch if isinstance(patch, bytes) else json.dumps(patch).encode()
    return PatchRequest(namespace="default", type=kind, patch=text, **{"name": "a", **fields})


def old() -> Pod:
    return make_pod("a").req(cpu="1").label("app", "web").version(7).build()


def refused(asked: PatchRequest) -> Refusal:
    with pytest.raises(Rejected) as caught:
        patch_function(PODS, asked)(old())
    return caught.value.refusal


def test_patch_changes_its_fields_and_not_the_old_object() -> None:
    before = old()
    after = patch_function(PODS, request({"metadata": {"labels": {"tier": "front"}}}))(before)
    assert dict(after.metadata.labels) == {"app": "web", "tier": "front"} and before == old()
    del after.metadata.labels["tier"]
    assert after == before


@pytest.mark.parametrize(("validation", "warnings"), [("Warn", ['unknown field "spec.bogus"']), ("Ignore", [])])
def test_unknown_fields_are_dropped_with_a_warning_or_without_one(validation: str, warnings: list[str]) -> None:
    """`kubectl apply --validate=warn` of an object that exists was refused."""
    asked = request({"metadata": {"labels": {"tier": "front"}}, "spec": {"bogus": 3}})
    asked.options.fieldValidation = validation
    with collect_warnings() as result:
        after = patch_function(PODS, asked)(old())
    assert after.metadata.labels["tier"] == "front"
    assert list(result) == warnings


def test_strict_validation_refuses_unknown_fields() -> None:
    asked = request({"spec": {"bogus": 3}})
    asked.options.fieldValidation = "Strict"
    refusal = refused(asked)
    assert (refusal.reason, refusal.message) == ("BadRequest", 'strict decoding error: unknown field "spec.bogus"')


def test_malformed_directives_are_never_ignored() -> None:
    asked = request({"spec": {"$patch": "fly"}})
    asked.options.fieldValidation = "Ignore"
    assert "$patch" in refused(asked).message


def test_operations_on_its_json_form() -> None:
    """What a test sees is the very version that is patched: it may look at the resourceVersion."""
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/example.com~1app"},
        {"op": "add", "path": "/spec/tolerations", "value": [{"key": "gpu", "operator": "Exists"}]},
    ]
    after = patch_function(PODS, request(patch, PatchRequest.JSON))(old())
    assert dict(after.metadata.labels) == {"example.com/app": "web"}
    assert [toleration.key for toleration in after.spec.tolerations] == ["gpu"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request({}, name=""), "name: Required value"),
        (request({}, PatchRequest.UNSPECIFIED), "type: expected MERGE, STRATEGIC_MERGE, JSON or APPLY"),
        (request({}, subresource="scale"), 'subresource: "scale" cannot be patched'),
        (request(b"{"), "patch: not JSON"),
        (request([]), "patch: expected a JSON object"),
        (request({}, PatchRequest.JSON), "patch: expected a JSON array"),
    ],
)
def test_malformed_patch_is_refused(asked: PatchRequest, message: str) -> None:
    refusal = refused(asked)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BadRequest") and refusal.message.startswith(message)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "test", "path": "/metadata/name", "value": "b"}, "testing value /metadata/name failed: test failed"),
        ({"op": "remove", "path": "/status/reason"}, 'remove operation does not apply: doc is missing path: "/status/reason"'),
        ({"op": "replace", "path": "", "value": 5}, "the result is not a JSON object"),
        ({"op": "fly", "path": "/x"}, "operation 0: op: expected one of add, remove"),
    ],
)
def test_patch_that_does_not_apply_to_this_object_is_invalid(operation: object, message: str) -> None:
    """A client that goes by the reason tries another object, or reads this one again, instead of mending its patch."""
    refusal = refused(request([operation], PatchRequest.JSON))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "Invalid")
    assert refusal.message.startswith(f'Pod "a" is invalid: patch: {message}')


@pytest.mark.parametrize(
    ("patch", "field", "message"),
    [
        ({"colour": 1}, "colour", "unknown field"),
        ({"spec": {"nodename": "x"}}, "spec.nodename", 'did you mean "nodeName"'),
        ({"spec": 5}, "spec", "expected an object, got a number (5)"),
        ({"spec": {"priority": "high"}}, "spec.priority", "expected a whole number"),
        ({"spec": {"containers": [{"name": "x", "ports": 80}]}}, "spec.containers[0].ports", "expected a list"),
        ({"metadata": {"labels": {"app": 1}}}, "metadata.labels[app]", "expected a string"),
        ({"kind": "Node"}, "kind", 'expected "Pod"'),
        ({"apiVersion": "v2"}, "apiVersion", 'expected "v1"'),
        ({"metadata": {"name": "b"}}, "metadata.name", "field is immutable"),
        ({"metadata": {"uid": "b"}}, "metadata.uid", "field is immutable"),
        ({"metadata": None}, "metadata.name", "field is immutable"),
        ({"$patch": "delete"}, "metadata.name", "field is immutable"),
    ],
)
def test_wrong_field_is_named(patch: Any, field: str, message: str) -> None:
    refusal = refused(request(patch))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "Invalid")
    assert refusal.violations[0].field == field and message in refusal.violations[0].message
    assert refusal.message.startswith('Pod "a" is invalid: ')


def test_namespace_cannot_be_patched() -> None:
    refusal = refused(request({"metadata": {"namespace": "b"}}))
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert (refusal.reason, refusal.message) == ("BadRequest", message)


def test_all_violations_are_reported() -> None:
    assert [violation.field for violation in refused(request({"spec": {"x": 1, "y": 2}})).violations] == ["spec.x", "spec.y"]
