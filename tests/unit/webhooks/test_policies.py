"""What admission policies do to writes."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import CONFIG_MAPS, VALIDATING_ADMISSION_POLICIES
from pinnace.api.status import STATUS_CODE, STATUS_DETAILS
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.apiserver.auth import audit
from pinnace.apiserver.auth.audit import AuditEvent
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategies import admissionregistration as strategies
from pinnace.apiserver.registry.validation import expressions
from pinnace.apiserver.webhooks import conditions, policies
from tests.unit.webhooks.world import CONFIG_MAPS_RULE, Server, config_map, serving, webhook
from tests.webhook_server import WebhookServer, allow, label

VERSION = "admissionregistration.k8s.io/v1"
PARAM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits", "namespace": "kube-system"}}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


def validating(*expressions: str, **more: Any) -> dict[str, Any]:
    """Return a policy about creates and updates of ConfigMaps."""
    rule = CONFIG_MAPS_RULE | {"operations": ["CREATE", "UPDATE"]}
    validations = [item if isinstance(item, dict) else {"expression": item} for item in expressions]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations} | more
    return {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "rules"}, "spec": spec}


def mutating(*expressions: str, patch_type: str = "JSONPatch", **more: Any) -> dict[str, Any]:
    field = "jsonPatch" if patch_type == "JSONPatch" else "applyConfiguration"
    mutations = [{"patchType": patch_type, field: {"expression": expression}} for expression in expressions]
    rule = CONFIG_MAPS_RULE | {"operations": ["CREATE", "UPDATE"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "mutations": mutations} | more
    return {"apiVersion": VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "changes"}, "spec": spec}


def binding(policy: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"policyName": policy["metadata"]["name"]} | more
    if policy["kind"] == "ValidatingAdmissionPolicy":
        spec = {"validationActions": ["Deny"]} | spec
    return {"apiVersion": VERSION, "kind": f"{policy['kind']}Binding", "metadata": {"name": "bound"}, "spec": spec}


async def install(server: Server, policy: Mapping[str, Any], **more: Any) -> None:
    """Create a policy and a binding, and wait until they have an effect."""
    await server.create(policy)
    await server.create(binding(policy, **more))
    await server.settle()


async def denial_of(server: Server, form: Mapping[str, Any], **more: Any) -> tuple[int, str]:
    """Return the code and the message."""
    with pytest.raises(Rejected) as caught:
        await server.create(form, **more)
    return int(dict(caught.value.refusal.metadata)[STATUS_CODE]), caught.value.refusal.message


async def test_denial_is_invalid_although_its_text_says_forbidden(server: Server) -> None:
    await install(server, validating("object.metadata.name != 'bad'"))
    place = "ValidatingAdmissionPolicy 'rules' with binding 'bound' denied request"
    message = f"configmaps \"bad\" is forbidden: {place}: failed expression: object.metadata.name != 'bad'"
    assert await denial_of(server, config_map("bad")) == (422, message)
    assert (await server.create(config_map("good"))).metadata.name == "good"


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("RequestEntityTooLarge", 413), ("Invalid", 422)])
async def test_reason_decides_code(server: Server, reason: str, code: int) -> None:
    await install(server, validating({"expression": "false", "message": "no", "reason": reason}))
    assert (await denial_of(server, config_map()))[0] == code


async def test_message_expression_takes_precedence(server: Server) -> None:
    for text, shown in (("'not ' + object.metadata.name", "not a"), ("'a\\nb'", "plain"), ("string(1 / 0)", "plain")):
        policy = validating({"expression": "false", "message": "plain", "messageExpression": text})
        await install(server, policy)
        assert (await denial_of(server, config_map()))[1].endswith(f"denied request: {shown}")
        await server.call("ValidatingAdmissionPolicies/Delete", name="rules")
        await server.call("ValidatingAdmissionPolicyBindings/Delete", name="bound")


async def test_policy_without_binding_has_no_effect(server: Server) -> None:
    await server.create(validating("false"))
    await server.settle()
    await server.create(config_map())


async def test_warn_and_audit_do_not_deny(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = dict[str, str]()
    monkeypatch.setattr("pinnace.apiserver.webhooks.evaluation.annotate", recorded.__setitem__)
    await install(server, validating({"expression": "false", "message": "no"}), validationActions=["Warn", "Audit"])
    await server.create(config_map())
    assert server.warnings == ["Validation failed for ValidatingAdmissionPolicy 'rules' with binding 'bound': no"]
    (failure,) = json.loads(recorded["validation.policy.admission.k8s.io/validation_failure"])
    assert failure == {
        "message": "no", "policy": "rules", "binding": "bound", "expressionIndex": 0, "validationActions": ["Warn", "Audit"],
    }  # fmt: skip


async def test_audit_annotations_are_recorded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = dict[str, str]()
    monkeypatch.setattr("pinnace.apiserver.webhooks.evaluation.annotate", recorded.__setitem__)
    annotations = [{"key": "name", "valueExpression": "'is ' + object.metadata.name"}, {"key": "no", "valueExpression": "null"}]
    await install(server, validating(auditAnnotations=annotations))
    await server.create(config_map())
    assert recorded == {"rules/name": "is a"}


async def test_failing_expression_denies_or_is_ignored(server: Server) -> None:
    policy = validating("object.data.nope == '1'")
    await install(server, policy)
    code, message = await denial_of(server, config_map(data={"a": "1"}))
    assert code == 422 and message.endswith("expression 'object.data.nope == '1'' resulted in error: no such key: nope")
    await server.call("ValidatingAdmissionPolicies/Delete", name="rules")
    await server.create(validating("object.data.nope == '1'", failurePolicy="Ignore"))
    await server.settle()
    await server.create(config_map(data={"a": "1"}))


async def test_variables_and_old_object_are_available(server: Server) -> None:
    variables = [
        {"name": "number", "expression": "int(object.data.number)"},
        {"name": "grows", "expression": "oldObject == null || variables.number > int(oldObject.data.number)"},
        {"name": "unused", "expression": "1 / 0 == 1"},
    ]
    await install(server, validating("variables.grows", variables=variables))
    await server.create(config_map(data={"number": "2"}))
    patch = {"namespace": "default", "name": "a", "type": 1}
    await server.call("ConfigMaps/Patch", patch=b'{"data": {"number": "3"}}', **patch)
    with pytest.raises(Rejected, match=r"failed expression: variables\.grows"):
        await server.call("ConfigMaps/Patch", patch=b'{"data": {"number": "1"}}', **patch)


async def test_match_conditions_and_resource_names_restrict_policy(server: Server) -> None:
    rule = CONFIG_MAPS_RULE | {"resourceNames": ["a", "b"]}
    conditions = [{"name": "labelled", "expression": "has(object.metadata.labels)"}]
    policy = validating("false", matchConstraints={"resourceRules": [rule]}, matchConditions=conditions)
    await install(server, policy)
    await server.create(config_map("a"))
    for name, is_denied in (("b", True), ("c", False)):
        form = config_map(name)
        form["metadata"]["labels"] = {"a": "b"}
        if is_denied:
            assert (await denial_of(server, form))[0] == 422
        else:
            await server.create(form)


async def test_exclusions_take_precedence(server: Server) -> None:
    rules = {"resourceRules": [CONFIG_MAPS_RULE], "excludeResourceRules": [CONFIG_MAPS_RULE | {"operations": ["UPDATE"]}]}
    await server.create(config_map())
    await install(server, validating("false", matchConstraints=rules))
    await server.call("ConfigMaps/Patch", namespace="default", name="a", type=1, patch=b'{"data": {"a": "1"}}')
    assert (await denial_of(server, config_map("b")))[0] == 422


async def test_parameters_come_from_named_or_selected_objects(server: Server) -> None:
    form = PARAM | {"data": {"most": "2"}}
    form["metadata"] = dict(PARAM["metadata"]) | {"labels": {"limits": "yes"}}
    await server.create(form)
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    policy = validating("size(object.data) <= int(params.data.most)", paramKind=kind)
    reference = {"namespace": "kube-system", "parameterNotFoundAction": "Deny"}
    selector = {"matchLabels": {"limits": "yes"}}
    for found in ({"name": "limits"}, {"selector": selector}):
        await install(server, policy, paramRef=reference | found)
        assert (await denial_of(server, config_map(data={"a": "", "b": "", "c": ""})))[0] == 422
        await server.create(config_map("fits", data={"a": ""}), options={"dryRun": ["All"]})
        for plural, name in (("Policies", "rules"), ("PolicyBindings", "bound")):
            await server.call(f"ValidatingAdmission{plural}/Delete", name=name)


async def test_missing_parameter_follows_its_action(server: Server) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "nope", "namespace": "kube-system"}
    await install(server, validating("false", paramKind=kind), paramRef=reference | {"parameterNotFoundAction": "Allow"})
    await server.create(config_map())
    await server.call("ValidatingAdmissionPolicyBindings/Delete", name="bound")
    await server.create(binding(validating(), paramRef=reference | {"parameterNotFoundAction": "Deny"}))
    await server.settle()
    problem = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert (await denial_of(server, config_map("b")))[1].endswith(problem)


async def test_authorizer_answers_for_user(server: Server) -> None:
    check = "authorizer.group('').resource('secrets').namespace('default').check('delete').allowed()"
    await install(server, validating(check, "authorizer.requestResource.check('delete').allowed()"))
    await server.create(config_map(), user=User("root", ("system:masters",)))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "writers"}}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]
    await server.create(role | {"rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writers"}
    await server.create(
        role | {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [{"kind": "User", "name": "anna"}]}
    )
    await server.settle()
    assert (await denial_of(server, config_map("b"), user=User("anna")))[0] == 422


async def test_namespace_object_is_available(server: Server) -> None:
    await install(server, validating("namespaceObject.metadata.name != 'default'"))
    assert (await denial_of(server, config_map()))[0] == 422


async def test_json_patch_changes_object(server: Server) -> None:
    await install(
        server,
        mutating(
            "[JSONPatch{op: 'add', path: '/data', value: {'a': '1'}}]",
            "[JSONPatch{op: 'add', path: '/data/b', value: object.data.a + '2'}, JSONPatch{op: 'remove', path: '/data/a'}]",
            "[JSONPatch{op: 'test', path: '/data/b', value: 'other'}, JSONPatch{op: 'remove', path: '/data/b'}]",
        ),
    )
    assert dict((await server.create(config_map())).data) == {"b": "12"}


async def test_apply_configuration_is_merged(server: Server) -> None:
    text = "Object{metadata: Object.metadata{labels: Object.metadata.labels{mine: 'yes'}}}"
    await install(server, mutating(text, patch_type="ApplyConfiguration"))
    form = config_map()
    form["metadata"]["labels"] = {"theirs": "yes"}
    assert dict((await server.create(form)).metadata.labels) == {"theirs": "yes", "mine": "yes"}


async def test_apply_configuration_may_not_replace_atomic_values(server: Server) -> None:
    text = "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"
    rule = {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    policy = mutating(text, patch_type="ApplyConfiguration", matchConstraints={"resourceRules": [rule]})
    await install(server, policy)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    form = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"}}
    form["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    _, message = await denial_of(server, form)
    assert message == (
        "policy 'changes' with binding 'bound' denied request: error applying patch: invalid ApplyConfiguration: may not "
        "mutate atomic arrays, maps or structs: .spec.selector"
    )


async def test_policies_are_applied_again_after_webhooks(server: Server) -> None:
    hooks = WebhookServer()
    hooks.answers = {"h": label("hook")}
    async with hooks.run():
        text = "[JSONPatch{op: 'add', path: '/data', value: {'hooked': string(has(object.metadata.labels))}}]"
        await install(server, mutating(text, reinvocationPolicy="IfNeeded"))
        await server.configure(mutating=[webhook(hooks, "h")])
        created = await server.create(config_map())
    assert dict(created.data) == {"hooked": "true"} and len(hooks.requests("h")) == 1


async def test_policies_do_not_review_policies(server: Server) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    await install(server, validating("false", matchConstraints={"resourceRules": [rule]}))
    await server.call("ValidatingAdmissionPolicyBindings/Delete", name="bound")
    await server.settle()
    await server.create(config_map())


async def test_details_contain_cause(server: Server) -> None:
    await install(server, validating("false"))
    with pytest.raises(Rejected) as caught:
        await server.create(config_map())
    details = json.loads(dict(caught.value.refusal.metadata)[STATUS_DETAILS])
    assert (details["name"], details["kind"]) == ("a", CONFIG_MAPS.plural) and len(details["causes"]) == 1


def test_annotations_belong_to_call() -> None:
    lines = list[dict[str, Any]]()

    class Sink:
        enabled = True

        def record(self, user: User, deeds: Any) -> None:
            lines.extend(dict(audit._ANNOTATIONS.get() or {}) for _ in deeds)

    calls = audit.CallAudit(Sink())
    calls.begin_call()
    audit.annotate("a", "1")
    audit.annotate("a", "2")
    calls.record(User("u"), [AuditEvent(action=Any, namespace="", name="")])
    calls.begin_call()
    calls.record(User("u"), [AuditEvent(action=Any, namespace="", name="")])
    assert lines == [{"a": "1"}, {}]


async def test_policies_are_compiled_in_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB of expressions take up to a second."""
    threads = list[threading.Thread]()

    def compile_expressions(policy: Any) -> policies.PolicyExpressions:
        threads.append(threading.current_thread())
        return compiled(policy)

    compiled = policies.compile_expressions
    monkeypatch.setattr(policies, "compile_expressions", compile_expressions)
    await install(server, validating("object.metadata.name != 'bad'"))
    await asyncio.gather(*(server.create(config_map(f"good{number}")) for number in range(3)))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


