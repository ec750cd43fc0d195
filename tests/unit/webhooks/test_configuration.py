"""The file of --admission-control-config-file: what it may say, and how mistakes are told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.api.resources import ALL, LEASES, NAMESPACES, NODES, PODS
from pinnace.apiserver.registry.admission import Operation
from pinnace.apiserver.webhooks.webhook import API_VERSION, MUTATING, VALIDATING, WebhookConfiguration, parse_configuration
from pinnace.runtime.configuration import ConfigurationError

Data = dict[str, Any]
RULE: Data = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
WEBHOOK: Data = {
    "name": "a.example.com",
    "clientConfig": {"url": "grpc://127.0.0.1:9443"},
    "rules": [RULE],
    "sideEffects": "None",
}


def document(*webhooks: Data, kind: str = VALIDATING) -> str:
    return yaml.safe_dump({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "x"}, "webhooks": [*webhooks]})


def only(**changed: Any) -> WebhookConfiguration:
    (result,) = parse_configuration(document(WEBHOOK | changed))
    return result


def concerned(**changed: Any) -> set[tuple[str, str]]:
    return {(operation.name, resource.plural) for operation, resource in only(rules=[RULE | changed]).concerns}


def test_defaults_of_a_webhook_are_those_of_kubernetes() -> None:
    result = only()
    assert (result.address, result.tls, result.mutating, result.timeout, result.ignore_failures) == (
        "127.0.0.1:9443", False, False, 10, False
    )  # fmt: skip
    assert result.concerns == {(Operation.CREATE, PODS)} and result.dry_run
    assert result.namespaces.matches({}) and result.objects.matches({"any": "thing"})


def test_everything_said() -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    result = only(
        failurePolicy="Ignore", timeoutSeconds=30, sideEffects="Some", objectSelector=selector, namespaceSelector=selector
    )
    assert (result.ignore_failures, result.timeout, result.dry_run) == (True, 30, False)
    assert result.objects.matches({"a": "b", "c": ""}) and not result.namespaces.matches({"a": "b"})


def test_several_documents_are_asked_in_their_order() -> None:
    text = "---\n".join((document(WEBHOOK, WEBHOOK | {"name": "b.example.com"}), document(WEBHOOK, kind=MUTATING), ""))
    assert [(item.name, item.mutating) for item in parse_configuration(text)] == [
        ("a.example.com", False), ("b.example.com", False), ("a.example.com", True)
    ]  # fmt: skip


def test_rules() -> None:
    assert concerned(operations=["UPDATE", "DELETE"]) == {("UPDATE", "pods"), ("DELETE", "pods")}
    assert concerned(operations=["*"], resources=["pods/status"]) == {("UPDATE_STATUS", "pods")}
    assert concerned(operations=["*"], resources=["pods/*"]) == {(item.name, "pods") for item in Operation}, "the pods, too"
    assert concerned(resources=["pods/*"]) == concerned(resources=["pods/*", "pods"]) == concerned(resources=["pods"])
    assert concerned(operations=["*"], resources=["*", "pods/status", "pods/*", "*/status"]) > {("UPDATE_STATUS", "pods")}
    assert concerned(operations=["*"], resources=["*/status"], scope="Cluster") >= {("UPDATE_STATUS", NODES.plural)}
    assert ("CREATE", LEASES.plural) not in concerned(resources=["*"])
    assert ("CREATE", LEASES.plural) in concerned(resources=["*"], apiGroups=["*"])
    assert concerned(resources=["*"], apiGroups=["*"], apiVersions=["v2"]) == set()
    clusterwide = concerned(resources=["*"], scope="Cluster")
    assert {("CREATE", NODES.plural), ("CREATE", NAMESPACES.plural)} <= clusterwide and ("CREATE", "pods") not in clusterwide
    everything = concerned(operations=["*"], resources=["*/*"], apiGroups=["*"])
    assert everything == {(operation.name, resource.plural) for operation in Operation for resource in ALL}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "a"}, r"webhooks[0].name: should be a domain with at least three segments"),
        ({"name": "A.b.c"}, r"webhooks[0].name: "),
        ({"clientConfig": {"url": "https://h:1"}}, "webhooks[0].clientConfig.url: expected grpc://host:port"),
        ({"clientConfig": {"url": "grpc://h"}}, "webhooks[0].clientConfig.url: expected grpc://host:port"),
        ({"clientConfig": {"url": "grpcs://h:1", "caFile": "nope"}}, "webhooks[0].clientConfig.caFile: file "),
        ({"clientConfig": {"url": "grpc://h:1", "caFile": "nope"}}, "webhooks[0].clientConfig.caFile: requires a url"),
        ({"clientConfig": {"service": {}}}, "webhooks[0].clientConfig.service: unknown field; supported: url, caFile"),
        ({"rules": [RULE | {"operations": ["CONNECT"]}]}, "webhooks[0].rules[0].operations[0]: expected CREATE or UPDATE or"),
        (
            {"rules": [RULE | {"resources": ["pod"]}]},
            "webhooks[0].rules[0].resources[0]: unknown resource pod; examples are pods",
        ),
        (
            {"rules": [RULE | {"resources": ["pods/binding"]}]},
            "webhooks[0].rules[0].resources[0]: unknown resource pods/binding",
        ),
        ({"rules": [RULE | {"resources": []}]}, "webhooks[0].rules[0].resources: expected at least one"),
        *(
            ({"rules": [RULE | {field: values}]}, f"webhooks[0].rules[0].{field}: if '*' is present, must not specify others")
            for field, values in (
                ("operations", ["CREATE", "*"]),
                ("apiGroups", ["*", ""]),
                ("apiVersions", ["v1", "*"]),
            )
        ),
        ({"rules": [RULE | {"apiVersions": [""]}]}, "webhooks[0].rules[0].apiVersions[0]: must not be empty"),
        *(
            ({"rules": [RULE | {"resources": values}]}, f"webhooks[0].rules[0].resources{at}: if '{wild}' is present, must not")
            for values, at, wild in (
                (["*/*", "pods"], "", "*/*"),
                (["pods", "*"], "[0]", "*"),
                (["pods/*", "pods/status"], "[1]", "pods/*"),
                (["*/status", "pods/status"], "[1]", "*/status"),
            )
        ),
        ({"rules": [RULE | {"scope": "Node"}]}, "webhooks[0].rules[0].scope: expected Cluster, Namespaced or *"),
        ({"failurePolicy": "Never"}, "webhooks[0].failurePolicy: expected Fail or Ignore"),
        ({"timeoutSeconds": 0}, "webhooks[0].timeoutSeconds: the timeout value must be between 1 and 30 seconds"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: the timeout value must be between 1 and 30 seconds"),
        ({"sideEffects": None}, "webhooks[0].sideEffects: expected None, NoneOnDryRun, Some or Unknown"),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            "webhooks[0].objectSelector.matchExpressions[0].operator: ",
        ),
        ({"objectSelector": {"labels": {}}}, "webhooks[0].objectSelector.labels: "),
        ({"matchConditions": []}, "webhooks[0].matchConditions: unknown field"),
    ],
)
def test_mistakes(changed: Data, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        only(**changed)
    assert message in str(caught.value)


def test_mistakes_of_the_whole() -> None:
    for text, message in (
        ("kind: Pod", "apiVersion"),
        ("]", "line 1: invalid YAML"),
        (document(WEBHOOK, WEBHOOK), r'webhooks\[1\].name: Duplicate value: "a.example.com"'),
        (document(WEBHOOK) + "---\n" + document({}), r"document 2: webhooks\[0\].name: expected text"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            parse_configuration(text)


def test_files_are_looked_up_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    (result,) = parse_configuration(document(WEBHOOK | {"clientConfig": {"url": "grpcs://h:1", "caFile": "ca.crt"}}), tmp_path)
    assert (result.tls, result.ca) == (True, tmp_path / "ca.crt")
