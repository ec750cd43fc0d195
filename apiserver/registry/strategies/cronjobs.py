"""The strategy of cron jobs.

The template of the jobs has the defaults of a pod template only; the other defaults are set when a job is created. A schedule
with a time zone of its own ("TZ=...") is refused, except in an update of a cron job that already has one.

Source: pkg/apis/batch/validation, pkg/apis/batch/v1/defaults.go and pkg/registry/batch/cronjob of Kubernetes 1.36.
"""

from collections.abc import Iterable

from pinnace.api import cron
from pinnace.api.batch_v1_pb2 import CronJob, CronJobSpec
from pinnace.api.codec import to_dict
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies.pods import set_template_defaults
from pinnace.apiserver.registry.strategies.workloads import validate_job_spec, validate_job_template, workload_warnings
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.fields import invalid, not_negative, required, unsupported

MAX_NAME = 52
"""Maximum length of a name, because a job's name has a suffix of 11 characters and is a label of its pods."""
DEFAULT_SUCCESSFUL_JOBS, DEFAULT_FAILED_JOBS = 3, 1
_CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
_COUNTS = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
_JOB_PATH = "spec.jobTemplate.spec"
_ZONE_MARK = "TZ"
_ZONE_IN_SCHEDULE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"


class CronJobStrategy(StatusStrategy[CronJob]):
    has_generation = True

    def set_defaults(self, obj: CronJob) -> None:
        spec = obj.spec
        spec.concurrencyPolicy = spec.concurrencyPolicy or "Allow"
        if not spec.HasField("suspend"):
            spec.suspend = False
        if not spec.HasField("successfulJobsHistoryLimit"):
            spec.successfulJobsHistoryLimit = DEFAULT_SUCCESSFUL_JOBS
        if not spec.HasField("failedJobsHistoryLimit"):
            spec.failedJobsHistoryLimit = DEFAULT_FAILED_JOBS
        set_template_defaults(spec.jobTemplate.spec.template.spec)

    def check_fields(self, obj: CronJob, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.schedule:
            out.append(required("spec.schedule"))
        else:
            _validate_schedule(spec, out)
        not_negative(spec, "spec", ("startingDeadlineSeconds",), out)
        if spec.HasField("timeZone"):
            _validate_zone(spec.timeZone, out)
        if spec.concurrencyPolicy not in _CONCURRENCY_POLICIES:
            out.append(unsupported("spec.concurrencyPolicy", spec.concurrencyPolicy, _CONCURRENCY_POLICIES))
        _validate_job_template(spec, out)
        not_negative(spec, "spec", _COUNTS, out)

    def check_new(self, obj: CronJob, out: list[Violation]) -> None:
        self.check_fields(obj, out)
        if _ZONE_MARK in obj.spec.schedule:
            out.append(invalid("spec.schedule", obj.spec.schedule, _ZONE_IN_SCHEDULE))
        if len(obj.metadata.name) > MAX_NAME:
            out.append(invalid("metadata.name", obj.metadata.name, f"must be no more than {MAX_NAME} characters"))

    def check_change(self, new: CronJob, old: CronJob, out: list[Violation]) -> None:
        if _ZONE_MARK not in new.spec.schedule:
            return
        if _ZONE_MARK not in old.spec.schedule:
            out.append(invalid("spec.schedule", new.spec.schedule, _ZONE_IN_SCHEDULE))
        elif new.spec.HasField("timeZone"):
            detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            out.append(invalid("spec.schedule", new.spec.schedule, detail))

    def warnings(self, obj: CronJob) -> Iterable[str]:
        for warning in workload_warnings(obj.metadata.name, obj.spec.jobTemplate.spec.template):
            yield warning.replace("spec.template.", f"{_JOB_PATH}.template.")


def _validate_schedule(spec: CronJobSpec, out: list[Violation]) -> None:
    try:
        cron.parse(spec.schedule)
    except cron.CronError as error:
        out.append(invalid("spec.schedule", spec.schedule, str(error)))


def _validate_zone(zone: str, out: list[Violation]) -> None:
    path = "spec.timeZone"
    if not zone:
        out.append(invalid(path, zone, "timeZone must be nil or non-empty string"))
        return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        out.append(invalid(path, zone, detail))
        if zone == "Local":
            return
    try:
        cron.load_zone(zone)
    except cron.CronError as error:
        out.append(invalid(path, zone, str(error)))


def _validate_job_template(spec: CronJobSpec, out: list[Violation]) -> None:
    job = spec.jobTemplate.spec
    violations: list[Violation] = []
    validate_job_spec(job, violations)
    validate_job_template(job, violations)
    if job.HasField("selector"):
        violations.append(invalid("spec.selector", to_dict(job.selector), "`selector` will be auto-generated"))
    if job.manualSelector:
        violations.append(unsupported("spec.manualSelector", True, ("nil", "false")))
    out.extend(Violation(f"{_JOB_PATH}{violation.field.removeprefix('spec')}", violation.message) for violation in violations)
