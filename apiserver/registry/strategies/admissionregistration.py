"""Webhook configurations, admission policies and their bindings.

Expressions are compiled in a thread when an object is written, and again when it takes effect (pinnace.apiserver.webhooks).

Source: pkg/apis/admissionregistration/validation/validation.go and v1/defaults.go of Kubernetes 1.36.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pinnace.api import names
from pinnace.api.admissionregistration_v1_pb2 import (
    MatchCondition,
    MatchResources,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    MutatingWebhookConfiguration,
    Mutation,
    NamedRuleWithOperations,
    ParamKind,
    ParamRef,
    RuleWithOperations,
    ServiceReference,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
    Validation,
    WebhookClientConfig,
)
from pinnace.api.resources import Resource
from pinnace.api.status import Violation
from pinnace.apiserver.registry.large import LARGE, LargeResultCache
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy
from pinnace.apiserver.registry.validation.expressions import (
    MAX_EXPRESSIONS,
    NamedExpressions,
    VariableTypes,
    expressions_size,
    variable_types,
)
from pinnace.apiserver.registry.validation.fields import (
    MAX_PORT,
    duplicate,
    forbidden,
    invalid,
    range_message,
    required,
    too_long,
    too_many,
    unsupported,
    validate_key,
    validate_selector,
)
from pinnace.cel.programs import compile_expression
from pinnace.cel.syntax import CompileError

AnyWebhookConfiguration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
AnyPolicy = MutatingAdmissionPolicy | ValidatingAdmissionPolicy
AnyBinding = MutatingAdmissionPolicyBinding | ValidatingAdmissionPolicyBinding

DEFAULT_TIMEOUT, MAX_TIMEOUT = 10, 30
"""Seconds."""
DEFAULT_PORT = 443
MAX_CONDITIONS = 64
MAX_AUDIT_ANNOTATIONS = 20
MAX_VALUE_EXPRESSION = 5 << 10
"""In bytes."""
REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview that the server sends."""
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
VALIDATION_ACTIONS = ("Audit", "Deny", "Warn")
VALUE_TYPES = ("string", "null")
"""The types of the results of valueExpressions."""
MUTATION_TYPES = {"ApplyConfiguration": ("Object",), "JSONPatch": ("list(JSONPatch)",)}
"""The types of the results of mutations, by patchType."""
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_NOT_FOUND_ACTIONS = ("Deny", "Allow")
_PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
_CONDITION_STATUSES = ("False", "True", "Unknown")

_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NO_LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
))  # fmt: skip
_MAX_LABEL = 63
_URL_FORM = "; desired format: https://host[/path]"


class CompilingStrategy(Strategy[Any], ABC):
    """A kind with expressions. They are compiled in a thread before the event loop validates the object, because those of one
    object take up to a second. The violations of the latest objects are remembered."""

    is_slow = needs_compilation = True

    def __init__(self, resource: Resource[Any]) -> None:
        super().__init__(resource)
        self._remembered: LargeResultCache[list[Violation]] = LargeResultCache()

    @abstractmethod
    def check_expressions(self, obj: Any, out: list[Violation]) -> None:
        """As `check_fields`, which remembers the result."""

    def check_fields(self, obj: Any, out: list[Violation]) -> None:
        def compute() -> list[Violation]:
            violations: list[Violation] = []
            self.check_expressions(obj, violations)
            return violations

        parts = type(obj)()
        parts.CopyFrom(obj)
        parts.ClearField("metadata")
        key = obj.metadata.name, parts.SerializeToString(deterministic=True)
        out += self._remembered.get(LARGE, key, compute)

    def precompute(self, obj: Any) -> None:
        new = type(obj)()
        new.CopyFrom(obj)
        self.prepare_create(new)
        self.validate(new)


