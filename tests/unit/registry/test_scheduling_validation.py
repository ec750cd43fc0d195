"""What a pod says about where it must, may, or would rather be."""

from typing import Any

import pytest

from pinnace.api.names import _NO_KEY, _NO_LABEL, _NO_SUBDOMAIN, _NO_VALUE
from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
NOT_ALL = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
NO_OPERATOR = "not a valid selector operator"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}, []),
        ({"key": "a"}, []),
        ({"operator": "Exists"}, []),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}, []),
        ({"key": "a b"}, [f'key: Invalid value: "a b": name part {_NO_KEY}']),
        (
            {},
            [f'operator: Invalid value: "": {NOT_ALL}'],
        ),
        ({"key": "a", "value": "b c"}, [f'operator: Invalid value: "b c": {_NO_VALUE[0]}']),
        (
            {"key": "a", "operator": "Exists", "value": "b"},
            ["operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"],
        ),
        ({"key": "a", "operator": "In"}, ['operator: Unsupported value: "In": supported values: "Equal", "Exists"']),
        (
            {"key": "a", "effect": "Never"},
            ['effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'],
        ),
        (
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
            ["effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
        ),
    ],
)
def test_tolerations(toleration: Data, expected: list[str]) -> None:
    assert created(PODS, pod(tolerations=[toleration])) == [f"spec.tolerations[0].{violation}" for violation in expected]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"disk": "ssd", "example.com/zone": ""}, []),
        ({"a b": "c"}, [f'spec.nodeSelector: Invalid value: "a b": name part {_NO_KEY}']),
        ({"a": "b c"}, [f'spec.nodeSelector: Invalid value: "b c": {_NO_VALUE[0]}']),
    ],
)
def test_node_selector(selector: Data, expected: list[str]) -> None:
    assert created(PODS, pod(nodeSelector=selector)) == expected


