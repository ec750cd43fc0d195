"""What a status update may say of a job."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import JOBS
from tests.unit.registry.objects import CONTAINER, Data, created, status_changed

META: Data = {"name": "web", "namespace": "default", "uid": "uid-web"}
NOON, LATER = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"


def stored(**spec: Any) -> Any:
    """A job as it is stored after its creation."""
    run: Data = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    obj = from_dict(JOBS, {"metadata": META, "spec": {"template": run} | spec})
    assert created(JOBS, obj) == []
    return obj


def with_status(**status: Any) -> Any:
    return from_dict(JOBS, {"metadata": META, "status": status})


def said(kind: str, status: str = "True") -> Data:
    """A condition."""
    return {"type": kind, "status": status}


DONE: Data = {"conditions": [said("Complete")], "startTime": NOON, "completionTime": NOON}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (DONE, []),
        ({"conditions": [said("Failed")], "startTime": NOON}, []),
        ({"active": -1}, ["status.active: Invalid value: -1: must be greater than or equal to 0"]),
        (
            DONE | {"conditions": [said("Complete"), said("Failed")]},
            ["status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions"],
        ),
        (
            DONE | {"conditions": [said("Complete"), said("FailureTarget")]},
            ["status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions"],
        ),
        (
            {"conditions": [said("SuccessCriteriaMet"), said("FailureTarget")]},
            ["status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"],
        ),
        ({"active": 1, "ready": 1}, []),
        ({"active": 1, "ready": 2}, ["status.ready: Invalid value: 2: cannot set more ready pods than active"]),
        (
            {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a", ""]}},
            [
                'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
                'status.uncountedTerminatedPods.failed[1]: Invalid value: "": must not be empty',
            ],
        ),
        (
            {"conditions": [said("Complete")], "startTime": NOON},
            ["status.completionTime: Required value: completionTime is required for Complete jobs"],
        ),
        (
            {"conditions": [said("Failed")]},
            ["status.startTime: Required value: startTime is required for finished job"],
        ),
        *(
            (
                {"conditions": [said("Failed")], "startTime": NOON, field: 1},
                [f"status.{field}: Invalid value: 1: {field}>0 is invalid for finished job"],
            )
            for field in ("active", "terminating")
        ),
        (
            DONE | {"uncountedTerminatedPods": {"failed": ["a"]}},
            [
                'status.uncountedTerminatedPods: Invalid value: ["a"]: '
                "uncountedTerminatedPods needs to be empty for finished job"
            ],
        ),
        (
            {"completionTime": NOON},
            [
                f'status.completionTime: Invalid value: "{NOON}": '
                "cannot set completionTime when there is no Complete=True condition"
            ],
        ),
    ],
)
def test_status(status: Data, expected: list[str]) -> None:
    old = stored()
    assert status_changed(JOBS, with_status(**status), old) == expected


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        (DONE, DONE, None),
        (DONE, {"startTime": NOON}, "conditions: Invalid value: cannot disable the terminal Complete=True condition"),
        *(
            (
                {"conditions": [said(kind)], "startTime": NOON},
                {"conditions": [said(kind, "False")], "startTime": NOON},
                f"conditions: Invalid value: cannot disable the terminal {kind}=True condition",
            )
            for kind in ("Failed", "FailureTarget", "SuccessCriteriaMet")
        ),
        (DONE, DONE | {"completionTime": LATER}, f'completionTime: Invalid value: "{LATER}": completionTime cannot be mutated'),
        (
            {"startTime": LATER},
            DONE | {"startTime": LATER},
            f'completionTime: Invalid value: "{NOON}": completionTime cannot be set before startTime',
        ),
        (DONE | {"startTime": LATER}, DONE | {"startTime": LATER, "failed": 1}, None),
        ({"startTime": NOON}, {}, "startTime: Required value: startTime cannot be removed for unsuspended job"),
        (
            {"startTime": NOON},
            {"startTime": LATER},
            f'startTime: Invalid value: "{LATER}": startTime cannot be changed for unsuspended job',
        ),
        ({}, {"startTime": LATER}, None),
        ({"failed": 3}, {"failed": 2}, "failed: Invalid value: 2: cannot decrease the failed counter"),
        ({"succeeded": 3}, {"succeeded": 2}, "succeeded: Invalid value: 2: cannot decrease the succeeded counter"),
        (DONE | {"active": 1}, DONE | {"active": 1, "failed": 1}, None),
    ],
)
def test_job_status_cannot_be_reverted(before: Data, after: Data, wrong: str | None) -> None:
    """Who waits for the end of a job can go by it. What was wrong before is not held against what else changes."""
    old = stored()
    old.status.CopyFrom(with_status(**before).status)
    result = status_changed(JOBS, with_status(**after), old)
    assert result == ([] if wrong is None else [f"status.{wrong}"])


def test_suspended_job_resets_its_status_and_indexed_job_may_shrink() -> None:
    suspended = stored(suspend=True)
    suspended.status.startTime.seconds = 5
    assert status_changed(JOBS, with_status(), suspended) == []
    ended = {"conditions": [said("Complete")], "completionTime": NOON}
    assert status_changed(JOBS, with_status(**ended), suspended) == []
    indexed = stored(completionMode="Indexed", completions=2, parallelism=2)
    indexed.status.succeeded = 3
    assert status_changed(JOBS, with_status(succeeded=2), indexed) == []


@pytest.mark.parametrize(
    ("indexes", "problem"),
    [
        ("0,2-4,9", ""),
        ("x", 'cannot convert string to integer for index: "x"'),
        ("-1", 'cannot convert string to integer for index: ""'),
        ("9" * 5000, f'cannot convert string to integer for index: "{"9" * 128}"'),
        ("0-2147483647", 'too large index: "2147483647"'),
        ("3,10", 'too large index: "10"'),
        ("3,3", "non-increasing order, previous: 3, current: 3"),
        ("5-5", "non-increasing order, previous: 5, current: 5"),
        ("2-4,3", "non-increasing order, previous: 4, current: 3"),
        ("1-2-3", "the fragment '1-2-3' violates the requirement that an index interval can have at most two parts"),
    ],
)
def test_indexes_of_a_status_are_some_of_the_job(indexes: str, problem: str) -> None:
    old = stored(completionMode="Indexed", completions=10)
    result = status_changed(JOBS, with_status(completedIndexes=indexes), old)
    assert len(result) == bool(problem)
    assert all(f": error parsing completedIndexes: {problem}" in item for item in result)


def test_indexes_that_stay_are_not_looked_at_as_the_job_may_have_shrunk() -> None:
    old = stored(completionMode="Indexed", completions=2)
    old.status.completedIndexes = "0,7"
    assert status_changed(JOBS, with_status(completedIndexes="0,7"), old) == []


def test_job_without_indexes_has_none_in_its_status() -> None:
    (result,) = status_changed(JOBS, with_status(completedIndexes="0"), stored())
    assert result.endswith("cannot set non-empty completedIndexes when non-indexed completion mode")