class WebhookConfigurationStrategy(CompilingStrategy):
    """The strategy of ValidatingWebhookConfiguration and MutatingWebhookConfiguration."""

    has_generation = True

    def is_new_generation(self, new: AnyWebhookConfiguration, old: AnyWebhookConfiguration) -> bool:
        return new.webhooks != old.webhooks

    def set_defaults(self, obj: AnyWebhookConfiguration) -> None:
        for webhook in obj.webhooks:
            _set_default(webhook, "failurePolicy", "Fail")
            _set_default(webhook, "matchPolicy", "Equivalent")
            webhook.namespaceSelector.SetInParent()
            webhook.objectSelector.SetInParent()
            _set_default(webhook, "timeoutSeconds", DEFAULT_TIMEOUT)
            if isinstance(obj, MutatingWebhookConfiguration):
                _set_default(webhook, "reinvocationPolicy", "Never")
            if webhook.clientConfig.HasField("service"):
                _set_default(webhook.clientConfig.service, "port", DEFAULT_PORT)
            for rule in webhook.rules:
                _set_default(rule.rule, "scope", "*")

    def check_expressions(self, obj: AnyWebhookConfiguration, out: list[Violation]) -> None:
        if expressions_size(obj) > MAX_EXPRESSIONS:
            out.append(too_long("webhooks", MAX_EXPRESSIONS))
            return
        seen = set[str]()
        webhooks: Sequence[Any] = obj.webhooks
        for index, webhook in enumerate(webhooks):
            path = f"webhooks[{index}]"
            _validate_webhook(webhook, path, out)
            _validate_review_versions(webhook.admissionReviewVersions, f"{path}.admissionReviewVersions", out)
            if webhook.name and webhook.name in seen:
                out.append(duplicate(f"{path}.name", webhook.name))
            seen.add(webhook.name)


class ValidatingAdmissionPolicyStrategy(CompilingStrategy, StatusStrategy[Any]):
    has_generation = True

    def set_defaults(self, obj: ValidatingAdmissionPolicy) -> None:
        _default_policy(obj)

    def check_expressions(self, obj: ValidatingAdmissionPolicy, out: list[Violation]) -> None:
        if expressions_size(obj) > MAX_EXPRESSIONS:
            out.append(too_long("spec", MAX_EXPRESSIONS))
            return
        spec = obj.spec
        named = _validate_policy(obj, out)
        if not spec.validations and not spec.auditAnnotations:
            detail = "validations or auditAnnotations must contain at least one item"
            out += [required("spec.validations", detail), required("spec.auditAnnotations", detail)]
            return
        for index, validation in enumerate(spec.validations):
            _validate_validation(validation, named, f"spec.validations[{index}]", out)
        if len(spec.auditAnnotations) > MAX_AUDIT_ANNOTATIONS:
            keys = [annotation.key for annotation in spec.auditAnnotations]
            detail = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
            out.append(invalid("spec.auditAnnotations", keys, detail))
        seen = set[str]()
        for index, annotation in enumerate(spec.auditAnnotations):
            path = f"spec.auditAnnotations[{index}]"
            validate_key(f"{obj.metadata.name}/{annotation.key}", f"{path}.key", out)
            _validate_value_expression(annotation.valueExpression, named.types(), f"{path}.valueExpression", out)
            if annotation.key in seen:
                out.append(duplicate(f"{path}.key", annotation.key))
            seen.add(annotation.key)

    def check_status(self, obj: ValidatingAdmissionPolicy, out: list[Violation]) -> None:
        for index, warning in enumerate(obj.status.typeChecking.expressionWarnings):
            path = f"status.typeChecking.expressionWarnings[{index}]"
            out += [required(f"{path}.{field}") for field in ("warning", "fieldRef") if not getattr(warning, field).strip()]
        for index, condition in enumerate(obj.status.conditions):
            validate_key(condition.type, f"status.conditions[{index}].type", out)
            if condition.status not in _CONDITION_STATUSES:
                out.append(unsupported(f"status.conditions[{index}].status", condition.status, _CONDITION_STATUSES))


class MutatingAdmissionPolicyStrategy(CompilingStrategy):
    has_generation = True

    def set_defaults(self, obj: MutatingAdmissionPolicy) -> None:
        _default_policy(obj)

    def check_expressions(self, obj: MutatingAdmissionPolicy, out: list[Violation]) -> None:
        if expressions_size(obj) > MAX_EXPRESSIONS:
            out.append(too_long("spec", MAX_EXPRESSIONS))
            return
        spec = obj.spec
        named = _validate_policy(obj, out)
        if not spec.mutations:
            out.append(required("spec.mutations", "mutations must contain at least one item"))
        for index, mutation in enumerate(spec.mutations):
            _validate_mutation(mutation, named.types(), f"spec.mutations[{index}]", out)
        if not spec.reinvocationPolicy:
            out.append(required("spec.reinvocationPolicy"))
        elif spec.reinvocationPolicy not in REINVOCATION_POLICIES:
            out.append(unsupported("spec.reinvocationPolicy", spec.reinvocationPolicy, REINVOCATION_POLICIES))


