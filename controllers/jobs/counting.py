"""Each pod of a job is counted once, whenever it is deleted and whoever dies in between. Pure.

    finalizer, running --ends--> finalizer, uid in uncountedTerminatedPods --> no finalizer, uid there --> counted, uid dropped

A pod has the finalizer from its birth, so that nothing takes it away before its end is written down. Each arrow is one write:
the status compares the job's version, and the last arrow needs a cache that shows the one before (expectations.py).

At most MAX_UNCOUNTED uids wait in the status: more pods may end between two looks than an object may have parts. The others
are written down in the next looks, which the pods that lose their finalizers cause; for what is to be done they count at once.

A job that fails ends the pods that still run, and they have failed with it: they are written down before they are deleted.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import NamedTuple

from controllers.jobs.indexes import concerns, index_of, is_indexed, only_ended_are_replaced, parsed
from controllers.podstates import active, ready, terminating
from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.podstatus import ended

FINALIZER = "batch.kubernetes.io/job-tracking"
MAX_UNCOUNTED = 500
"""Uids in uncountedTerminatedPods, as in Kubernetes."""


class Count(NamedTuple):
    status: JobStatus
    """With as much of what has ended as there is room for."""
    release: list[Pod]
    """What may lose its finalizer once the status is stored."""
    succeeded: int
    failed: int
    """All that have, whether the status says so yet or not."""
    whole: bool
    """Does it say so of all of them?"""


def tracked(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers


def untracked(pod: Pod) -> Pod:
    """A copy without the finalizer."""
    changed = Pod()
    changed.CopyFrom(pod)
    changed.metadata.finalizers.remove(FINALIZER)
    return changed


def failed(job: Job, pod: Pod) -> bool:
    """One that is being deleted counts as failed at once, unless the job waits for it; on no node it never ends. If
    the job itself is being deleted, its pods go for that."""
    if pod.status.phase == "Failed":
        return True
    if job.metadata.HasField("deletionTimestamp"):
        return False
    return terminating(pod) and (not only_ended_are_replaced(job) or not pod.spec.nodeName)


def counted(job: Job, pods: Sequence[Pod]) -> Count:
    status = JobStatus()
    status.CopyFrom(job.status)
    watched = {pod.metadata.uid: pod for pod in pods if tracked(pod)}
    waiting = status.uncountedTerminatedPods
    status.succeeded += _drop(waiting.succeeded, watched)
    status.failed += _drop(waiting.failed, watched)
    known = {*waiting.succeeded, *waiting.failed}
    release, good, bad, indexes = list[Pod](), list[Pod](), list[Pod](), list[int]()
    for uid, pod in watched.items():
        if uid in known:
            release.append(pod)
        elif pod.status.phase == "Succeeded" and is_indexed(job):
            if (index := index_of(pod)) is not None and concerns(job, pod):
                indexes.append(index)
            release.append(pod)
        elif pod.status.phase == "Succeeded":
            good.append(pod)
        elif failed(job, pod):
            (bad if concerns(job, pod) else release).append(pod)
    room = max(0, MAX_UNCOUNTED - len(known))
    good_now, bad_now = good[:room], bad[: max(0, room - len(good))]
    waiting.succeeded.extend(pod.metadata.uid for pod in good_now)
    waiting.failed.extend(pod.metadata.uid for pod in bad_now)
    release += good_now + bad_now
    if is_indexed(job):
        done = parsed(status.completedIndexes, job.spec.completions).with_(indexes)
        status.completedIndexes, status.succeeded = str(done), len(done)
    status.active = sum(map(active, pods))
    status.ready = sum(active(pod) and ready(pod) for pod in pods)
    status.terminating = sum(map(terminating, pods))
    left_good, left_bad = len(good) - len(good_now), len(bad) - len(bad_now)
    return Count(
        status,
        release,
        succeeded=status.succeeded + len(waiting.succeeded) + left_good,
        failed=status.failed + len(waiting.failed) + left_bad,
        whole=not left_good and not left_bad,
    )


def condemned(job: Job, count: Count, pods: Iterable[Pod]) -> Count:
    """Of a job that fails: what has not ended yet counts as failed, too."""
    waiting = count.status.uncountedTerminatedPods
    known = {*waiting.succeeded, *waiting.failed}
    left = [
        pod
        for pod in pods
        if tracked(pod) and pod.metadata.uid not in known and concerns(job, pod) and not (ended(pod) or failed(job, pod))
    ]
    now = left[: max(0, MAX_UNCOUNTED - len(known))]
    waiting.failed.extend(pod.metadata.uid for pod in now)
    return count._replace(
        release=[*count.release, *now], failed=count.failed + len(left), whole=count.whole and len(now) == len(left)
    )


def may_end(job: Job, status: JobStatus, pod: Pod) -> bool:
    """May a job that fails delete it? Not before it is written down as failed."""
    return pod.metadata.uid in status.uncountedTerminatedPods.failed or not (tracked(pod) and concerns(job, pod))


def _drop(waiting: MutableSequence[str], watched: Mapping[str, Pod]) -> int:
    """Removes the uids of pods that have lost their finalizer, or are gone. How many."""
    kept = [uid for uid in waiting if uid in watched]
    gone = len(waiting) - len(kept)
    waiting[:] = kept
    return gone