async def test_all_policies_of_a_write_share_a_budget(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred policies could use 50 ms each."""
    await install(server, validating(*["object.metadata.name.matches('good.*')"] * 8))
    await server.create(config_map("good"))
    monkeypatch.setattr("pinnace.apiserver.webhooks.evaluation.MAX_WORK", 10)
    code, message = await denial_of(server, config_map("good-too"))
    assert code == 422 and "operation cancelled: actual cost limit exceeded" in message


async def test_expressions_of_a_write_are_compiled_in_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The validation of a hostile policy takes up to a second: it may not hold the calls of others. Each object is compiled
    once for its validation, also when admission runs again."""
    compiled, threads = expressions.compile_expression, Counter[str]()

    def compile_expression(text: str, *more: Any, **options: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        threads[text] += 1
        return compiled(text, *more, **options)

    for module in (expressions, strategies, conditions):
        monkeypatch.setattr(module, "compile_expression", compile_expression)
    condition = {"name": "c", "expression": "request.name != 'z'"}
    policy = validating(
        "object.metadata.name != 'x'", variables=[{"name": "v", "expression": "1"}], matchConditions=[condition]
    )
    await server.create(policy)
    policy["spec"]["validations"][0]["expression"] = "object.metadata.name != 'y'"
    changed = from_dict(VALIDATING_ADMISSION_POLICIES, policy)
    await server.call("ValidatingAdmissionPolicies/Update", object=changed)
    patch = json.dumps({"spec": {"validations": [{"expression": "1"}]}}).encode()
    with pytest.raises(Rejected, match="must evaluate to bool but got int"):
        await server.call("ValidatingAdmissionPolicies/Patch", name="rules", type=PatchRequest.MERGE, patch=patch)
    assert [threads[f"object.metadata.name != '{name}'"] for name in "xy"] == [1, 1]
    hooks = WebhookServer()
    async with hooks.run():
        hooks.answers = {"v": allow}
        await server.configure(validating=[webhook(hooks, "v", matchConditions=[condition])])
        await server.create(config_map())
    assert hooks.requests("v")