class PolicyBindingStrategy(Strategy[Any]):
    """The strategy of ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding."""

    has_generation = True

    def set_defaults(self, obj: AnyBinding) -> None:
        if obj.spec.HasField("matchResources"):
            _default_match_resources(obj.spec.matchResources)

    def check_fields(self, obj: AnyBinding, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.policyName:
            out.append(required("spec.policyName"))
        else:
            out += [invalid("spec.policyName", spec.policyName, problem) for problem in names.dns_subdomain(spec.policyName)]
        if spec.HasField("paramRef"):
            _validate_param_ref(spec.paramRef, "spec.paramRef", out)
        if spec.HasField("matchResources"):
            _validate_match_resources(spec.matchResources, "spec.matchResouces", out)  # Kubernetes' spelling
        if isinstance(obj, ValidatingAdmissionPolicyBinding):
            _validate_actions(list(obj.spec.validationActions), "spec.validationActions", out)


def _set_default(message: Any, field: str, value: str | int) -> None:
    if not message.HasField(field):
        setattr(message, field, value)


def _default_policy(obj: AnyPolicy) -> None:
    _set_default(obj.spec, "failurePolicy", "Fail")
    if obj.spec.HasField("matchConstraints"):
        _default_match_resources(obj.spec.matchConstraints)


def _default_match_resources(resources: MatchResources) -> None:
    _set_default(resources, "matchPolicy", "Equivalent")
    resources.namespaceSelector.SetInParent()
    resources.objectSelector.SetInParent()
    for rule in (*resources.resourceRules, *resources.excludeResourceRules):
        _set_default(rule.ruleWithOperations.rule, "scope", "*")


def _validate_choice(message: Any, field: str, allowed: Sequence[str], path: str, out: list[Violation]) -> None:
    """Check a field that may be absent."""
    if message.HasField(field) and getattr(message, field) not in allowed:
        out.append(unsupported(f"{path}.{field}", getattr(message, field), allowed))


def _validate_webhook(webhook: Any, path: str, out: list[Violation]) -> None:
    _validate_qualified_name(webhook.name, f"{path}.name", out)
    for index, rule in enumerate(webhook.rules):
        _validate_rule(rule, f"{path}.rules[{index}]", out)
    _validate_choice(webhook, "failurePolicy", FAILURE_POLICIES, path, out)
    _validate_choice(webhook, "matchPolicy", MATCH_POLICIES, path, out)
    if not webhook.HasField("sideEffects"):
        out.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}"))
    _validate_choice(webhook, "sideEffects", _SIDE_EFFECTS, path, out)
    if webhook.HasField("timeoutSeconds") and not 1 <= webhook.timeoutSeconds <= MAX_TIMEOUT:
        detail = f"the timeout value must be between 1 and {MAX_TIMEOUT} seconds"
        out.append(invalid(f"{path}.timeoutSeconds", webhook.timeoutSeconds, detail))
    for field in ("namespaceSelector", "objectSelector"):
        if webhook.HasField(field):
            validate_selector(getattr(webhook, field), f"{path}.{field}", out)
    if "reinvocationPolicy" in webhook.DESCRIPTOR.fields_by_name:
        _validate_choice(webhook, "reinvocationPolicy", REINVOCATION_POLICIES, path, out)
    validate_client_config(webhook.clientConfig, f"{path}.clientConfig", out)
    _validate_conditions(webhook.matchConditions, variable_types(has_params=False), f"{path}.matchConditions", out)


def _validate_qualified_name(name: str, path: str, out: list[Violation]) -> None:
    if not name:
        out.append(required(path))
    elif problems := names.dns_subdomain(name):
        out.append(invalid(path, name, ",".join(problems)))
    elif len(name.split(".")) < 3:
        out.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))


