"""Reviews of writes by admission policies.

    policy --match conditions--> validations --> each one that is false: Deny, Warn or Audit, as the binding says
                                 audit annotations --> the lines of the call in the audit log
    policy --match conditions--> mutations, one after the other --> the object with defaults

The policies are used in the order of their names. The expressions of one use share a limit of their work, all policies of a
write share MAX_WORK, and the event loop runs between two uses, so no policy blocks the server for long. A policy that cannot be
evaluated rejects the write, or has no effect with the failurePolicy Ignore.

Source: pkg/admission/plugin/policy/{validating,mutating} of k8s.io/apiserver 1.36, and its messages.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.json_codec import to_json, with_type
from pinnace.api.names import new_uid
from pinnace.api.patch import JsonPatchError, apply_json_patch, check_operations
from pinnace.api.resources import NAMESPACES, CustomResource, Resource
from pinnace.api.schema import List, Map, Type, type_of_resource
from pinnace.api.structured_merge import TypeMismatch, check, merge
from pinnace.apiserver.auth.audit import annotate
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import CONNECT, DELETE, WriteAttributes, WriteRequest
from pinnace.apiserver.registry.strategy import add_warnings
from pinnace.apiserver.webhooks.authorizer import Decide, authorizer_bindings
from pinnace.apiserver.webhooks.dispatch import Reinvocation
from pinnace.apiserver.webhooks.matching import NamespaceLabels, namespace_of
from pinnace.apiserver.webhooks.policies import (
    JSON_PATCH,
    Binding,
    Expression,
    FindKind,
    Mutation,
    ParamError,
    Policy,
    PolicyIndex,
    Validation,
    collect_params,
)
from pinnace.apiserver.webhooks.review import (
    ReviewForms,
    http_refusal,
    internal_error,
    qualified_name,
    read_object,
    review_attributes,
    review_conversion,
    status_details,
)
from pinnace.cel.meter import WORK_LIMIT, Meter
from pinnace.cel.programs import EvaluationError, Variables
from pinnace.runtime.clock import Clock

INVALID = "Invalid"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
"""HTTP status codes by reason; others are 422."""
_INVALID_CODE, _FORBIDDEN = 422, 403
DENY, WARN, AUDIT = "Deny", "Warn", "Audit"
MAX_MESSAGE = 5 << 10
"""Bytes of the result of a messageExpression."""
MAX_FAILURES = 50
"""Failed validations in an annotation of the audit log, as in Kubernetes."""
MAX_WORK = 10 * WORK_LIMIT
"""Work of all policies of a write: about 0.5 s."""
MUCH_WORK = 20_000
"""Work of a policy (pinnace.cel.meter) after which other tasks run: about 2 ms."""
FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"
_TEST_FAILED = "test failed"


class PolicyMetrics(Protocol):
    """Metrics of policies. `action`: allow, deny, warn or audit. `error`: no_error, compile_error, invalid_error or
    out_of_budget."""

    def record_policy_check(
        self, mutating: bool, policy: str, binding: str, error: str, action: str, seconds: float
    ) -> None: ...


@dataclass(slots=True)
class _Decision:
    """A validation that is false or cannot be evaluated."""

    policy: str
    binding: str
    message: str
    reason: str = ""
    index: int = 0

    @property
    def text(self) -> str:
        binding = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{binding} denied request: {self.message}"


@dataclass(slots=True)
class _ValidationResults:
    """The results of all policies for a write."""

    denied: list[_Decision] = field(default_factory=list)
    audited: list[tuple[_Decision, Sequence[str]]] = field(default_factory=list)


class _SelectedBinding(NamedTuple):
    """A binding of a policy that selects a write, with one of its parameters. `version`: the API version of the objects."""

    policy: Policy
    binding: Binding
    param: Any
    version: str


class _ConfigurationError(NamedTuple):
    policy: Policy
    binding: Binding
    message: str


class _Budget:
    """The work of all policies of a write: of the validating ones, or of a round of the mutating ones. `left`: what the next
    ones may use. Without it, each of a hundred policies could use WORK_LIMIT."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def charge_evaluation(self, meter: Meter) -> None:
        self.left = max(self.left - meter.work, 0)


class _PolicyEvaluation(NamedTuple):
    """The values of the variables of a policy."""

    policy: Policy
    binding: Binding
    bindings: Mapping[str, Any]
    meter: Meter

    def evaluate(self, expression: Expression) -> Any:
        """Return the result as JSON, or an EvaluationError."""
        if expression.program is None:
            return EvaluationError(expression.problem)
        return expression.program.evaluate(self.bindings, self.meter)


