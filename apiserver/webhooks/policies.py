"""Admission policies with their bindings, and which of them a write concerns.

A policy has an effect only through bindings. A binding selects writes among those that the policy concerns, and the parameters
of the policy.

Source: pkg/admission/plugin/policy/{generic,matching} of k8s.io/apiserver 1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinnace.api.admissionregistration_v1_pb2 import (
    MatchResources,
    MutatingAdmissionPolicy,
    ParamKind,
    ParamRef,
    ValidatingAdmissionPolicy,
)
from pinnace.api.resources import Resource
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry, SelectionPredicate
from pinnace.apiserver.registry.admission import WriteAttributes
from pinnace.apiserver.registry.strategies.admissionregistration import VALUE_TYPES
from pinnace.apiserver.registry.validation.expressions import NamedExpressions, VariableTypes
from pinnace.apiserver.webhooks.conditions import MatchConditions
from pinnace.apiserver.webhooks.configurations import IF_NEEDED, IGNORE, ConfigurationIndex
from pinnace.apiserver.webhooks.matching import (
    RuleMatch,
    Selectors,
    Target,
    find_rules,
    matches_selectors,
    name_of,
)
from pinnace.cel.programs import Program, compile_expression
from pinnace.cel.syntax import CompileError

MAX_PARAMS = 100
"""Parameters that a selector of a binding selects; further ones are an error. Kubernetes has no such limit."""
DENY_NOT_FOUND = "Deny"
APPLY_CONFIGURATION, JSON_PATCH = "ApplyConfiguration", "JSONPatch"


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. `program` is None if it does not compile, as one of an earlier version may; `problem`: why."""

    text: str
    program: Program | None
    problem: str = ""

    @classmethod
    def compile(cls, text: str, variables: VariableTypes, *result_types: str) -> Expression:
        try:
            return cls(text, compile_expression(text, variables, result_types=result_types))
        except CompileError as error:
            return cls(text, None, str(error))


class Validation(NamedTuple):
    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


class AuditAnnotation(NamedTuple):
    key: str
    expression: Expression


class Mutation(NamedTuple):
    patch_type: str
    expression: Expression


class Constraints:
    """Compiled MatchResources. Without rules, they match all resources, as in bindings."""

    def __init__(self, resources: MatchResources) -> None:
        self.selectors = Selectors.from_source(resources)
        self._rules = [_split_named_rule(rule) for rule in resources.resourceRules]
        self._excluded = [_split_named_rule(rule) for rule in resources.excludeResourceRules]
        self._policy = resources.matchPolicy

    def constraints_for_target(self, target: Target) -> TargetConstraints | None:
        """Return the constraints for the writes of a target; None if they match none of them."""
        rules = find_rules(self._rules, self._policy, target)
        if not self._rules:
            rules = [RuleMatch(target.api_versions[0], ())]
        excluded = find_rules(self._excluded, self._policy, target)
        if not rules or any(not rule.names for rule in excluded):
            return None
        return TargetConstraints(self.selectors, rules, excluded)


class TargetConstraints(NamedTuple):
    """Constraints for the writes of one target."""

    selectors: Selectors
    rules: Sequence[RuleMatch]
    excluded: Sequence[RuleMatch]

    def matched_version(self, change: WriteAttributes, namespaces: Mapping[str, Mapping[str, str]]) -> str:
        """Return the API version in which a write matches; "" if it does not match."""
        name = name_of(change)
        if any(rule.applies_to(name) for rule in self.excluded):
            return ""
        version = next((rule.api_version for rule in self.rules if rule.applies_to(name)), "")
        return version if version and matches_selectors(self.selectors, change, namespaces) else ""


def _split_named_rule(rule: Any) -> tuple[Any, Collection[str]]:
    return rule.ruleWithOperations, frozenset(rule.resourceNames)


@dataclass(frozen=True, eq=False)
class Binding:
    name: str
    constraints: Constraints | None
    """None: all writes that the policy concerns."""
    param_ref: ParamRef | None
    param_selector: LabelSelector | None
    actions: Sequence[str]


