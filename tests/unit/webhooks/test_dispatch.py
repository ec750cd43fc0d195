"""What webhooks do to writes, as a client of an API server meets it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import ConfigMap
from pinnace.api.ownership import show_owners
from pinnace.api.pods_pb2 import ExecRequest, PortForwardRequest
from pinnace.api.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS
from pinnace.api.status import STATUS_CODE, STATUS_DETAILS, STATUS_REASON
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.apiserver.auth.authentication import UNSECURED, User
from pinnace.apiserver.errors import Rejected
from tests.unit.auth.matrix import Caller
from tests.unit.webhooks.world import CONFIG_MAPS_RULE, Server, config_map, serving, webhook
from tests.webhook_server import WebhookServer, allow, deny, label, patch, patch_response

GATEWAY_USER = replace(UNSECURED, impersonator="system:gateway")
"""Gateways receive the owners of fields."""


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    server = WebhookServer()
    async with server.run():
        yield server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


async def refusal_of(call: Awaitable[object]) -> tuple[int, str, str]:
    """Return code, reason and message of the HTTP status."""
    with pytest.raises(Rejected) as caught:
        await call
    status = dict(caught.value.refusal.metadata)
    return int(status[STATUS_CODE]), status[STATUS_REASON], caught.value.refusal.message


async def test_review_contains_request_of_create(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"m": allow, "v": allow}
    await server.configure(mutating=[webhook(hooks, "m")], validating=[webhook(hooks, "v")])
    options = {"fieldManager": "kubectl-create", "fieldValidation": "Strict"}
    await server.create(config_map(data={"a": "1"}), options=options)
    (mutating,), (validating,) = hooks.requests("m"), hooks.requests("v")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    expected = {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "a",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "system:unsecured", "groups": ["system:masters", "system:authenticated"]},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", **options},
    }
    for request in (mutating, validating):
        assert {name: value for name, value in request.items() if name not in ("uid", "object")} == expected
    before, after = mutating["object"], validating["object"]
    assert [entry["manager"] for entry in before["metadata"].pop("managedFields")] == ["kubectl-create"]
    assert before == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {"a": "1"},
    }
    assert after["metadata"]["uid"] and after["metadata"]["creationTimestamp"]
    assert hooks.reviews["m"][0]["apiVersion"] == "admission.k8s.io/v1"


async def test_mutating_webhook_sees_no_generated_name(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"m": label("seen"), "v": allow}
    await server.configure(mutating=[webhook(hooks, "m")], validating=[webhook(hooks, "v")])
    form = config_map()
    form["metadata"] = {"generateName": "a-", "namespace": "default"}
    created = await server.create(form)
    (mutating,), (validating,) = hooks.requests("m"), hooks.requests("v")
    metadata = mutating["object"]["metadata"]
    assert "name" not in mutating and metadata.keys() == {"generateName", "namespace", "managedFields"}
    assert validating["name"] == created.metadata.name != "a-" and created.metadata.labels["seen"] == "yes"


async def test_webhooks_are_called_by_name_of_configuration_and_position(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {path: label(path) for path in "abc"}
    await server.configure(mutating=[webhook(hooks, "c"), webhook(hooks, "a"), webhook(hooks, "b")])
    await server.create(config_map())
    seen = {path: sorted(hooks.requests(path)[0]["object"]["metadata"].get("labels", {})) for path in "abc"}
    assert seen == {"c": [], "a": ["c"], "b": ["a", "c"]}


async def test_update_review_contains_both_versions(hooks: WebhookServer, server: Server) -> None:
    created = await server.create(config_map(data={"a": "1"}))
    hooks.answers = {"v": allow}
    await server.configure(validating=[webhook(hooks, "v")])
    patched = b'{"data": {"a": "2"}}'
    await server.call("ConfigMaps/Patch", namespace="default", name="a", type=1, patch=patched, options={"fieldManager": "me"})
    (request,) = hooks.requests("v")
    assert request["operation"] == "UPDATE"
    assert (request["object"]["data"], request["oldObject"]["data"]) == ({"a": "2"}, {"a": "1"})
    assert request["object"]["metadata"]["resourceVersion"] == created.metadata.resourceVersion
    assert request["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}


async def test_delete_review_contains_old_object(hooks: WebhookServer, server: Server) -> None:
    await server.create(config_map())
    hooks.answers = {"m": allow, "v": deny(message="stay")}
    await server.configure(mutating=[webhook(hooks, "m")], validating=[webhook(hooks, "v")])
    code, _, message = await refusal_of(
        server.call("ConfigMaps/Delete", namespace="default", name="a", options={"propagationPolicy": "Background"})
    )
    assert (code, message) == (400, 'admission webhook "v.example.com" denied the request: stay')
    for request in (*hooks.requests("m"), *hooks.requests("v")):
        assert request["object"] is None and request["oldObject"]["metadata"]["name"] == "a"
        assert request["options"]["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        ({}, 400, "", 'admission webhook "v.example.com" denied the request without explanation'),
        ({"message": "no"}, 400, "", 'admission webhook "v.example.com" denied the request: no'),
        ({"reason": "Teapot"}, 400, "Teapot", 'admission webhook "v.example.com" denied the request: Teapot'),
        ({"code": 418, "message": "no", "reason": "T"}, 418, "T", 'admission webhook "v.example.com" denied the request: no'),
        ({"code": 200, "message": "no"}, 400, "", 'admission webhook "v.example.com" denied the request: no'),
    ],
)
async def test_denial_has_status_of_webhook(
    hooks: WebhookServer, server: Server, status: dict[str, Any], code: int, reason: str, message: str
) -> None:
    hooks.answers = {"v": deny(**status)}
    await server.configure(validating=[webhook(hooks, "v")])
    assert await refusal_of(server.create(config_map())) == (code, reason, message)


async def test_first_denial_of_parallel_webhooks_is_returned(hooks: WebhookServer, server: Server) -> None:
    async def deny_late(request: Any) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"allowed": False, "status": {"message": "first"}}

    hooks.answers = {"a": deny_late, "b": deny(message="second")}
    await server.configure(validating=[webhook(hooks, "a"), webhook(hooks, "b")])
    assert (await refusal_of(server.create(config_map())))[2].endswith("denied the request: first")


async def test_warnings_and_causes_reach_the_client(hooks: WebhookServer, server: Server) -> None:
    details = {"causes": [{"field": "data", "message": "bad"}]}
    hooks.answers = {
        "a": lambda request: {"allowed": True, "warnings": ["careful"]},
        "b": lambda request: {"allowed": False, "warnings": ["denied"], "status": {"code": 422, "details": details}},
    }
    await server.configure(mutating=[webhook(hooks, "a")], validating=[webhook(hooks, "b")])
    with pytest.raises(Rejected) as caught:
        await server.create(config_map())
    assert server.warnings == ["careful", "denied"]
    assert json.loads(dict(caught.value.refusal.metadata)[STATUS_DETAILS]) == details


async def test_webhooks_that_need_it_are_called_again_once(hooks: WebhookServer, server: Server) -> None:
    def count(request: Any) -> dict[str, Any]:
        number = int(request["object"]["metadata"].get("labels", {}).get("count", 0)) + 1
        return dict(label("count", str(number))(request))

    hooks.answers = {"a": count, "b": label("b"), "c": label("c")}
    again = {"reinvocationPolicy": "IfNeeded"}
    await server.configure(mutating=[webhook(hooks, "a", **again), webhook(hooks, "b"), webhook(hooks, "c", **again)])
    created = await server.create(config_map())
    assert {path: len(hooks.requests(path)) for path in "abc"} == {"a": 2, "b": 1, "c": 2}
    assert dict(created.metadata.labels) == {"count": "2", "b": "yes", "c": "yes"}


async def test_webhook_is_not_called_again_without_change(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"a": label("a"), "b": allow}
    await server.configure(mutating=[webhook(hooks, "a", reinvocationPolicy="IfNeeded"), webhook(hooks, "b")])
    await server.create(config_map())
    assert len(hooks.requests("a")) == 1


async def test_fields_of_webhooks_have_no_owner(hooks: WebhookServer, server: Server) -> None:
    applied = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"mine": "1"}}'
    options = {"fieldManager": "me"}
    await server.call("ConfigMaps/Patch", namespace="default", name="a", type=4, patch=applied, options=options)
    hooks.answers = {"m": patch({"op": "add", "path": "/data/theirs", "value": "1"})}
    await server.configure(mutating=[webhook(hooks, "m")])
    changed = applied.replace(b'"1"', b'"2"')
    data = await server.call(
        "ConfigMaps/Patch", GATEWAY_USER, namespace="default", name="a", type=4, patch=changed, options=options
    )
    stored = ConfigMap.FromString(data)
    assert dict(stored.data) == {"mine": "2", "theirs": "1"}
    show_owners(CONFIG_MAPS, stored)
    owned = [json.loads(entry.fieldsV1.Raw) for entry in stored.metadata.managedFields]
    assert owned == [{"f:data": {"f:mine": {}}}]
    (request,) = hooks.requests("m")
    (seen,) = request["object"]["metadata"]["managedFields"]
    assert (seen["manager"], seen["fieldsV1"]) == ("me", owned[0])


async def test_selectors_and_operations_restrict_calls(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = dict.fromkeys(("labels", "namespaces", "updates", "others"), allow)
    rule = dict(CONFIG_MAPS_RULE)
    await server.configure(
        validating=[
            webhook(hooks, "labels", objectSelector={"matchLabels": {"a": "b"}}),
            webhook(hooks, "namespaces", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}}),
            webhook(hooks, "updates", rules=[rule | {"operations": ["UPDATE"]}]),
            webhook(hooks, "others", rules=[rule | {"resources": ["secrets", "configmaps/status"]}]),
        ]
    )
    await server.create(config_map())
    assert sorted(hooks.reviews) == ["namespaces"]
    form = config_map("b")
    form["metadata"]["labels"] = {"a": "b"}
    await server.create(form)
    assert {path: len(reviews) for path, reviews in hooks.reviews.items()} == {"namespaces": 2, "labels": 1}


async def test_dry_run_reaches_webhook(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"v": allow}
    await server.configure(validating=[webhook(hooks, "v", sideEffects="NoneOnDryRun")])
    await server.create(config_map(), options={"dryRun": ["All"]})
    assert hooks.requests("v")[0]["dryRun"] is True


async def test_configurations_are_exempt(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"v": deny()}
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    await server.configure(validating=[webhook(hooks, "v", rules=[rule])])
    await server.call("ValidatingWebhookConfigurations/Delete", name="hooks")
    await server.settle()
    await server.create(config_map())
    assert not hooks.reviews


async def test_failed_call_rejects_or_is_ignored_by_failure_policy(hooks: WebhookServer, server: Server) -> None:
    gone = {"clientConfig": {"url": "https://127.0.0.1:1/x"}}
    await server.configure(validating=[webhook(hooks, "v", **gone)])
    problem = (
        'failed calling webhook "v.example.com": failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": '
        "dial tcp 127.0.0.1:1: connect: connection refused"
    )
    expected = 500, "InternalError", f"Internal error occurred: {problem}"
    assert await refusal_of(server.create(config_map())) == expected
    await server.call("ValidatingWebhookConfigurations/Delete", name="hooks")
    await server.configure(validating=[webhook(hooks, "v", failurePolicy="Ignore", **gone)])
    assert (await server.create(config_map())).metadata.name == "a"


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ({"uid": "other", "allowed": True}, "received invalid webhook response: expected response.uid="),
        ({"allowed": True, "patch": "e30="}, "webhook returned response.patch but not response.patchType"),
        ({"allowed": True, "patch": "?", "patchType": "JSONPatch"}, "failed to call webhook: illegal base64 data"),
        (
            {"allowed": True, "patch": "ew==", "patchType": "JSONPatch"},
            'webhook "m.example.com": received undecodable patch in webhook response: unexpected end of JSON input',
        ),
        ({"allowed": True, "patch": "W10=", "patchType": "Merge"}, '"m.example.com": unsupported patch type "Merge"'),
        (dict(patch_response([{"op": "remove", "path": "/nope"}])), "remove operation does not apply"),
        (dict(patch_response([{"op": "replace", "path": "/data", "value": 1}])), "data: expected an object"),
        (dict(patch_response([{"op": "replace", "path": "", "value": [1]}])), "the patched object is not a JSON object"),
    ],
)
async def test_invalid_response_rejects_write(
    hooks: WebhookServer, server: Server, response: dict[str, Any], problem: str
) -> None:
    hooks.answers = {"m": lambda request: response}
    await server.configure(mutating=[webhook(hooks, "m")])
    code, reason, message = await refusal_of(server.create(config_map(data={"a": "1"})))
    assert (code, reason) == (500, "InternalError") and problem in message


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "failed to call webhook: 0-length response with status code: 200"),
        (b"hello", "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h' looking for"),
        (b"[1]", "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal"),
        (b'{"kind": "Foo", "apiVersion": "v1"}', 'failed to call webhook: no kind "Foo" is registered for version "v1"'),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "UID"}}',
            "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            b'{"response": {"uid": "UID", "allowed": true}}',
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
            "got /, Kind=",
        ),
        (b'{"kind": "AdmissionReview"}', "received invalid webhook response: webhook response was absent"),
    ],
    ids=["empty", "text", "list", "kind", "version", "type", "absent"],
)
async def test_undecodable_response_rejects_write(hooks: WebhookServer, server: Server, body: bytes, problem: str) -> None:
    async def answer(request: web.Request, review: Any) -> web.Response:
        return web.Response(body=body.replace(b"UID", review["request"]["uid"].encode()))

    hooks.raw = {"v": answer}
    await server.configure(validating=[webhook(hooks, "v")])
    code, reason, message = await refusal_of(server.create(config_map()))
    assert (code, reason) == (500, "InternalError")
    assert message.startswith(f'Internal error occurred: failed calling webhook "v.example.com": {problem}')


async def test_webhook_can_rename_new_object_but_not_move_it(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"m": patch({"op": "replace", "path": "/metadata/name", "value": "renamed"})}
    await server.configure(mutating=[webhook(hooks, "m")])
    assert (await server.create(config_map())).metadata.name == "renamed"
    hooks.answers = {"m": patch({"op": "replace", "path": "/metadata/namespace", "value": "kube-system"})}
    with pytest.raises(Rejected, match="the namespace of the provided object does not match"):
        await server.create(config_map("b"))


async def test_invalid_object_of_webhook_is_refused(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"m": label("-bad-")}
    await server.configure(mutating=[webhook(hooks, "m")])
    with pytest.raises(Rejected, match=r"is invalid: metadata\.labels"):
        await server.create(config_map())


async def test_scale_is_reviewed_as_scale(hooks: WebhookServer, server: Server) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "d", "namespace": "default"}
    await server.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    hooks.answers = {"m": patch({"op": "replace", "path": "/spec/replicas", "value": 3}), "v": allow}
    rule = {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}
    rules = {"rules": [rule]}
    await server.configure(mutating=[webhook(hooks, "m", **rules)], validating=[webhook(hooks, "v", **rules)])
    await server.call("Deployments/PatchScale", namespace="default", name="d", type=1, patch=b'{"spec": {"replicas": 2}}')
    (request,) = hooks.requests("v")
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"]["resource"] == "deployments" and request["subResource"] == "scale"
    assert (request["object"]["spec"]["replicas"], request["oldObject"]["spec"]["replicas"]) == (3, 1)
    stored = DEPLOYMENTS.message.FromString(await server.call("Deployments/Get", namespace="default", name="d"))
    assert stored.spec.replicas == 3


async def test_binding_and_eviction_are_reviewed(hooks: WebhookServer, server: Server) -> None:
    containers = [{"name": "c", "image": "i"}]
    metadata = {"name": "p", "namespace": "default"}
    await server.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})
    hooks.answers = {"v": deny(code=403, message="no")}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding", "pods/eviction"]}
    await server.configure(validating=[webhook(hooks, "v", rules=[rule])])
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": "n"}}
    assert (await refusal_of(server.call("Pods/Bind", binding=binding)))[0] == 403
    assert (await refusal_of(server.call("Pods/Evict", eviction={"metadata": metadata})))[0] == 403
    kinds = [(request["kind"]["kind"], request["object"]["kind"], request["subResource"]) for request in hooks.requests("v")]
    assert kinds == [("Binding", "Binding", "binding"), ("Eviction", "Eviction", "eviction")]


async def test_user_of_request_is_reviewed(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"v": allow}
    await server.configure(validating=[webhook(hooks, "v")])
    user = User("anna", ("system:masters",), uid="u", extra=(("example.com/pod", ("p",)),))
    await server.create(config_map(), user=user)
    extra = {"example.com/pod": ["p"]}
    assert hooks.requests("v")[0]["userInfo"] == {"username": "anna", "uid": "u", "groups": ["system:masters"], "extra": extra}


@pytest.mark.parametrize(
    ("method", "request_type", "start", "subresource", "options"),
    [
        (
            "Exec",
            ExecRequest,
            {"name": "p", "command": ["ls"], "stdin": True},
            "exec",
            {"kind": "PodExecOptions", "apiVersion": "v1", "stdin": True, "stdout": True, "stderr": True, "command": ["ls"]},
        ),
        (
            "PortForward",
            PortForwardRequest,
            {"name": "p", "port": 80},
            "portforward",
            {"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80]},
        ),
    ],
)
async def test_connection_is_reviewed(
    hooks: WebhookServer,
    server: Server,
    method: str,
    request_type: Any,
    start: dict[str, Any],
    subresource: str,
    options: dict[str, Any],
) -> None:
    hooks.answers = {"v": deny(message="no shells")}
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*"]}
    await server.configure(validating=[webhook(hooks, "v", rules=[rule])])

    async def requests() -> AsyncIterator[Any]:
        yield request_type(start=start)

    async def connect() -> None:
        stream = server.assembly.methods[f"/pinnace.v1.Pods/{method}"].stream(requests(), Caller(UNSECURED))
        async for _ in stream:
            pass

    assert (await refusal_of(connect()))[2].endswith("denied the request: no shells")
    (request,) = hooks.requests("v")
    assert (request["operation"], request["subResource"], request["object"]) == ("CONNECT", subresource, options)
    assert (request["name"], request["namespace"], request["options"]) == ("p", "default", None)


async def test_recorded_events_are_reviewed(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"v": lambda request: {"allowed": request["object"]["reason"] != "Bad"}}
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"]}
    await server.configure(validating=[webhook(hooks, "v", rules=[rule])])
    target = {"kind": "Pod", "namespace": "default", "name": "p"}
    events = [
        from_dict(EVENTS, {"metadata": {"name": reason.lower()}, "involvedObject": target, "reason": reason, "type": "Normal"})
        for reason in ("Bad", "Good")
    ]
    response = BatchResponse.FromString(await server.call("Events/Record", items=events))
    assert [item.HasField("error") for item in response.items] == [True, False]
    assert [request["operation"] for request in hooks.requests("v")] == ["CREATE", "CREATE"]
    await server.settle()
    await server.call("Events/Record", items=events[1:])
    assert hooks.requests("v")[-1]["operation"] == "UPDATE"


async def test_match_condition_decides_about_call(hooks: WebhookServer, server: Server) -> None:
    hooks.answers = {"v": deny()}
    conditions = [{"name": "people", "expression": "!request.userInfo.username.startsWith('system:')"}]
    await server.configure(validating=[webhook(hooks, "v", matchConditions=conditions)])
    await server.create(config_map("a"))
    assert (await refusal_of(server.create(config_map("b"), user=User("anna", ("system:masters",)))))[0] == 400
    assert [request["name"] for request in hooks.requests("v")] == ["b"]


async def test_failing_match_condition_rejects_write(hooks: WebhookServer, server: Server) -> None:
    conditions = [{"name": "broken", "expression": "object.data.nope == '1'"}]
    await server.configure(validating=[webhook(hooks, "v", matchConditions=conditions)])
    code, reason, message = await refusal_of(server.create(config_map(data={"a": "1"})))
    assert (code, reason) == (403, "Forbidden")
    failure = "expression 'object.data.nope == '1'' resulted in error: no such key: nope"
    assert message == f'configmaps "a" is forbidden: {failure}'
