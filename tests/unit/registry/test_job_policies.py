"""Policies of jobs: defaults, validation, and what a suspended job may change."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import JOBS
from tests.unit.registry.objects import CONTAINER, Data, changed, created, status_changed

META: Data = {"name": "web", "namespace": "default", "uid": "uid-web"}
INDEXED: Data = {"completionMode": "Indexed", "completions": 5, "parallelism": 2}
CODES: Data = {"operator": "In", "values": [42]}
RULE = "spec.podFailurePolicy.rules[0]"
SUCCESS = "spec.successPolicy.rules[0]"


def job(run: Data | None = None, **spec: Any) -> Any:
    template: Data = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"} | (run or {})}
    return from_dict(JOBS, {"metadata": META, "spec": {"template": template} | spec})


def failing(**rule: Any) -> Data:
    return {"podFailurePolicy": {"rules": [rule]}}


def test_defaults_depend_on_the_policies() -> None:
    obj = job(**INDEXED, backoffLimitPerIndex=1, **failing(action="Ignore", onPodConditions=[{"type": "DisruptionTarget"}]))
    assert created(JOBS, obj) == []
    assert (obj.spec.backoffLimit, obj.spec.podReplacementPolicy) == (2**31 - 1, "Failed")
    assert obj.spec.podFailurePolicy.rules[0].onPodConditions[0].status == "True"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"backoffLimitPerIndex": 1},
            ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        ({**INDEXED, "maxFailedIndexes": 1}, ["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"]),
        (
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 6},
            ["spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"],
        ),
        (
            {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001, "backoffLimitPerIndex": 1},
            [
                "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
                "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 "
                "and used with backoff limit per index",
            ],
        ),
        (
            {"managedBy": "queue"},
            ['spec.managedBy: Invalid value: "queue": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        ({"managedBy": ""}, ["spec.managedBy: Required value"]),
        ({"managedBy": f"a.io/{'b' * 60}"}, ["spec.managedBy: Too long: may not be more than 63 bytes"]),
        (
            failing(action="FailIndex", onExitCodes=CODES),
            [f'{RULE}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'],
        ),
        (
            failing(onExitCodes=CODES),
            [f'{RULE}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'],
        ),
        (
            failing(action="FailJob", onExitCodes=CODES, onPodConditions=[{"type": "Ready"}]),
            [f"{RULE}: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
        ),
        (failing(action="FailJob"), [f"{RULE}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"]),
        (
            failing(action="FailJob", onExitCodes={"containerName": "none", "operator": "Is", "values": []}),
            [
                f'{RULE}.onExitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"',
                f'{RULE}.onExitCodes.containerName: Invalid value: "none": must be one of the container or initContainer names '
                "in the pod template",
                f"{RULE}.onExitCodes.values: Invalid value: []: at least one value is required",
            ],
        ),
        (
            failing(action="FailJob", onExitCodes={"operator": "In", "values": [3, 0, 3]}),
            [
                f"{RULE}.onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                f"{RULE}.onExitCodes.values[2]: Duplicate value: 3",
                f"{RULE}.onExitCodes.values: Invalid value: [3,0,3]: must be ordered",
            ],
        ),
        (
            failing(action="Ignore", onPodConditions=[{"type": "Ready", "status": "Maybe"}]),
            [
                f'{RULE}.onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
            ],
        ),
        (
            {**failing(action="FailJob", onExitCodes=CODES), "podReplacementPolicy": "TerminatingOrFailed"},
            ['spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"'],
        ),
        ({"successPolicy": {"rules": []}}, ["spec.successPolicy: Invalid value: requires indexed completion mode"]),
        (
            {**INDEXED, "successPolicy": {"rules": []}},
            [
                "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is "
                "specified"
            ],
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{}]}},
            [f"{SUCCESS}: Required value: at least one of succeededCount or succeededIndexes must be specified"],
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "1-9"}]}},
            [f'{SUCCESS}.succeededIndexes: Invalid value: "1-9": error parsing succeededIndexes: too large index: "9"'],
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 4}]}},
            [
                f"{SUCCESS}.succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the "
                "specified succeededIndexes field)"
            ],
        ),
    ],
)  # fmt: skip
def test_wrong_policies_are_refused(spec: Data, expected: list[str]) -> None:
    assert created(JOBS, job(**spec)) == expected


def test_failure_policy_requires_pods_that_never_restart() -> None:
    assert created(JOBS, job({"restartPolicy": "OnFailure"}, **failing(action="FailJob", onExitCodes=CODES))) == [
        'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is '
        "specified"
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"backoffLimitPerIndex": 1}, {"backoffLimitPerIndex": 2}),
        ({"managedBy": "a.io/b"}, {"managedBy": "a.io/c"}),
        ({}, failing(action="FailJob", onExitCodes=CODES)),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, {"successPolicy": {"rules": [{"succeededCount": 2}]}}),
    ],
)
def test_policies_are_immutable(before: Data, after: Data) -> None:
    old = job(**INDEXED, **before)
    assert created(JOBS, old) == []
    (wrong,) = [item for item in changed(JOBS, job(**INDEXED, **after), old) if "podReplacementPolicy" not in item]
    assert wrong.startswith(f"spec.{next(iter(after))}: Invalid value: ") and wrong.endswith(": field is immutable")


@pytest.mark.parametrize(("suspend", "accepted"), [(True, True), (False, False)])
def test_suspended_job_may_move_its_pods(suspend: bool, accepted: bool) -> None:
    old = job(suspend=suspend)
    assert created(JOBS, old) == []
    moved = job({"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]}, suspend=suspend)
    assert (changed(JOBS, moved, old) == []) == accepted
    image = job({"containers": [CONTAINER | {"image": "other:2"}]}, suspend=suspend)
    assert changed(JOBS, image, old) == ["spec.template: Forbidden: field is immutable"]


@pytest.mark.parametrize(
    ("spec", "status", "wrong"),
    [
        ({}, {"failedIndexes": "0"}, '"0": cannot set non-null failedIndexes when backoffLimitPerIndex is null'),
        ({"backoffLimitPerIndex": 1}, {"failedIndexes": "9"}, '"9": error parsing failedIndexes: too large index: "9"'),
        (
            {"backoffLimitPerIndex": 1},
            {"failedIndexes": "1-3", "completedIndexes": "0,2"},
            '"1-3": failedIndexes and completedIndexes overlap at index: 2',
        ),
        ({"backoffLimitPerIndex": 1}, {"failedIndexes": "1,3,4", "completedIndexes": "0,2"}, None),
    ],
)
def test_failed_indexes_of_a_status(spec: Data, status: Data, wrong: str | None) -> None:
    old = job(**INDEXED, **spec)
    assert created(JOBS, old) == []
    said = status_changed(JOBS, from_dict(JOBS, {"metadata": META, "status": status}), old)
    assert said == ([f"status.failedIndexes: Invalid value: {wrong}"] if wrong else [])
