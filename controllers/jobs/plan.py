"""What is to be done about a job now. Pure; times are Unix time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from controllers.jobs.counting import FINALIZER, Count, condemned, counted, may_end, tracked
from controllers.jobs.indexes import concerns, is_indexed, lacking, number, only_ended_are_replaced, parsed, surplus
from controllers.jobs.outcome import FAILURE, SUSPENDED, Verdict, condition, finish, judge, judged, say, time_left
from controllers.podcontrol import pod_from
from controllers.podfacts import facts_of
from controllers.podstates import active
from controllers.replicasets.scaling import BURST
from controllers.replicasets.victims import victims
from pinnace.api import conditions
from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS
from pinnace.api.times import to_seconds, to_time

FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds from the end of a pod that failed until it is replaced; twice as long after each further failure."""


@dataclass(slots=True)
class Plan:
    """In this order."""

    status: JobStatus
    release: list[Pod] = field(default_factory=list)
    """What loses its finalizer: it is written down."""
    delete: list[Pod] = field(default_factory=list)
    """Loses its finalizer as well, and may be in both."""
    create: list[Pod] = field(default_factory=list)
    again: float | None = None
    """Seconds after which there is something to do even if nothing happens."""


def plan(job: Job, pods: Sequence[Pod], now: float) -> Plan:
    """`pods`: its own. The job has not ended. Of one that is being deleted it is said how it ends, and its pods are let go."""
    count = counted(job, pods)
    status = count.status
    made = Plan(status, count.release)
    leaving = job.metadata.HasField("deletionTimestamp")
    if not leaving:
        _suspend_or_resume(job, status, now)
    judge(job, count, pods, now)
    running = [pod for pod in pods if active(pod)]
    if condition(status, FAILURE) is not None:
        count = condemned(job, count, pods)
        made.release = count.release
        running = [pod for pod in running if may_end(job, status, pod)]
    if leaving:
        made.release = [pod for pod in pods if tracked(pod)]
        made.delete = running if condition(status, FAILURE) is not None else []
        finish(count, now)
        return made
    if judged(status) or job.spec.suspend:
        made.delete = running
        finish(count, now)
        return made
    wanted = _wanted(job, count)
    made.delete = _superfluous(job, running, wanted, now)
    left = [time_left(job, status, now)]
    if missing := _missing(job, status, pods, wanted):
        wait = backoff([pod for pod in pods if concerns(job, pod)], now)
        left.append(wait or None)
        made.create = _made(job, status, pods, missing) if not wait else []
    made.again = min((each for each in left if each is not None), default=None)
    return made


def backoff(pods: Sequence[Pod], now: float) -> float:
    """Seconds until a failed pod may be replaced: by the failures since the last success, of the pods that are left.

    Those that are being deleted are not among them. The job itself may have ended them, when it was suspended or scaled down;
    once the finalizer is gone nothing tells these from pods that somebody else deletes, which are counted as failed.
    """
    succeeded = max((_ended_at(pod) for pod in pods if pod.status.phase == "Succeeded"), default=0.0)
    ends = [end for pod in pods if _has_failed(pod) and (end := _ended_at(pod)) > succeeded]
    if not ends:
        return 0.0
    delay = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(len(ends) - 1, 10))
    return max(0.0, max(ends) + delay - now)


def _has_failed(pod: Pod) -> bool:
    """By itself."""
    return pod.status.phase == "Failed" and not pod.metadata.HasField("deletionTimestamp")


def _ended_at(pod: Pod) -> float:
    """As the last of its containers tells it, sidecars included, or the last change of a condition. Of one that its node has
    refused nobody may have told anything: it ended when it was made."""
    status = pod.status
    ends = [each.state.terminated.finishedAt for each in (*status.initContainerStatuses, *status.containerStatuses)]
    changes = [each.lastTransitionTime for each in status.conditions]
    return max(map(to_seconds, (pod.metadata.creationTimestamp, *ends, *changes)))


def _suspend_or_resume(job: Job, status: JobStatus, now: float) -> None:
    """The time in which it is suspended does not count against its deadline."""
    if job.spec.suspend:
        say(status, SUSPENDED, "True", Verdict("JobSuspended", "Job suspended"), now)
        status.ClearField("startTime")
        return
    if conditions.find(status.conditions, SUSPENDED) is not None:
        say(status, SUSPENDED, "False", Verdict("JobResumed", "Job resumed"), now)
    if not status.HasField("startTime"):
        status.startTime.CopyFrom(to_time(now))


def _wanted(job: Job, count: Count) -> int:
    """Pods that should run now."""
    spec, done = job.spec, count.succeeded
    if spec.HasField("completions"):
        return max(0, min(spec.parallelism, spec.completions - done))
    return count.status.active if done else spec.parallelism


def _superfluous(job: Job, running: Sequence[Pod], wanted: int, now: float) -> list[Pod]:
    """Those without the finalizer first, however many are wanted: an earlier look chose them, and did not come to delete
    them. If they were chosen anew, one might be spared, and nobody would count its end."""
    lost = [pod for pod in running if not tracked(pod)]
    kept = [pod for pod in running if tracked(pod)]
    doubled = surplus(job, kept, now) if is_indexed(job) else []
    left = [facts_of(pod) for pod in kept if pod not in doubled]
    return [*lost, *doubled, *victims(left, max(0, len(left) - wanted), left, now)][:BURST]


def _missing(job: Job, status: JobStatus, pods: Sequence[Pod], wanted: int) -> int:
    there = status.active
    if only_ended_are_replaced(job):
        there += status.terminating
    return max(0, min(wanted - there, BURST))


def _made(job: Job, status: JobStatus, pods: Sequence[Pod], missing: int) -> list[Pod]:
    pod = pod_from(job.spec.template, JOBS, job)
    pod.metadata.finalizers.append(FINALIZER)
    if not is_indexed(job):
        return [pod] * missing
    made = []
    for index in lacking(job, parsed(status.completedIndexes, job.spec.completions), pods, missing):
        numbered = Pod()
        numbered.CopyFrom(pod)
        number(numbered, job, index)
        made.append(numbered)
    return made