def validate_client_config(config: WebhookClientConfig, path: str, out: list[Violation]) -> None:
    if config.HasField("url") == config.HasField("service"):
        out.append(required(path, "exactly one of url or service is required"))
    elif config.HasField("url"):
        _validate_url(config.url, f"{path}.url", out)
    else:
        _validate_service(config.service, f"{path}.service", out)


def _validate_url(url: str, path: str, out: list[Violation]) -> None:
    parts = split_url(url)
    if parts is None:
        out.append(required(path, f"url must be a valid URL: {url[:128]}{_URL_FORM}"))
        return
    if parts.scheme != "https":
        out.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}"))
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        out.append(invalid(path, host, f"host must be specified{_URL_FORM}"))
    if user:
        out.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        out.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        out.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is malformed."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        return None
    return parts if url.isascii() and url.isprintable() and " " not in url else None


def _validate_service(service: ServiceReference, path: str, out: list[Violation]) -> None:
    """Validate a service reference. Kubernetes mixes up `name` and `namespace` in these violations."""
    if not service.namespace:
        out.append(required(f"{path}.name"))
    if not service.name:
        out.append(required(f"{path}.namespace"))
    if not 1 <= service.port <= MAX_PORT:
        out.append(invalid(f"{path}.port", service.port, f"port is not valid: {range_message(1, MAX_PORT)}"))
    where, url_path = f"{path}.path", service.path
    if url_path in ("", "/"):
        return
    if url_path == "//":
        out.append(invalid(where, url_path, "segment[0] may not be empty"))
        return
    if not url_path.startswith("/"):
        out.append(invalid(where, url_path, "must start with a '/'"))
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            out.append(invalid(where, url_path, f"segment[{index}] may not be empty"))
        else:
            out += [invalid(where, url_path, f"segment[{index}]: {problem}") for problem in names.dns_subdomain(step)]


def _validate_rule(rule: RuleWithOperations, path: str, out: list[Violation]) -> None:
    operations, inner = list(rule.operations), rule.rule
    _validate_wildcard(operations, f"{path}.operations", "operations", out)
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            out.append(unsupported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    _validate_wildcard(list(inner.apiGroups), f"{path}.apiGroups", "API groups", out)
    _validate_wildcard(list(inner.apiVersions), f"{path}.apiVersions", "API versions", out)
    out += [required(f"{path}.apiVersions[{index}]") for index, version in enumerate(inner.apiVersions) if not version]
    _validate_resources(list(inner.resources), f"{path}.resources", out)
    _validate_choice(inner, "scope", _SCOPES, path, out)


def _validate_wildcard(values: Sequence[str], path: str, plural: str, out: list[Violation]) -> None:
    if not values:
        out.append(required(path))
    if len(values) > 1 and "*" in values:
        out.append(invalid(path, values, f"if '*' is present, must not specify other {plural}"))


def _validate_resources(resources: Sequence[str], path: str, out: list[Violation]) -> None:
    if not resources:
        out.append(required(path))
    wild_subresources, wild_resources = set[str](), set[str]()
    has_plain = False
    for index, resource in enumerate(resources):
        where = f"{path}[{index}]"
        if not resource:
            out.append(required(where))
            continue
        plural, slash, subresource = resource.partition("/")
        if not slash:
            has_plain = resource != "*"  # as in Kubernetes: the last one without a subresource counts
            continue
        if plural in wild_subresources:
            out.append(invalid(where, resource, f"if '{plural}/*' is present, must not specify {resource}"))
        if subresource in wild_resources:
            out.append(invalid(where, resource, f"if '*/{subresource}' is present, must not specify {resource}"))
        if subresource == "*":
            wild_subresources.add(plural)
        if plural == "*":
            wild_resources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        out.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and has_plain:
        out.append(invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))


def _validate_review_versions(versions: Sequence[str], path: str, out: list[Violation]) -> None:
    if not versions:
        out.append(required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}"))
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            out.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        out += [invalid(f"{path}[{index}]", version, problem) for problem in _label_1035(version)]
    if not set(versions) & set(REVIEW_VERSIONS):
        out.append(invalid(path, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))


def _label_1035(text: str) -> tuple[str, ...]:
    problems = (f"must be no more than {_MAX_LABEL} bytes",) if len(text) > _MAX_LABEL else ()
    return problems if _LABEL_1035.fullmatch(text) else (*problems, _NO_LABEL_1035)


