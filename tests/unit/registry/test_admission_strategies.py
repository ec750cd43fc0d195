"""Validation of webhook configurations and admission policies: the messages of Kubernetes."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import by_kind
from pinnace.apiserver.registry.strategies import STRATEGIES

WEBHOOK = {
    "name": "h.example.com",
    "clientConfig": {"url": "https://h/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
POLICY = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
MUTATIONS = [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}]


def violations(kind: str, **fields: Any) -> list[str]:
    resource = by_kind(kind, "admissionregistration.k8s.io/v1")
    assert resource is not None
    obj = from_dict(resource, {"metadata": {"name": "x"}} | fields)
    strategy = STRATEGIES[resource.plural]
    strategy.prepare_create(obj)
    return [str(violation) for violation in strategy.validate(obj)]


def of_webhook(**more: Any) -> list[str]:
    found = violations("ValidatingWebhookConfiguration", webhooks=[WEBHOOK | more])
    return [text.removeprefix("webhooks[0].") for text in found]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"name": "a.b"}, ['name: Invalid value: "a.b": should be a domain with at least three segments separated by dots']),
        ({"sideEffects": None}, ["sideEffects: Required value: must specify one of None, NoneOnDryRun"]),
        ({"sideEffects": "Some"}, ['sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"']),
        ({"timeoutSeconds": 31}, ["timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"]),
        ({"failurePolicy": "X"}, ['failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"']),
        ({"admissionReviewVersions": []}, ["admissionReviewVersions: Required value: must specify one of v1, v1beta1"]),
        (
            {"admissionReviewVersions": ["v2"]},
            ['admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'],
        ),
        ({"clientConfig": {}}, ["clientConfig: Required value: exactly one of url or service is required"]),
        (
            {"clientConfig": {"url": "http://h/x?a=b"}},
            [
                "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: "
                "https://host[/path]",
                'clientConfig.url: Invalid value: "a=b": query parameters are not permitted in the URL',
            ],
        ),
        ({"clientConfig": {"service": {"name": "s"}}}, ["clientConfig.service.name: Required value"]),
        (
            {"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "x", "port": 70000}}},
            [
                "clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
                "clientConfig.service.path: Invalid value: \"x\": must start with a '/'",
                'clientConfig.service.path: Invalid value: "x": segment[0] may not be empty',
            ],
        ),
        ({"rules": [RULE | {"operations": ["*", "CREATE"]}]}, [
            'rules[0].operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations'
        ]),
        ({"rules": [RULE | {"resources": ["pods/*", "pods/status"]}]}, [
            "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status"
        ]),
        (
            {"matchConditions": [{"name": "a", "expression": "1"}]},
            ['matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int'],
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            ['matchConditions[1].name: Duplicate value: "a"'],
        ),
    ],
)  # fmt: skip
def test_webhook_is_validated(fields: dict[str, Any], expected: list[str]) -> None:
    assert of_webhook(**fields) == expected


def test_names_of_webhooks_are_unique() -> None:
    assert violations("MutatingWebhookConfiguration", webhooks=[WEBHOOK, WEBHOOK]) == [
        'webhooks[1].name: Duplicate value: "h.example.com"'
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"matchConstraints": None}, ["spec.matchConstraints: Required value"]),
        ({"matchConstraints": {}}, ["spec.matchConstraints.resourceRules: Required value"]),
        (
            {"validations": []},
            [
                f"spec.{field}: Required value: validations or auditAnnotations must contain at least one item"
                for field in ("validations", "auditAnnotations")
            ],
        ),
        (
            {"validations": [{"expression": "true", "message": "a\nb"}]},
            ['spec.validations[0].message: Invalid value: "a\\nb": message must not contain line breaks'],
        ),
        (
            {"validations": [{"expression": "true", "reason": "X"}]},
            [
                'spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", '
                '"RequestEntityTooLarge"'
            ],
        ),
        (
            {"variables": [{"name": "for", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "for": name is not a valid CEL identifier'],
        ),
        (
            {"paramKind": {"apiVersion": "a/b/c", "kind": "X"}},
            ['spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
        ),
        ({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]}, [
            'spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] '
            "but got int"
        ]),
    ],
)  # fmt: skip
def test_policy_is_validated(fields: dict[str, Any], expected: list[str]) -> None:
    assert violations("ValidatingAdmissionPolicy", spec=POLICY | fields) == expected


def test_params_are_declared_only_with_kind() -> None:
    spec = POLICY | {"validations": [{"expression": "params != null"}]}
    (violation,) = violations("ValidatingAdmissionPolicy", spec=spec)
    assert "undeclared reference to 'params'" in violation
    assert violations("ValidatingAdmissionPolicy", spec=spec | {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"mutations": []}, ["spec.mutations: Required value: mutations must contain at least one item"]),
        ({"reinvocationPolicy": ""}, ["spec.reinvocationPolicy: Required value"]),
        (
            {"mutations": [{"patchType": "JSONPatch"}]},
            ["spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"],
        ),
        (
            {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]},
            ['spec.mutations[0].jsonPatch.expression: Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)'],
        ),
        (
            {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "null"}}]},
            [
                'spec.mutations[0].applyConfiguration.expression: Invalid value: "null": must evaluate to Object '
                "but got null_type"
            ],
        ),
    ],
)
def test_mutating_policy_is_validated(fields: dict[str, Any], expected: list[str]) -> None:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "reinvocationPolicy": "Never", "mutations": MUTATIONS} | fields
    assert violations("MutatingAdmissionPolicy", spec=spec) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"policyName": ""}, ["spec.policyName: Required value"]),
        ({"validationActions": []}, ["spec.validationActions: Required value: at least one validation action is required"]),
        (
            {"paramRef": {"parameterNotFoundAction": "Deny"}},
            ["spec.paramRef: Required value: one of name or selector must be specified"],
        ),
        ({"paramRef": {"name": "a"}}, ["spec.paramRef.parameterNotFoundAction: Required value"]),
    ],
)
def test_binding_is_validated(fields: dict[str, Any], expected: list[str]) -> None:
    spec = {"policyName": "p", "validationActions": ["Deny"]} | fields
    assert violations("ValidatingAdmissionPolicyBinding", spec=spec) == expected


def test_expressions_are_limited() -> None:
    conditions = [{"name": f"c{index}", "expression": f"'{'x' * 20_000}' != ''"} for index in range(4)]
    (violation,) = violations("ValidatingWebhookConfiguration", webhooks=[WEBHOOK | {"matchConditions": conditions}])
    assert violation == "webhooks: Too long: may not be more than 65536 bytes"
    for kind, rules in (("ValidatingAdmissionPolicy", {"validations": []}), ("MutatingAdmissionPolicy", {"mutations": []})):
        (violation,) = violations(kind, spec=rules | {"variables": conditions})
        assert violation == "spec: Too long: may not be more than 65536 bytes"
