"""Whether a job is done, and how. Pure; times are Unix time.

    (runs) --enough have succeeded--> SuccessCriteriaMet --no pod is left--> Complete
       |--too many failed, too late--> FailureTarget -----no pod is left--> Failed

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
"""

from collections.abc import Iterable
from typing import NamedTuple

from controllers.jobs.counting import Count
from controllers.podstates import active
from pinnace.api import conditions
from pinnace.api.batch_v1_pb2 import Job, JobCondition, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.times import to_seconds, to_time

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
"""What the first two are announced by."""
_ENDS = {SUCCESS: COMPLETE, FAILURE: FAILED}


class Verdict(NamedTuple):
    reason: str
    message: str


def condition(status: JobStatus, *types: str) -> JobCondition | None:
    """The first of these that is True."""
    return next((each for each in status.conditions if each.type in types and each.status == "True"), None)


def say(status: JobStatus, type_: str, value: str, verdict: Verdict, now: float) -> None:
    """A condition that says so already stays as it is."""
    found = conditions.find(status.conditions, type_)
    if found is None or found.status != value:
        said = conditions.say(status.conditions, type_, value, verdict.reason, verdict.message, now)
        said.lastProbeTime.CopyFrom(to_time(now))


def ended(job: Job) -> JobCondition | None:
    return condition(job.status, COMPLETE, FAILED)


def judged(status: JobStatus) -> bool:
    """Is it clear how it ends?"""
    return condition(status, SUCCESS, FAILURE) is not None


def judge(job: Job, count: Count, pods: Iterable[Pod], now: float) -> None:
    """Says how it ends, once that is clear; it does not change afterwards."""
    status = count.status
    if judged(status):
        return
    if (verdict := _failure(job, count, pods, now)) is not None:
        say(status, FAILURE, "True", verdict, now)
    elif _succeeded(job, count):
        verdict = Verdict("CompletionsReached", "Reached expected number of succeeded pods")
        say(status, SUCCESS, "True", verdict, now)


def finish(count: Count, now: float) -> bool:
    """Says that it has ended, when its pods have, and are counted. Has it?"""
    status = count.status
    sentence = condition(status, SUCCESS, FAILURE)
    waiting = status.uncountedTerminatedPods
    uncounted = waiting.succeeded or waiting.failed or not count.whole
    if sentence is None or status.active or status.terminating or uncounted:
        return False
    end = _ENDS[sentence.type]
    say(status, end, "True", Verdict(sentence.reason, sentence.message), now)
    if end == COMPLETE:  # not before it began: another controller's clock may have been ahead
        status.completionTime.CopyFrom(to_time(max(now, to_seconds(status.startTime))))
    return True


def time_left(job: Job, status: JobStatus, now: float) -> float | None:
    """Seconds until the job is late; None: it has all the time, or stands still."""
    if not job.spec.HasField("activeDeadlineSeconds") or not status.HasField("startTime") or job.spec.suspend:
        return None
    return to_seconds(status.startTime) + job.spec.activeDeadlineSeconds - now


def _succeeded(job: Job, count: Count) -> bool:
    if job.spec.HasField("completions"):
        return count.succeeded >= job.spec.completions
    return count.succeeded > 0 and count.status.active == 0


def _failure(job: Job, count: Count, pods: Iterable[Pod], now: float) -> Verdict | None:
    spec = job.spec
    if count.failed > spec.backoffLimit or _restless(job, pods):
        return Verdict("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = time_left(job, count.status, now)
    if left is not None and left <= 0:
        return Verdict("DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _restless(job: Job, pods: Iterable[Pod]) -> bool:
    """Where containers are restarted in their pods, each restart is a failure, of whichever container."""
    if job.spec.template.spec.restartPolicy != "OnFailure":
        return False
    running = (pod.status for pod in pods if active(pod))
    found = sum(each.restartCount for status in running for each in (*status.containerStatuses, *status.initContainerStatuses))
    return found > 0 and found >= job.spec.backoffLimit