class PolicyExpressions(NamedTuple):
    """The compiled expressions of a policy."""

    conditions: MatchConditions
    named: NamedExpressions
    validations: Sequence[Validation] = ()
    audit_annotations: Sequence[AuditAnnotation] = ()
    mutations: Sequence[Mutation] = ()


class Policy:
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy. Its expressions are compiled in a thread when a write first needs
    them: 64 KiB take up to a second, which only the writes that it concerns wait for."""

    def __init__(self, policy: Any) -> None:
        spec = policy.spec
        self.name: str = policy.metadata.name
        self.constraints = Constraints(spec.matchConstraints)
        self.ignores_failures = spec.failurePolicy == IGNORE
        self.param_kind: ParamKind | None = spec.paramKind if spec.HasField("paramKind") else None
        self.is_reinvoked = isinstance(policy, MutatingAdmissionPolicy) and spec.reinvocationPolicy == IF_NEEDED
        self._policy = policy
        self._compiled: PolicyExpressions | None = None
        self._compiling = asyncio.Lock()

    @property
    def expressions(self) -> PolicyExpressions:
        """Available after `compile`."""
        assert self._compiled is not None
        return self._compiled

    async def compile(self) -> None:
        if self._compiled is None:
            async with self._compiling:
                if self._compiled is None:
                    self._compiled = await asyncio.to_thread(compile_expressions, self._policy)


def compile_expressions(policy: Any) -> PolicyExpressions:
    """Compile the expressions of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""
    spec = policy.spec
    has_params, ignores_failures = spec.HasField("paramKind"), spec.failurePolicy == IGNORE
    named = NamedExpressions(spec.variables, has_params=has_params)
    variables = named.types()
    mutating = isinstance(policy, MutatingAdmissionPolicy)
    return PolicyExpressions(
        conditions=MatchConditions.compile(spec.matchConditions, ignores_failures=ignores_failures, has_params=has_params),
        named=named,
        validations=[] if mutating else [_compile_validation(item, named) for item in spec.validations],
        audit_annotations=[] if mutating else _compile_annotations(policy, variables),
        mutations=[_compile_mutation(item, variables) for item in spec.mutations] if mutating else [],
    )


def _compile_validation(validation: Any, named: NamedExpressions) -> Validation:
    message_expression = None
    if validation.messageExpression:
        variables = named.types(has_authorizer=False)
        message_expression = Expression.compile(validation.messageExpression, variables, "string")
    expression = Expression.compile(validation.expression, named.types(), "bool")
    return Validation(expression, validation.message.strip(), message_expression, validation.reason)


def _compile_annotations(policy: ValidatingAdmissionPolicy, variables: VariableTypes) -> list[AuditAnnotation]:
    return [
        AuditAnnotation(item.key, Expression.compile(item.valueExpression.strip(), variables, *VALUE_TYPES))
        for item in policy.spec.auditAnnotations
    ]


def _compile_mutation(mutation: Any, variables: VariableTypes) -> Mutation:
    if mutation.patchType == JSON_PATCH:
        return Mutation(JSON_PATCH, Expression.compile(mutation.jsonPatch.expression, variables, "list(JSONPatch)"))
    return Mutation(APPLY_CONFIGURATION, Expression.compile(mutation.applyConfiguration.expression, variables, "Object"))


def _compile_binding(binding: Any) -> Binding:
    spec = binding.spec
    ref = spec.paramRef if spec.HasField("paramRef") else None
    return Binding(
        name=binding.metadata.name,
        constraints=Constraints(spec.matchResources) if spec.HasField("matchResources") else None,
        param_ref=ref,
        param_selector=from_message(ref.selector) if ref is not None and ref.HasField("selector") else None,
        actions=list(getattr(spec, "validationActions", ())),
    )


class BindingMatch(NamedTuple):
    """A binding that may select a write. `constraints`: None if it selects all that the policy concerns."""

    binding: Binding
    constraints: TargetConstraints | None