def _validate_conditions(
    conditions: Sequence[MatchCondition], variables: VariableTypes, path: str, out: list[Violation]
) -> None:
    if len(conditions) > MAX_CONDITIONS:
        out.append(too_many(path, len(conditions), MAX_CONDITIONS))
        return
    seen = set[str]()
    for index, condition in enumerate(conditions):
        where = f"{path}[{index}]"
        if not (expression := condition.expression.strip()):
            out.append(required(f"{where}.expression"))
        else:
            _validate_expression(expression, variables, ("bool",), f"{where}.expression", out)
        if not condition.name:
            out.append(required(f"{where}.name"))
        else:
            validate_key(condition.name, f"{where}.name", out)
            if condition.name in seen:
                out.append(duplicate(f"{where}.name", condition.name))
        seen.add(condition.name)


def _validate_expression(
    text: str, variables: VariableTypes, result_types: tuple[str, ...], path: str, out: list[Violation]
) -> None:
    try:
        compile_expression(text, variables, result_types=result_types)
    except CompileError as error:
        out.append(invalid(path, text, str(error)))


def _validate_policy(obj: AnyPolicy, out: list[Violation]) -> NamedExpressions:
    """Check what both kinds of policies have. Return the compiled variables."""
    spec = obj.spec
    _validate_choice(spec, "failurePolicy", FAILURE_POLICIES, "spec", out)
    has_params = spec.HasField("paramKind")
    if has_params:
        _validate_param_kind(spec.paramKind, "spec.paramKind", out)
    if not spec.HasField("matchConstraints"):
        out.append(required("spec.matchConstraints"))
    else:
        _validate_match_resources(spec.matchConstraints, "spec.matchConstraints", out)
        if not spec.matchConstraints.resourceRules:
            out.append(required("spec.matchConstraints.resourceRules"))
    _validate_conditions(spec.matchConditions, variable_types(has_params=has_params), "spec.matchConditions", out)
    named = NamedExpressions(spec.variables, has_params=has_params)
    for index, variable in enumerate(spec.variables):
        path = f"spec.variables[{index}]"
        if not variable.name.strip():
            out.append(required(f"{path}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(variable.name) or variable.name in _RESERVED:
            out.append(invalid(f"{path}.name", variable.name, "name is not a valid CEL identifier"))
        if not variable.expression.strip():
            out.append(required(f"{path}.expression", "expression is not specified"))
        elif index in named.problems:
            out.append(invalid(f"{path}.expression", variable.expression, named.problems[index]))
    return named


def _validate_param_kind(kind: ParamKind, path: str, out: list[Violation]) -> None:
    version_path, kind_path = f"{path}.apiVersion", f"{path}.kind"
    if not kind.apiVersion:
        out.append(required(version_path))
    elif kind.apiVersion.count("/") > 1:
        out.append(invalid(version_path, kind.apiVersion, f"unexpected GroupVersion string: {kind.apiVersion[:128]}"))
    else:
        group, _, version = kind.apiVersion.rpartition("/")
        if group and (problems := names.dns_subdomain(group)):
            out.append(invalid(version_path, group, ",".join(problems)))
        if not version:
            out.append(invalid(version_path, kind.apiVersion, "version must be specified"))
        elif problems := _label_1035(version):
            out.append(invalid(version_path, version, ",".join(problems)))
    if not kind.kind:
        out.append(required(kind_path))
    elif problems := _label_1035(kind.kind.lower()):
        detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        out.append(invalid(kind_path, kind.kind, detail))


def _validate_match_resources(resources: MatchResources, path: str, out: list[Violation]) -> None:
    _validate_choice(resources, "matchPolicy", MATCH_POLICIES, path, out)
    for field in ("namespaceSelector", "objectSelector"):
        validate_selector(getattr(resources, field), f"{path}.{field}", out)
    for field, rules in (
        ("resourceRules", resources.resourceRules),
        ("excludeResourceRules", resources.excludeResourceRules),
    ):
        for index, rule in enumerate(rules):
            _validate_named_rule(rule, f"{path}.{field}[{index}]", out)


def _validate_named_rule(rule: NamedRuleWithOperations, path: str, out: list[Violation]) -> None:
    seen = set[str]()
    for index, name in enumerate(rule.resourceNames):
        where = f"{path}.resourceNames[{index}]"
        out += [invalid(where, name, problem) for problem in names.path_segment(name)]
        if name in seen:
            out.append(duplicate(where, name))
        seen.add(name)
    _validate_rule(rule.ruleWithOperations, path, out)


def _validate_validation(validation: Validation, named: NamedExpressions, path: str, out: list[Violation]) -> None:
    message, message_expression = validation.message, validation.messageExpression
    if not validation.expression.strip():
        out.append(required(f"{path}.expression", "expression is not specified"))
    else:
        _validate_expression(validation.expression, named.types(), ("bool",), f"{path}.expression", out)
    if message_expression and not message_expression.strip():
        out.append(invalid(f"{path}.messageExpression", message_expression, "must be non-empty if specified"))
    elif message_expression:
        variables = named.types(has_authorizer=False)
        _validate_expression(message_expression, variables, ("string",), f"{path}.messageExpression", out)
    if message and not message.strip():
        out.append(invalid(f"{path}.message", message, "message must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        out.append(invalid(f"{path}.message", message, "message must not contain line breaks"))
    _validate_choice(validation, "reason", _REASONS, path, out)


def _validate_value_expression(text: str, variables: VariableTypes, path: str, out: list[Violation]) -> None:
    trimmed = text.strip()
    if not trimmed:
        out.append(required(path, "valueExpression is not specified"))
    elif len(trimmed.encode()) > MAX_VALUE_EXPRESSION:
        out.append(required(path, f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length"))
    else:
        try:
            compile_expression(trimmed, variables, result_types=VALUE_TYPES)
        except CompileError as error:
            out.append(invalid(path, text, str(error)))


def _validate_mutation(mutation: Mutation, variables: VariableTypes, path: str, out: list[Violation]) -> None:
    changes: Iterable[tuple[str, str, Any]] = (
        ("ApplyConfiguration", "applyConfiguration", mutation.applyConfiguration),
        ("JSONPatch", "jsonPatch", mutation.jsonPatch),
    )
    if not mutation.patchType:
        out.append(required(f"{path}.patchType"))
        return
    if mutation.patchType not in _PATCH_TYPES:
        out.append(unsupported(f"{path}.patchType", mutation.patchType, _PATCH_TYPES))
        return
    for patch_type, field, change in changes:
        where = f"{path}.{field}"
        if patch_type != mutation.patchType:
            if mutation.HasField(field):
                out.append(invalid(where, "{}", f"must not be specified when patchType is {mutation.patchType}"))
        elif not mutation.HasField(field):
            out.append(required(where, f"must be specified when patchType is {patch_type}"))
        elif not change.expression.strip():
            out.append(required(f"{where}.expression", "expression is not specified"))
        else:
            _validate_expression(change.expression, variables, MUTATION_TYPES[patch_type], f"{where}.expression", out)


def _validate_param_ref(ref: ParamRef, path: str, out: list[Violation]) -> None:
    exclusive = "name and selector are mutually exclusive"
    selects = ref.HasField("selector")
    if ref.name:
        out += [invalid(f"{path}.name", ref.name, problem) for problem in names.path_segment(ref.name)]
        if selects:
            out.append(forbidden(f"{path}.name", exclusive))
    if selects:
        validate_selector(ref.selector, f"{path}.selector", out)
        if ref.name:
            out.append(forbidden(f"{path}.selector", exclusive))
    if not ref.name and not selects:
        out.append(required(path, "one of name or selector must be specified"))
    if not ref.parameterNotFoundAction:
        out.append(required(f"{path}.parameterNotFoundAction"))
    else:
        _validate_choice(ref, "parameterNotFoundAction", _NOT_FOUND_ACTIONS, path, out)


def _validate_actions(actions: Sequence[str], path: str, out: list[Violation]) -> None:
    for index, action in enumerate(actions):
        if action not in VALIDATION_ACTIONS:
            out.append(unsupported(f"{path}[{index}]", action, VALIDATION_ACTIONS))
        if action in actions[:index]:
            out.append(duplicate(f"{path}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
            "headers serves no purpose)"
        )
        out.append(invalid(path, actions, detail))
    if not actions:
        out.append(required(path, "at least one validation action is required"))
