"""The policies of a job: what a failed pod means (podFailurePolicy), and which completed indexes suffice (successPolicy). Pure.

Source: pkg/controller/job/pod_failure_policy.go and success_policy.go of Kubernetes 1.36.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pinnace.api.batch_v1_pb2 import Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule
from pinnace.api.core_v1_pb2 import ContainerStatus, Pod
from pinnace.controllers.job_indexes import CompletionIndexes, parse_indexes

FAIL_JOB, FAIL_INDEX, IGNORE = "FailJob", "FailIndex", "Ignore"


class FailurePolicyMatch(NamedTuple):
    action: str
    """FailJob, FailIndex, Ignore or Count."""
    message: str
    """The message of the job's condition if the action is FailJob."""


def match_failure_policy(job: Job, pod: Pod) -> FailurePolicyMatch | None:
    """Return the first rule of the job's podFailurePolicy that matches the failed pod, or None."""
    for index, rule in enumerate(job.spec.podFailurePolicy.rules):
        if (subject := _matching_subject(rule, pod)) is not None:
            return FailurePolicyMatch(rule.action, f"{subject} matching {rule.action} rule at index {index}")
    return None


def is_failure_ignored(job: Job, pod: Pod) -> bool:
    """Return True if the job's podFailurePolicy ignores the failure of the pod."""
    matched = match_failure_policy(job, pod)
    return matched is not None and matched.action == IGNORE


def find_job_failure(job: Job, failed: Iterable[Pod]) -> str | None:
    """Return the message of the first failed pod that fails the whole job, or None."""
    if not job.spec.HasField("podFailurePolicy"):
        return None
    matches = (match_failure_policy(job, pod) for pod in failed)
    return next((matched.message for matched in matches if matched is not None and matched.action == FAIL_JOB), None)


def _matching_subject(rule: PodFailurePolicyRule, pod: Pod) -> str | None:
    """Return the part of the pod that matches the rule, for a message, or None."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.HasField("onExitCodes"):
        for status in (*pod.status.containerStatuses, *pod.status.initContainerStatuses):
            if _matches_exit_code(rule.onExitCodes, status):
                return f"Container {status.name} for pod {name} failed with exit code {status.state.terminated.exitCode}"
        return None
    patterns = {(pattern.type, pattern.status) for pattern in rule.onPodConditions}
    for pod_condition in pod.status.conditions:
        if (pod_condition.type, pod_condition.status) in patterns:
            return f"Pod {name} has condition {pod_condition.type}"
    return None


def _matches_exit_code(requirement: PodFailurePolicyOnExitCodesRequirement, status: ContainerStatus) -> bool:
    if not status.state.HasField("terminated") or not status.state.terminated.exitCode:
        return False
    if requirement.HasField("containerName") and requirement.containerName != status.name:
        return False
    return (status.state.terminated.exitCode in requirement.values) == (requirement.operator == "In")


def match_success_policy(job: Job, completed: CompletionIndexes) -> str | None:
    """Return the message of the first rule of the successPolicy that the completed indexes meet, or None."""
    if not len(completed):
        return None
    for index, rule in enumerate(job.spec.successPolicy.rules):
        among, count = completed, rule.succeededCount if rule.HasField("succeededCount") else None
        if rule.HasField("succeededIndexes"):
            required = parse_indexes(rule.succeededIndexes, job.spec.completions)
            if not len(required):
                continue
            among = completed.intersection(required)
            count = len(required) if count is None else count
        if count is not None and len(among) >= count:
            return f"Matched rules at index {index}"
    return None
