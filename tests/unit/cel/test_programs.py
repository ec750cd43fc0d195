"""Expressions of admission: match conditions, policies, mutations."""

from typing import Any

import pytest

from pinnace.cel.libraries import AccessQuestion, AuthorizerValue, Decision, ResourceCheck
from pinnace.cel.meter import Meter
from pinnace.cel.programs import (
    ADMISSION_VARIABLES,
    EvaluationError,
    Program,
    Variables,
    compile_expression,
    variables_type,
)
from pinnace.cel.syntax import CompileError

BINDINGS: dict[str, Any] = {
    "object": {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"replicas": 3}},
    "oldObject": None,
    "request": {"operation": "CREATE", "userInfo": {"username": "u", "groups": ["g"]}, "dryRun": False},
    "params": None,
    "namespaceObject": {"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}},
}


def evaluate(text: str, **more: Any) -> Any:
    return compile_expression(text).evaluate({**BINDINGS, **more})


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("object.spec.replicas > 2", True),
        ("oldObject == null && params == null", True),
        ("request.operation == 'CREATE' && 'g' in request.userInfo.groups && !request.dryRun", True),
        ("has(object.metadata.labels) && 'a' in object.metadata.labels", True),
        ("namespaceObject.metadata.name + '!'", "n!"),
        ("namespaceObject.metadata.creationTimestamp < timestamp('2027-01-01T00:00:00Z')", True),
        ("object.?spec.?nope.orValue(7)", 7),
        ("object.metadata.labels.map(k, k + '=' + object.metadata.labels[k])", ["a=b"]),
        ("duration('90s')", "90s"),
        ("optional.none()", None),
    ],
)
def test_results_are_json(text: str, result: Any) -> None:
    assert evaluate(text) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("object.spec.nope == 1", "no such key: nope"),
        ("object.metadata.labels['z'] == ''", "no such key: z"),
        ("object.spec > 3", "no such overload"),
        ("oldObject.spec == 1", "no such key: spec"),
        ("authorizer.path('/x').check('get').allowed()", "no such attribute(s): authorizer"),
        ("[1][3] == 1", "index out of bounds: 3"),
    ],
)
def test_errors_are_values(text: str, message: str) -> None:
    assert evaluate(text) == EvaluationError(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("object.nope +", "compilation failed: ERROR: <input>:1:14: Syntax error: mismatched input '<EOF>' expecting {'[', "),
        ("request.nope == 1", "compilation failed: ERROR: <input>:1:8: undefined field 'nope'"),
        ("variables.x", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')"),
        ("object.spec", "must evaluate to bool but got dyn"),
        ("'x'", "must evaluate to bool but got string"),
    ],
)
def test_compile_errors(text: str, message: str) -> None:
    with pytest.raises(CompileError) as failure:
        compile_expression(text, result_types=["bool"])
    assert str(failure.value).startswith(message)


def test_result_may_have_several_types() -> None:
    with pytest.raises(CompileError, match=r"must evaluate to one of \[string null_type\] but got "):
        compile_expression("1", result_types=["string", "null"])
    assert compile_expression("null", result_types=["string", "null"]).result_type == "null"


class FixedAuthorizer:
    def __init__(self) -> None:
        self.questions: list[AccessQuestion] = []

    def check(self, question: AccessQuestion) -> Decision:
        self.questions.append(question)
        return Decision(question.verb == "get", "because")


def test_authorizer_answers() -> None:
    authorizer = FixedAuthorizer()
    value = AuthorizerValue(authorizer)
    text = "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments')"
    text += ".subresource('status').namespace('d').name('x')"
    assert evaluate(f"{text}.check('get').allowed()", authorizer=value) is True
    assert evaluate("authorizer.path('/healthz').check('put').reason()", authorizer=value) == "because"
    assert authorizer.questions == [
        AccessQuestion("get", "", "apps", "deployments", "status", "d", "x", service_account=("ns", "sa")),
        AccessQuestion("put", "/healthz"),
    ]
    assert evaluate("authorizer.path(' ').check('get').allowed()", authorizer=value) == EvaluationError(
        "path must not be empty"
    )


