"""Validation of the policies of a job: podFailurePolicy, successPolicy, backoffLimitPerIndex, managedBy, podReplacementPolicy.

Source: pkg/apis/batch/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence

from pinnace.api import names
from pinnace.api.batch_v1_pb2 import (
    JobSpec,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicyRule,
)
from pinnace.api.integers import parse_natural
from pinnace.api.status import Violation
from pinnace.apiserver.registry.validation.fields import (
    MAX_SHOWN,
    duplicate,
    invalid,
    invalid_object,
    not_negative,
    required,
    too_long,
    too_many,
    unsupported,
    validate_domain_prefixed_path,
)

INDEXED = "Indexed"
_POD_REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
_MAX_MANAGED_BY = 63

_MAX_INDEXED = 100_000
"""Maximum parallelism and maxFailedIndexes of an Indexed job. With more completions, maxFailedIndexes is required."""
_MANY_COMPLETIONS_LIMIT = 10_000
"""Maximum parallelism and number of failed indexes if there are more than _MAX_INDEXED completions."""

_MAX_RULES = 20
_MAX_EXIT_CODES = 255
_MAX_SUCCEEDED_INDEXES = 64 << 10
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")


def validate_job_policies(spec: JobSpec, out: list[Violation]) -> None:
    """Validate the policies in the spec of a job, at "spec"."""
    not_negative(spec, "spec", ("backoffLimitPerIndex", "maxFailedIndexes"), out)
    if spec.HasField("maxFailedIndexes") and not spec.HasField("backoffLimitPerIndex"):
        out.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.HasField("managedBy"):
        validate_domain_prefixed_path(spec.managedBy, "spec.managedBy", out)
        if len(spec.managedBy.encode()) > _MAX_MANAGED_BY:
            out.append(too_long("spec.managedBy", _MAX_MANAGED_BY))
    if spec.completionMode == INDEXED:
        _validate_indexed(spec, out)
    else:
        fields = [field for field in ("backoffLimitPerIndex", "maxFailedIndexes") if spec.HasField(field)]
        detail = "requires indexed completion mode"
        out.extend(invalid(f"spec.{field}", getattr(spec, field), detail) for field in fields)
    if spec.HasField("podFailurePolicy"):
        _validate_failure_policy(spec, out)
    if spec.HasField("successPolicy"):
        if spec.completionMode == INDEXED:
            _validate_success_policy(spec, out)
        else:
            out.append(invalid_object("spec.successPolicy", "requires indexed completion mode"))
    if spec.HasField("podReplacementPolicy"):
        supported = ("Failed",) if spec.HasField("podFailurePolicy") else _POD_REPLACEMENT_POLICIES
        if spec.podReplacementPolicy not in supported:
            out.append(unsupported("spec.podReplacementPolicy", spec.podReplacementPolicy, supported))


def _validate_indexed(spec: JobSpec, out: list[Violation]) -> None:
    if not spec.HasField("completions"):
        out.append(required("spec.completions", f"when completion mode is {INDEXED}"))
    if spec.parallelism > _MAX_INDEXED:
        detail = f"must be less than or equal to {_MAX_INDEXED} when completion mode is {INDEXED}"
        out.append(invalid("spec.parallelism", spec.parallelism, detail))
    if spec.HasField("completions") and spec.maxFailedIndexes > spec.completions:
        out.append(invalid("spec.maxFailedIndexes", spec.maxFailedIndexes, "must be less than or equal to completions"))
    if spec.maxFailedIndexes > _MAX_INDEXED:
        detail = f"must be less than or equal to {_MAX_INDEXED}"
        out.append(invalid("spec.maxFailedIndexes", spec.maxFailedIndexes, detail))
    if spec.completions <= _MAX_INDEXED or not spec.HasField("backoffLimitPerIndex"):
        return
    if not spec.HasField("maxFailedIndexes"):
        out.append(required("spec.maxFailedIndexes", f"must be specified when completions is above {_MAX_INDEXED}"))
    detail = (
        f"must be less than or equal to {_MANY_COMPLETIONS_LIMIT} when completions are above {_MAX_INDEXED} and used with "
        "backoff limit per index"
    )
    counts = {field: getattr(spec, field) for field in ("parallelism", "maxFailedIndexes")}
    out.extend(invalid(f"spec.{field}", count, detail) for field, count in counts.items() if count > _MANY_COMPLETIONS_LIMIT)


def _validate_failure_policy(spec: JobSpec, out: list[Violation]) -> None:
    rules, path = spec.podFailurePolicy.rules, "spec.podFailurePolicy.rules"
    if len(rules) > _MAX_RULES:
        out.append(too_many(path, len(rules), _MAX_RULES))
    template = spec.template.spec
    containers = {container.name for container in (*template.containers, *template.initContainers)}
    for index, rule in enumerate(rules):
        _validate_rule(spec, rule, f"{path}[{index}]", containers, out)


def _validate_rule(spec: JobSpec, rule: PodFailurePolicyRule, path: str, containers: set[str], out: list[Violation]) -> None:
    if rule.action == "FailIndex" and not spec.HasField("backoffLimitPerIndex"):
        out.append(invalid(f"{path}.action", rule.action, "requires the backoffLimitPerIndex to be set"))
    _validate_choice(rule.action, f"{path}.action", _ACTIONS, out)
    if rule.HasField("onExitCodes"):
        _validate_exit_codes(rule.onExitCodes, f"{path}.onExitCodes", containers, out)
    _validate_patterns(rule.onPodConditions, f"{path}.onPodConditions", out)
    if rule.HasField("onExitCodes") and rule.onPodConditions:
        out.append(invalid_object(path, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if not rule.HasField("onExitCodes") and not rule.onPodConditions:
        out.append(invalid_object(path, "specifying one of OnExitCodes and OnPodConditions is required"))


def _validate_choice(value: str, path: str, choices: Sequence[str], out: list[Violation]) -> None:
    if not value:
        shown = " ".join(f'"{choice}"' for choice in choices)
        out.append(required(path, f"valid values: [{shown}]"))
    elif value not in choices:
        out.append(unsupported(path, value, choices))


def _validate_exit_codes(
    requirement: PodFailurePolicyOnExitCodesRequirement, path: str, containers: set[str], out: list[Violation]
) -> None:
    _validate_choice(requirement.operator, f"{path}.operator", _OPERATORS, out)
    if requirement.HasField("containerName") and requirement.containerName not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        out.append(invalid(f"{path}.containerName", requirement.containerName, detail))
    values = list(requirement.values)
    if not values:
        out.append(invalid(f"{path}.values", [], "at least one value is required"))
    elif len(values) > _MAX_EXIT_CODES:
        out.append(too_many(f"{path}.values", len(values), _MAX_EXIT_CODES))
    seen = set[int]()
    for index, value in enumerate(values):
        if not value and requirement.operator == "In":
            out.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            out.append(duplicate(f"{path}.values[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        out.append(invalid(f"{path}.values", values, "must be ordered"))


def _validate_patterns(patterns: Sequence[PodFailurePolicyOnPodConditionsPattern], path: str, out: list[Violation]) -> None:
    if len(patterns) > _MAX_RULES:
        out.append(too_many(path, len(patterns), _MAX_RULES))
    for index, pattern in enumerate(patterns):
        problems = names.label_key(pattern.type)
        out.extend(invalid(f"{path}[{index}].type", pattern.type, problem) for problem in problems)
        _validate_choice(pattern.status, f"{path}[{index}].status", _STATUSES, out)


def _validate_success_policy(spec: JobSpec, out: list[Violation]) -> None:
    rules, path = spec.successPolicy.rules, "spec.successPolicy.rules"
    if not rules:
        out.append(required(path, "at least one rules must be specified when the successPolicy is specified"))
    if len(rules) > _MAX_RULES:
        out.append(too_many(path, len(rules), _MAX_RULES))
    for index, rule in enumerate(rules):
        _validate_success_rule(rule, spec.completions, f"{path}[{index}]", out)


def _validate_success_rule(rule: SuccessPolicyRule, completions: int, path: str, out: list[Violation]) -> None:
    has_count, has_indexes = rule.HasField("succeededCount"), rule.HasField("succeededIndexes")
    if not has_count and not has_indexes:
        out.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if has_indexes:
        indexes, where = rule.succeededIndexes, f"{path}.succeededIndexes"
        if len(indexes.encode()) > _MAX_SUCCEEDED_INDEXES:
            out.append(too_long(where, _MAX_SUCCEEDED_INDEXES))
            return
        runs, problem = parse_index_runs(indexes, completions)
        if problem:
            out.append(invalid(where, indexes, f"error parsing succeededIndexes: {problem}"))
        else:
            total = sum(last - first + 1 for first, last in runs)
    if not has_count:
        return
    not_negative(rule, path, ("succeededCount",), out)
    path, count = f"{path}.succeededCount", rule.succeededCount
    if count > completions:
        out.append(invalid(path, count, f"must be less than or equal to {completions} (the number of specified completions)"))
    if has_indexes and count > total:
        detail = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        out.append(invalid(path, count, detail))


def parse_index_runs(text: str, completions: int) -> tuple[list[tuple[int, int]], str]:
    """Parse intervals such as "1,3-5,7". They must increase and be less than the completions.

    Return the first and last index of each interval and "", or an empty list and the error.
    """
    before, runs = -1, list[tuple[int, int]]()
    for interval in text.split(",") if text else ():
        ends = interval.split("-")
        if len(ends) > 2:
            return [], (
                f"the fragment {interval[:MAX_SHOWN]!r} violates the requirement that an index interval can have at most two "
                "parts separated by '-'"
            )
        for end in ends:
            index = parse_natural(end)
            if index is None:
                return [], f'cannot convert string to integer for index: "{end[:MAX_SHOWN]}"'
            if index >= completions:
                return [], f'too large index: "{end}"'
            if index <= before:
                return [], f"non-increasing order, previous: {before}, current: {index}"
            before = index
        runs.append((int(ends[0]), int(ends[-1])))
    return runs, ""


def first_common_index(runs: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> int | None:
    """Return the first index in both sorted lists of intervals, or None."""
    mine, its = 0, 0
    while mine < len(runs) and its < len(others):
        first, last = max(runs[mine][0], others[its][0]), min(runs[mine][1], others[its][1])
        if first <= last:
            return first
        if runs[mine][1] < others[its][1]:
            mine += 1
        else:
            its += 1
    return None
