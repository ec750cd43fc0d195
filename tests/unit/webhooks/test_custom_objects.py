"""Webhooks and policies about custom objects, through a gateway."""

import base64
import json
from typing import Any

from tests.unit.gateway.serving import ADMIN, gateway
from tests.webhook_server import WebhookServer, allow, patch

GROUP = "golden.example"
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": SCHEMA, "subresources": {"status": {}}},
            {"name": "v2", "served": True, "storage": False, "schema": SCHEMA},
        ],
    },
}
REGISTRATION = "admissionregistration.k8s.io/v1"
CREATES = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}


def widget(name: str, version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def test_custom_objects_are_reviewed_in_version_of_rule() -> None:
    hooks = WebhookServer()
    hooks.answers = {"m": patch({"op": "add", "path": "/spec/color", "value": "red"}), "v": allow}
    async with gateway() as served, hooks.run():

        async def send(path: str, body: Any) -> tuple[int, Any]:
            answer = await served.ask("POST", path, body, user=ADMIN, content_type="application/json")
            return answer[0], json.loads(answer[2])

        assert (await send("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION))[0] == 201
        for kind, path in (("MutatingWebhookConfiguration", "m"), ("ValidatingWebhookConfiguration", "v")):
            hook = {
                "name": f"{path}.example.com",
                "clientConfig": {"url": hooks.url(path), "caBundle": base64.b64encode(hooks.ca_bundle).decode()},
                "rules": [CREATES],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            body = {"apiVersion": REGISTRATION, "kind": kind, "metadata": {"name": "hooks"}, "webhooks": [hook]}
            code, answer = await send(f"/apis/{REGISTRATION}/{kind.lower()}s", body)
            assert code == 201, answer
        policy = {
            "matchConstraints": {"resourceRules": [CREATES]},
            "validations": [{"expression": "object.spec.size <= 3 && object.apiVersion == 'golden.example/v1'"}],
        }
        policies = f"/apis/{REGISTRATION}/validatingadmissionpolicies"
        kind = {"apiVersion": REGISTRATION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "sizes"}}
        assert (await send(policies, kind | {"spec": policy}))[0] == 201
        binding = kind | {"kind": "ValidatingAdmissionPolicyBinding"}
        spec = {"policyName": "sizes", "validationActions": ["Deny"]}
        assert (await send(f"/apis/{REGISTRATION}/validatingadmissionpolicybindings", binding | {"spec": spec}))[0] == 201
        for version in ("v1", "v2"):
            path = f"/apis/{GROUP}/{version}/namespaces/default/widgets"
            code, created = await send(path, widget(f"small-{version}", version, size=1))
            assert (code, created.get("spec")) == (201, {"color": "red", "size": 1}), created
            assert created["apiVersion"] == f"{GROUP}/{version}"
            code, refused = await send(path, widget(f"big-{version}", version, size=9))
            denied = "ValidatingAdmissionPolicy 'sizes' with binding 'sizes' denied request"
            assert code == 422 and denied in refused["message"]
    requests = hooks.requests("v")
    versions = [(request["kind"]["version"], request["requestKind"]["version"]) for request in requests]
    assert versions == [("v1", "v1"), ("v1", "v2")]
    assert all(request["object"]["apiVersion"] == f"{GROUP}/v1" for request in requests)