def test_resource_of_request_is_variable() -> None:
    authorizer = FixedAuthorizer()
    check = ResourceCheck(authorizer, AccessQuestion(group="apps", resource="deployments"))
    assert evaluate("authorizer.requestResource.check('get').allowed()", **{"authorizer.requestResource": check}) is True
    assert authorizer.questions[0].resource == "deployments"


def test_checks_of_authorizer_are_limited() -> None:
    checks = " && ".join(["authorizer.path('/x').check('get').allowed()"] * 3)
    failure = evaluate(checks, authorizer=AuthorizerValue(FixedAuthorizer()))
    assert failure == EvaluationError("operation cancelled: actual cost limit exceeded")


def test_objects_of_mutations() -> None:
    text = "Object{spec: Object.spec{replicas: object.spec.replicas + 1, ?paused: object.?spec.?paused}}"
    program = compile_expression(text, result_types=["Object"])
    assert program.evaluate(BINDINGS) == {"spec": {"replicas": 4}}
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 'x'}]"
    assert compile_expression(patch, result_types=["list(JSONPatch)"]).evaluate(BINDINGS) == [
        {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x"}
    ]
    with pytest.raises(CompileError, match="undefined field 'nope'"):
        compile_expression("JSONPatch{nope: 1}")


@pytest.mark.parametrize(
    ("text", "wrong", "expected"),
    [
        ("Object{spec: Object.specx{replicas: 1}}", "Object.specx", "Object.spec"),
        ("Object{spec: Object.spec{a: [Object.spec.b{}]}}", "Object.spec.b", "Object.spec.a"),
        ("Object{spec: Object.spec{a: {'k': Object.spec.a{b: Object.spec.b{}}}}}", "Object.spec.b", "Object.spec.a.b"),
        ("[JSONPatch{op: 'add', path: '/x', value: Object.a{b: [1, 2].map(i, Object.b{})}}]", "Object.b", "Object.a.b"),
    ],
)
def test_types_of_objects_follow_the_fields(text: str, wrong: str, expected: str) -> None:
    failure = compile_expression(text).evaluate(BINDINGS)
    assert failure == EvaluationError(
        f'type mismatch: unexpected type name "{wrong}", expected "{expected}", which matches field name path from root '
        "Object type"
    )
    assert compile_expression(text.replace(wrong + "{", expected + "{")).evaluate(BINDINGS)


def test_equality_of_objects() -> None:
    assert evaluate("Object.a{b: 1} == Object.a{b: 1.0}") is True
    assert evaluate("Object.a{b: 1} == Object.a{b: 2}") is False
    assert evaluate("dyn(Object.a{}) == {}") is False


def test_variables_are_evaluated_when_read() -> None:
    programs: dict[str, Program] = {}
    for name, text in (("count", "object.spec.replicas"), ("twice", "variables.count * 2"), ("broken", "object.nope")):
        programs[name] = compile_expression(text, {**ADMISSION_VARIABLES, "variables": variables_type(programs, {})})
    declared = {**ADMISSION_VARIABLES, "variables": variables_type(programs, {})}
    meter = Meter()
    bindings = {**BINDINGS, "variables": Variables(programs, BINDINGS, meter)}
    assert compile_expression("variables.twice == 6 && has(variables.count)", declared).evaluate(bindings, meter) is True
    failure = compile_expression("variables.broken == 1", declared).evaluate(bindings, meter)
    assert failure == EvaluationError('composited variable "broken" fails to evaluate: no such key: nope')
    with pytest.raises(CompileError, match="undefined field 'other'"):
        compile_expression("variables.other", declared)


def test_expressions_of_request_share_work() -> None:
    meter = Meter(work_limit=60_000)
    program = compile_expression("object.all(x, x > -1)")
    values = {"object": list(range(1000))}
    results = [program.evaluate(values, meter) for _ in range(5)]
    assert results[0] is True
    assert results[-1] == EvaluationError("operation cancelled: actual cost limit exceeded")