def required(*terms: Data) -> Data:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def expression(operator: str, *values: str, key: str = "k") -> Data:
    return required({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def field(operator: str, *values: str, key: str = "metadata.name") -> Data:
    return required({"matchFields": [{"key": key, "operator": operator, "values": list(values)}]})


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (expression("In", "a", "b"), []),
        (expression("NotIn", ""), []),
        (expression("Exists"), []),
        (expression("DoesNotExist"), []),
        (expression("Gt", "1"), []),
        (required({}), []),
        (required(), [f"{NODE}: Required value: must have at least one node selector term"]),
        (
            expression("In"),
            [f"{NODE}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (
            expression("Exists", "a"),
            [
                f"{NODE}[0].matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or "
                "'DoesNotExist'"
            ],
        ),
        (
            expression("Lt", "1", "2"),
            [
                f"{NODE}[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is "
                "'Lt' or 'Gt'"
            ],
        ),
        (expression("Equals", "a"), [f'{NODE}[0].matchExpressions[0].operator: Invalid value: "Equals": {NO_OPERATOR}']),
        (expression("Exists", key=""), [f'{NODE}[0].matchExpressions[0].key: Invalid value: "": name part must be non-empty']),
        (expression("In", "a b"), [f'{NODE}[0].matchExpressions[0].values[0]: Invalid value: "a b": {_NO_VALUE[0]}']),
        (field("In", "node-0"), []),
        (
            field("In", "a", "b"),
            [
                f"{NODE}[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' "
                "for node field selector"
            ],
        ),
        (field("Exists"), [f'{NODE}[0].matchFields[0].operator: Invalid value: "Exists": {NO_OPERATOR}']),
        (
            field("In", "a", key="spec.x"),
            [f'{NODE}[0].matchFields[0].key: Invalid value: "spec.x": not a valid field selector key'],
        ),
        (field("In", "A"), [f'{NODE}[0].matchFields[0].values[0]: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
        ({"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}, {"weight": 100}]}}, []),
        (
            {"nodeAffinity": {PREFERRED: [{"weight": 0}, {"weight": 101}]}},
            [
                f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100",
                f"spec.affinity.nodeAffinity.{PREFERRED}[1].weight: Invalid value: 101: must be in the range 1-100",
            ],
        ),
    ],
)
def test_node_affinity(affinity: Data, expected: list[str]) -> None:
    assert created(PODS, pod(affinity=affinity)) == expected


TERM: Data = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (TERM, []),
        (TERM | {"namespaces": ["a"], "namespaceSelector": {}, "matchLabelKeys": ["x"], "mismatchLabelKeys": ["y"]}, []),
        ({"topologyKey": ""}, ["topologyKey: Required value: can not be empty"]),
        ({"topologyKey": "a b"}, [f'topologyKey: Invalid value: "a b": name part {_NO_KEY}']),
        (TERM | {"namespaces": ["A"]}, [f'namespaces[0]: Invalid value: "A": {_NO_LABEL[0]}']),
        (
            TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            [f'labelSelector.matchExpressions[0].operator: Invalid value: "Gt": {NO_OPERATOR}'],
        ),
        (
            TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            ["labelSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (
            TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            [
                "labelSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or "
                "'DoesNotExist'"
            ],
        ),
        (
            {"topologyKey": "zone", "matchLabelKeys": ["a"]},
            ["matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
        ),
        (
            TERM | {"matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]},
            ['matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and mismatchLabelKeys'],
        ),
        (TERM | {"mismatchLabelKeys": ["app"]}, []),
    ],
)
def test_pod_affinity(kind: str, term: Data, expected: list[str]) -> None:
    path = f"spec.affinity.{kind}"
    assert created(PODS, pod(affinity={kind: {REQUIRED: [term]}})) == [f"{path}.{REQUIRED}[0].{item}" for item in expected]
    weighted = {"weight": 1, "podAffinityTerm": term}
    assert created(PODS, pod(affinity={kind: {PREFERRED: [weighted]}})) == [
        f"{path}.{PREFERRED}[0].podAffinityTerm.{item}" for item in expected
    ]
    assert created(PODS, pod(affinity={kind: {PREFERRED: [weighted | {"weight": 0}]}}))[0] == (
        f"{path}.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100"
    )


SPREAD: Data = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (SPREAD, []),
        (SPREAD | {"minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}, []),
        (SPREAD | {"maxSkew": 0}, ["maxSkew: Invalid value: 0: must be greater than zero"]),
        (SPREAD | {"topologyKey": ""}, ["topologyKey: Required value: can not be empty"]),
        (
            SPREAD | {"whenUnsatisfiable": ""},
            ['whenUnsatisfiable: Unsupported value: "": supported values: "DoNotSchedule", "ScheduleAnyway"'],
        ),
        (SPREAD | {"minDomains": 0}, ["minDomains: Invalid value: 0: must be greater than zero"]),
        (
            SPREAD | {"minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway"},
            ["minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"],
        ),
        (
            SPREAD | {"nodeAffinityPolicy": "x", "nodeTaintsPolicy": "y"},
            [
                'nodeAffinityPolicy: Unsupported value: "x": supported values: "Honor", "Ignore"',
                'nodeTaintsPolicy: Unsupported value: "y": supported values: "Honor", "Ignore"',
            ],
        ),
        (
            SPREAD | {"matchLabelKeys": ["a"]},
            ["matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
        ),
        (
            SPREAD | {"labelSelector": {"matchLabels": {"a": "b c"}}},
            [f'labelSelector.matchLabels: Invalid value: "b c": {_NO_VALUE[0]}'],
        ),
    ],
)
def test_topology_spread(constraint: Data, expected: list[str]) -> None:
    result = created(PODS, pod(topologySpreadConstraints=[constraint]))
    assert result == [f"spec.topologySpreadConstraints[0].{violation}" for violation in expected]


EXPRESSION: Data = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("keys", "selector", "labels", "expected"),
    [
        (["a", "app"], {"matchLabels": {"app": "web"}}, {"app": "x"}, '[1]: Invalid value: "app": '),
        (["a"], EXPRESSION, {"a": "1"}, '[0]: Invalid value: "a": '),
        (["a", "a"], {}, {"a": "1"}, '[1]: Invalid value: "a": '),
        (["a"], EXPRESSION, {}, ""),
        (["a"], {}, {"a": "1"}, ""),
    ],
)
def test_match_label_keys_in_the_selector_are_refused_if_the_pod_has_the_label(
    keys: list[str], selector: Data, labels: Data, expected: str
) -> None:
    """The field is that of Kubernetes 1.36: the index of the key is behind the term."""
    term: Data = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": keys}
    near = {"podAffinity": {REQUIRED: [term]}}
    away = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}
    for spec, path in (
        ({"topologySpreadConstraints": [SPREAD | term]}, "spec.topologySpreadConstraints[0]"),
        ({"affinity": near}, f"spec.affinity.podAffinity.{REQUIRED}[0]"),
        ({"affinity": away}, f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm"),
    ):
        result = created(PODS, pod(metadata={"labels": labels}, **spec))
        assert result == ([f"{path}{expected}exists in both matchLabelKeys and labelSelector"] if expected else [])


def test_spread_constraint_is_given_once() -> None:
    assert created(PODS, pod(topologySpreadConstraints=[SPREAD, SPREAD | {"maxSkew": 2}])) == [
        'spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"'
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"schedulingGates": [{"name": "example.com/a"}, {"name": "b"}]}, []),
        ({"schedulingGates": [{"name": ""}]}, ['spec.schedulingGates[0]: Invalid value: "": name part must be non-empty']),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, ['spec.schedulingGates[1]: Duplicate value: "a"']),
        (
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
    ],
)
def test_gates(spec: dict[str, Any], expected: list[str]) -> None:
    assert created(PODS, pod(**spec)) == expected
