"""Cron jobs: defaults, validation and warnings."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import CRON_JOBS
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import Data, changed, created

POD: Data = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}
JOB: Data = {"template": {"spec": POD}}
TZ = "TZ=Europe/Berlin * * * * *"
PATH = "spec.jobTemplate.spec"


def cron_job(name: str = "c", job: Data | None = None, **spec: Any) -> Any:
    defaults = {"schedule": "* * * * *", "jobTemplate": {"spec": JOB | (job or {})}}
    return from_dict(CRON_JOBS, {"metadata": {"name": name, "namespace": "n"}, "spec": defaults | spec})


def test_defaults_are_those_of_kubernetes_and_the_job_has_none() -> None:
    obj = cron_job()
    assert created(CRON_JOBS, obj) == []
    spec = to_dict(obj.spec)
    assert set(spec["jobTemplate"]["spec"]) == {"template"}
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (cron_job(timeZone="Europe/Berlin", schedule="@every 5m"), []),
        (cron_job(schedule=""), ["spec.schedule: Required value"]),
        (
            cron_job(schedule="61 * * * *"),
            ['spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61'],
        ),
        (
            cron_job(schedule=TZ),
            [f'spec.schedule: Invalid value: "{TZ}": cannot use TZ or CRON_TZ in schedule, use timeZone field instead'],
        ),
        (cron_job(timeZone=""), ['spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string']),
        (cron_job(timeZone="Mars/X"), ['spec.timeZone: Invalid value: "Mars/X": unknown time zone Mars/X']),
        (
            cron_job(timeZone="Local"),
            [
                'spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in '
                "https://www.iana.org/time-zones"
            ],
        ),
        (
            cron_job(startingDeadlineSeconds=-1, successfulJobsHistoryLimit=-1, failedJobsHistoryLimit=-2),
            [
                "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.successfulJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
                "spec.failedJobsHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
            ],
        ),
        (
            cron_job(concurrencyPolicy="Some"),
            ['spec.concurrencyPolicy: Unsupported value: "Some": supported values: "Allow", "Forbid", "Replace"'],
        ),
        (cron_job(name="c" * 53), [f'metadata.name: Invalid value: "{"c" * 53}": must be no more than 52 characters']),
        (
            cron_job(job={"template": {"spec": POD | {"restartPolicy": "Always"}}}),
            [f'{PATH}.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
        (
            cron_job(job={"manualSelector": True, "parallelism": -1}),
            [
                f"{PATH}.parallelism: Invalid value: -1: must be greater than or equal to 0",
                f'{PATH}.manualSelector: Unsupported value: true: supported values: "nil", "false"',
            ],
        ),
    ],
)
def test_new_cron_job_is_validated(obj: Any, expected: list[str]) -> None:
    assert created(CRON_JOBS, obj) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (TZ, TZ, []),
        (TZ, "* * * * *", []),
        (TZ, f"{TZ.removesuffix('*')}1", []),
        ("* * * * *", TZ, ["cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]),
    ],
)
def test_zone_in_a_stored_schedule_may_stay(before: str, after: str, expected: list[str]) -> None:
    old = cron_job(schedule=before)
    created(CRON_JOBS, old)
    problems = changed(CRON_JOBS, cron_job(schedule=after), old)
    assert [problem.rpartition(": ")[2] for problem in problems] == expected


def test_zone_in_a_stored_schedule_excludes_the_field() -> None:
    old = cron_job(schedule=TZ)
    created(CRON_JOBS, old)
    (problem,) = changed(CRON_JOBS, cron_job(schedule=TZ, timeZone="UTC"), old)
    assert problem.endswith("cannot use both timeZone field and TZ or CRON_TZ in schedule")


def test_name_that_is_no_label_causes_a_warning() -> None:
    (warning,) = STRATEGIES["cronjobs"].warnings(cron_job(name="a.b"))
    assert warning.startswith("metadata.name: this is used in Pod names and hostnames")