class PolicyMatch(NamedTuple):
    """A policy that may concern a write, with its bindings."""

    policy: Policy
    constraints: TargetConstraints
    bindings: Sequence[BindingMatch]


class PolicyIndex(ConfigurationIndex[Sequence[PolicyMatch]]):
    """The policies of one kind with their bindings."""

    def __init__(self, kind: str, policies: ResourceCache[Any], bindings: ResourceCache[Any]) -> None:
        """`kind`: of the policies."""
        super().__init__((policies, bindings), ())
        self._kind = kind
        self._compiled: dict[str, tuple[CacheEntry[Any], Any]] = {}
        self._policies: Sequence[tuple[Policy, Sequence[Binding]]] = ()

    def _compile(self, entries: Sequence[CacheEntry[Any]]) -> bool:
        compiled = dict[str, tuple[CacheEntry[Any], Any]]()
        policies, bindings = list[Policy](), dict[str, list[Binding]]()
        for entry in entries:
            obj = entry.obj
            known = self._compiled.get(entry.key)
            if known is None or known[0] is not entry:
                known = entry, Policy(obj) if type(obj).__name__ == self._kind else _compile_binding(obj)
            compiled[entry.key] = known
            match known[1]:
                case Policy() as policy:
                    policies.append(policy)
                case Binding() as binding:
                    bindings.setdefault(obj.spec.policyName, []).append(binding)
        self._compiled = compiled
        self._policies = [(policy, bindings[policy.name]) for policy in policies if policy.name in bindings]
        return bool(self._policies)

    def _match(self, target: Target) -> Sequence[PolicyMatch]:
        found = []
        for policy, bindings in self._policies:
            constraints = policy.constraints.constraints_for_target(target)
            if constraints is None:
                continue
            restricted = [
                (binding, binding.constraints.constraints_for_target(target) if binding.constraints is not None else None)
                for binding in bindings
            ]
            selected = [
                BindingMatch(binding, of_target)
                for binding, of_target in restricted
                if of_target is not None or binding.constraints is None
            ]
            if selected:
                found.append(PolicyMatch(policy, constraints, selected))
        return found


class ParamError(Exception):
    """The parameters of a binding cannot be determined."""


FindKind = Callable[[str, str], tuple[Resource[Any], ResourceCache[Any]] | None]
"""Returns the resource with an API version and kind, and its cache; None if there is no such kind."""


def collect_params(policy: Policy, binding: Binding, namespace: str, find_kind: FindKind) -> Sequence[Any]:
    """Return the parameters of a binding, each as an object with its resource; [None] if the policy or the binding uses none.
    `namespace`: that of the written object. Raises ParamError."""
    kind, ref = policy.param_kind, binding.param_ref
    if kind is None or ref is None:
        return [None]
    there = find_kind(kind.apiVersion, kind.kind)
    if there is None:
        group, _, version = kind.apiVersion.rpartition("/")
        raise ParamError(f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind.kind}'")
    resource, cache = there
    if not resource.namespaced:
        if ref.namespace:
            raise ParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    elif not ref.namespace and not namespace:
        raise ParamError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    place = (ref.namespace or namespace) if resource.namespaced else ""
    params = list(_select_params(binding, ref, resource, cache, place))
    if len(params) > MAX_PARAMS:
        raise ParamError(f"paramRef.selector selects more than {MAX_PARAMS} objects")
    if not params and ref.parameterNotFoundAction == DENY_NOT_FOUND:
        raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return params


def _select_params(
    binding: Binding, ref: ParamRef, resource: Resource[Any], cache: ResourceCache[Any], namespace: str
) -> Iterable[tuple[Resource[Any], Any]]:
    if ref.name:
        entry = cache.get(resource.key(namespace, ref.name))
        return [(resource, entry.obj)] if entry is not None else []
    selector = binding.param_selector
    entries = cache.select(SelectionPredicate.parse(resource, namespace, "", ""))
    return [(resource, entry.obj) for entry in entries if selector is None or selector.matches(entry.obj.metadata.labels)]