class PolicyAdmission:
    """The policies of a server. `find_kind`: see collect_params."""

    def __init__(
        self,
        validating: PolicyIndex,
        mutating: PolicyIndex,
        namespaces: ResourceCache[Namespace],
        find_kind: FindKind,
        decide: Decide,
        meter: PolicyMetrics,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._validating = validating
        self._mutating = mutating
        self._namespaces = namespaces
        self._labels = NamespaceLabels(namespaces)
        self._find_kind = find_kind
        self._decide = decide
        self._meter = meter
        self._clock = clock
        self._rng = rng

    def may_match(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str) -> bool:
        """Return whether a policy may concern such writes."""
        return bool(
            self._validating.match_request(request, operation, resource, subresource)
            or self._mutating.match_request(request, operation, resource, subresource)
        )

    async def validate(self, change: WriteAttributes) -> None:
        """Raises Rejected if a policy denies the write."""
        forms, verdicts, budget = ReviewForms(change), _ValidationResults(), _Budget()
        collected: dict[str, dict[str, dict[str, None]]] = {}
        for selected in self._select(self._validating, change):
            name, binding = selected.policy.name, selected.binding.name
            if isinstance(selected, _ConfigurationError):
                if not selected.policy.ignores_failures:
                    message = f"failed to configure binding: {selected.message}"
                    verdicts.denied.append(_Decision(name, binding, message))
            else:
                await selected.policy.compile()
                use = self._begin_evaluation(selected, change, forms, budget, mutating=False)
                self._apply_validations(use, verdicts, collected.setdefault(name, {}))
                budget.charge_evaluation(use.meter)
                await _yield_after_work(use.meter)
        for policy, values_by_key in collected.items():
            for key, values in values_by_key.items():
                annotate(f"{policy}/{key}", ", ".join(values))
        if verdicts.audited:
            failures = [_failure_annotation(decision, actions) for decision, actions in verdicts.audited[:MAX_FAILURES]]
            annotate(FAILURE_ANNOTATION, json.dumps(failures, separators=(",", ":")))
        if verdicts.denied:
            first = verdicts.denied[0]
            reason = first.reason or INVALID
            message = f"{qualified_name(change)} is forbidden: {first.text}"
            details = status_details(change, first.text)
            raise Rejected(http_refusal(_CODES.get(reason, _INVALID_CODE), reason, message, details))

    async def mutate(self, change: WriteAttributes, state: Reinvocation, round_number: int) -> Any:
        """Apply the mutating policies and return the object. In the second round, only those that `state` names are applied.
        Raises Rejected."""
        if change.operation in (DELETE, CONNECT):
            return change.obj
        errors, budget = list[str](), _Budget()
        for selected in list(self._select(self._mutating, change)):
            policy, binding = selected.policy, selected.binding
            place = f"policy '{policy.name}' with binding '{binding.name}' denied request"
            if isinstance(selected, _ConfigurationError):
                if not policy.ignores_failures:
                    errors.append(f"{place}: failed to configure binding: {selected.message}")
                continue
            key = (policy.name, binding.name, _param_identity(selected.param))
            if round_number and key not in state.again:
                continue
            before = change.obj
            await policy.compile()
            try:
                change = self._apply_mutations(selected, change, budget)
            except _PolicyError as error:
                if not policy.ignores_failures:
                    errors.append(f"{place}: {error}")
            if change.obj != before:
                state.require_previous()
            await asyncio.sleep(0)
            if policy.is_reinvoked:
                state.previous.append(key)
        if errors:
            raise Rejected(http_refusal(_FORBIDDEN, INVALID, errors[0], status_details(change, *errors)))
        return change.obj

    def _select(self, index: PolicyIndex, change: WriteAttributes) -> Iterator[_SelectedBinding | _ConfigurationError]:
        """Yield the bindings that select the write, in the order of the policies."""
        matches = index.match_request(change.request, change.operation, change.resource, change.subresource)
        namespace = "" if change.resource is NAMESPACES else namespace_of(change)
        for policy, constraints, bindings in matches:
            version = constraints.matched_version(change, self._labels)
            for binding, of_binding in bindings if version else ():
                if of_binding is not None and not of_binding.matched_version(change, self._labels):
                    continue
                try:
                    params = collect_params(policy, binding, namespace, self._find_kind)
                except ParamError as error:
                    yield _ConfigurationError(policy, binding, str(error))
                else:
                    yield from (_SelectedBinding(policy, binding, param, version) for param in params)

    def _begin_evaluation(
        self, selected: _SelectedBinding, change: WriteAttributes, forms: ReviewForms, budget: _Budget, *, mutating: bool
    ) -> _PolicyEvaluation:
        policy, version, meter = selected.policy, selected.version, Meter(work_limit=min(WORK_LIMIT, budget.left))
        bindings: dict[str, Any] = {
            "object": forms.parse(forms.obj(version)),
            "oldObject": forms.parse(forms.old(version)),
            "request": review_attributes(change, new_uid(self._rng), version, mutating=mutating),
            "namespaceObject": self._namespace_form(change),
            **authorizer_bindings(self._decide, change),
        }
        if policy.param_kind is not None:
            bindings["params"] = _param_form(selected.param)
        bindings["variables"] = Variables(policy.expressions.named.programs, bindings, meter)
        return _PolicyEvaluation(policy, selected.binding, bindings, meter)

    def _namespace_form(self, change: WriteAttributes) -> Any:
        if change.resource is NAMESPACES or not change.resource.namespaced:
            return None
        entry = self._namespaces.get(NAMESPACES.key("", namespace_of(change)))
        return json.loads(to_json(entry.obj)) if entry is not None else None

    def _apply_validations(
        self, use: _PolicyEvaluation, verdicts: _ValidationResults, annotations: dict[str, dict[str, None]]
    ) -> None:
        policy, began = use.policy, self._clock.monotonic()
        conditions = policy.expressions.conditions.evaluate(use.bindings, use.meter)
        if conditions.error:
            self._decide_actions(use, _Decision(policy.name, use.binding.name, conditions.error), verdicts, began)
        if not conditions.matches:
            return
        for index, validation in enumerate(policy.expressions.validations):
            result = use.evaluate(validation.expression)
            if isinstance(result, EvaluationError):
                if not policy.ignores_failures:
                    message = _describe_failure(validation.expression, result)
                    self._decide_actions(use, _Decision(policy.name, use.binding.name, message, "", index), verdicts, began)
            elif result is not True:
                message = _failure_message(use, validation)
                decision = _Decision(policy.name, use.binding.name, message, validation.reason or INVALID, index)
                self._decide_actions(use, decision, verdicts, began)
        for annotation in policy.expressions.audit_annotations:
            value = use.evaluate(annotation.expression)
            if isinstance(value, EvaluationError):
                if not policy.ignores_failures:
                    message = _describe_failure(annotation.expression, value)
                    verdicts.denied.append(_Decision(policy.name, use.binding.name, message))
            elif isinstance(value, str) and value.strip():
                annotations.setdefault(annotation.key, {})[value.strip()] = None

    def _decide_actions(self, use: _PolicyEvaluation, decision: _Decision, verdicts: _ValidationResults, began: float) -> None:
        """Do what the binding says about a validation that does not hold."""
        error = _error_type(decision.message)
        for action in use.binding.actions:
            if action == DENY:
                verdicts.denied.append(decision)
            elif action == AUDIT:
                verdicts.audited.append((decision, use.binding.actions))
            elif action == WARN:
                place = f"ValidatingAdmissionPolicy '{decision.policy}' with binding '{decision.binding}'"
                add_warnings([f"Validation failed for {place}: {decision.message}"])
            seconds = self._clock.monotonic() - began
            self._meter.record_policy_check(False, decision.policy, decision.binding, error, action.lower(), seconds)

    def _apply_mutations(self, selected: _SelectedBinding, change: WriteAttributes, budget: _Budget) -> WriteAttributes:
        """Return the write after the mutations of a policy. Each sees the object after the previous ones. Raises _PolicyError,
        Rejected."""
        policy, binding = selected.policy, selected.binding
        began, error_type = self._clock.monotonic(), "no_error"
        try:
            for index, mutation in enumerate(policy.expressions.mutations):
                forms = ReviewForms(change, hides_identity=True)
                use = self._begin_evaluation(selected, change, forms, budget, mutating=True)
                try:
                    if not index and not _fulfills_conditions(use):
                        break
                    obj = _apply_mutation(use, mutation, change, forms, selected.version)
                finally:
                    budget.charge_evaluation(use.meter)
                if obj is not change.obj:
                    change.complete(obj)
                    change = change._replace(obj=obj)
        except _PolicyError as error:
            error_type = _error_type(str(error))
            raise
        finally:
            action = "allow" if error_type == "no_error" else "deny"
            self._meter.record_policy_check(
                True, policy.name, binding.name, error_type, action, self._clock.monotonic() - began
            )
        return change


class _PolicyError(Exception):
    """A policy cannot be applied."""


async def _yield_after_work(meter: Meter) -> None:
    """Let other tasks run after much work."""
    if meter.work > MUCH_WORK:
        await asyncio.sleep(0)


def _fulfills_conditions(use: _PolicyEvaluation) -> bool:
    """Raises _PolicyError."""
    result = use.policy.expressions.conditions.evaluate(use.bindings, use.meter)
    if result.error:
        raise _PolicyError(result.error)
    return result.matches


def _apply_mutation(
    use: _PolicyEvaluation, mutation: Mutation, change: WriteAttributes, forms: ReviewForms, version: str
) -> Any:
    """Return the object of a write after a mutation: the same instance if it does not change. Raises _PolicyError, Rejected."""
    result = use.evaluate(mutation.expression)
    if isinstance(result, EvaluationError):
        raise _PolicyError(_describe_failure(mutation.expression, result))
    before = json.loads(forms.obj(version))
    try:
        if mutation.patch_type == JSON_PATCH:
            after = apply_json_patch(before, check_operations(result))
        else:
            after = _merge_apply_configuration(change, version, before, result)
        return change.obj if after == before else read_object(change, before, after, version)
    except JsonPatchError as error:
        if str(error).endswith(_TEST_FAILED):
            return change.obj
        raise _PolicyError(f"JSON Patch: {error}") from None
    except TypeMismatch as error:
        raise _PolicyError(f"error applying patch: failed to convert patch object to typed object: {error}") from None
    except RecursionError:
        raise _PolicyError("the change is nested too deeply") from None
    except ValueError as error:
        raise Rejected(internal_error(str(error))) from None


def _merge_apply_configuration(change: WriteAttributes, version: str, before: Any, configuration: Any) -> Any:
    """Return the JSON form of an object with the fields of an apply configuration merged into it. Raises _PolicyError and
    TypeMismatch."""
    served = review_conversion(change, version).served
    of = type_of_resource(served)
    fields = {name: value for name, value in configuration.items() if name not in ("apiVersion", "kind")}
    check(of, fields)
    if atomic := list(_atomic_paths(of, fields, "")):
        problem = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise _PolicyError(f"error applying patch: invalid ApplyConfiguration: {problem}")
    head = {name: before[name] for name in ("apiVersion", "kind")}
    live = {name: value for name, value in before.items() if name not in head}
    return head | merge(of, live, fields)


def _atomic_paths(of: Type | None, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of atomic values in a configuration."""
    if isinstance(of, Map) and isinstance(value, dict):
        if of.atomic:
            yield path
            return
        for name, item in value.items():
            yield from _atomic_paths(of.value(name), item, f"{path}.{name}")
    elif isinstance(of, List) and isinstance(value, list):
        if of.atomic:
            yield path
            return
        for index, item in enumerate(value):
            yield from _atomic_paths(of.element, item, f"{path}[{index}]")


def _failure_message(use: _PolicyEvaluation, validation: Validation) -> str:
    """Return the message of a validation that is false."""
    message = ""
    if validation.message_expression is not None:
        result = use.evaluate(validation.message_expression)
        if isinstance(result, str) and len(result.strip().encode()) <= MAX_MESSAGE and "\n" not in result.strip():
            message = result.strip()
    return message or validation.message or f"failed expression: {validation.expression.text.strip()}"


def _describe_failure(expression: Expression, error: EvaluationError) -> str:
    if expression.program is None:
        return error.message
    return f"expression '{expression.text}' resulted in error: {error.message}"


def _error_type(message: str) -> str:
    if message.startswith("compilation"):
        return "compile_error"
    if "cost limit exceeded" in message:
        return "out_of_budget"
    return "invalid_error"


def _failure_annotation(decision: _Decision, actions: Sequence[str]) -> dict[str, Any]:
    return {
        "message": decision.message,
        "policy": decision.policy,
        "binding": decision.binding,
        "expressionIndex": decision.index,
        "validationActions": list(actions),
    }


def _param_form(param: tuple[Resource[Any], Any] | None) -> Any:
    """Return the JSON form of a parameter."""
    if param is None:
        return None
    resource, obj = param
    if isinstance(resource, CustomResource) and resource.schema is not None:
        return resource.schema.to_served(obj)
    return json.loads(with_type(resource.api_version, resource.kind, to_json(obj)))


def _param_identity(param: tuple[Resource[Any], Any] | None) -> tuple[str, str] | None:
    return (param[1].metadata.namespace, param[1].metadata.name) if param is not None else None
