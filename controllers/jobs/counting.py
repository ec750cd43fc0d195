"""Each pod of a job is counted once, whenever it is deleted and whoever dies in between. Pure.

    finalizer, running --ends--> finalizer, uid in uncountedTerminatedPods --> no finalizer, uid there --> counted, uid dropped

A pod has the finalizer from its birth, so that nothing takes it away before its end is written down. Each arrow is one write:
the status compares the job's version, and the last arrow needs a cache that shows the one before (expectations.py).

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers
"""

from collections.abc import Mapping, MutableSequence, Sequence

from controllers.jobs.indexes import index_of, is_indexed, parsed, shown
from controllers.podstates import active, ready, terminating
from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.core_v1_pb2 import Pod

FINALIZER = "batch.kubernetes.io/job-tracking"


def tracked(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers


def untracked(pod: Pod) -> Pod:
    """A copy without the finalizer."""
    changed = Pod()
    changed.CopyFrom(pod)
    changed.metadata.finalizers.remove(FINALIZER)
    return changed


def failed(job: Job, pod: Pod) -> bool:
    """One that is being deleted counts as failed at once, unless the job waits for it; on no node it never ends."""
    if pod.status.phase == "Failed":
        return True
    return terminating(pod) and (job.spec.podReplacementPolicy != "Failed" or not pod.spec.nodeName)


def counted(job: Job, pods: Sequence[Pod]) -> tuple[JobStatus, list[Pod]]:
    """The status with what has ended, and the pods that may lose their finalizer once it is stored."""
    status = JobStatus()
    status.CopyFrom(job.status)
    watched = {pod.metadata.uid: pod for pod in pods if tracked(pod)}
    waiting = status.uncountedTerminatedPods
    status.succeeded += _drop(waiting.succeeded, watched)
    status.failed += _drop(waiting.failed, watched)
    known = {*waiting.succeeded, *waiting.failed}
    indexes = parsed(status.completedIndexes, job.spec.completions) if is_indexed(job) else set[int]()
    release = []
    for uid, pod in watched.items():
        if uid not in known and pod.status.phase == "Succeeded":
            if not is_indexed(job):
                waiting.succeeded.append(uid)
            elif (index := index_of(pod)) is not None and index < job.spec.completions:
                indexes.add(index)
        elif uid not in known and failed(job, pod):
            waiting.failed.append(uid)
        elif uid not in known:
            continue
        release.append(pod)
    if is_indexed(job):
        status.completedIndexes, status.succeeded = shown(indexes), len(indexes)
    status.active = sum(map(active, pods))
    status.ready = sum(active(pod) and ready(pod) for pod in pods)
    status.terminating = sum(map(terminating, pods))
    return status, release


def successes(status: JobStatus) -> int:
    """Those that wait to be counted, too."""
    return status.succeeded + len(status.uncountedTerminatedPods.succeeded)


def failures(status: JobStatus) -> int:
    return status.failed + len(status.uncountedTerminatedPods.failed)


def _drop(waiting: MutableSequence[str], watched: Mapping[str, Pod]) -> int:
    """Removes the uids of pods that have lost their finalizer, or are gone. How many."""
    kept = [uid for uid in waiting if uid in watched]
    gone = len(waiting) - len(kept)
    waiting[:] = kept
    return gone
