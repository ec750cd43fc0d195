"""The job controller. It also deletes jobs that have ended, when their time to live is over."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from controllers.claiming import Claimer
from controllers.controller import Shared, Unfinished, Watch, controller_of, its_controller, itself
from controllers.expectations import Expectations
from controllers.jobs.counting import FINALIZER, tracked, untracked
from controllers.jobs.outcome import COMPLETE, FAILURE, SUSPENDED, condition, ended
from controllers.jobs.plan import Plan, plan
from controllers.ownership import keeper, kept_by
from controllers.places import namespace_of
from controllers.podcontrol import PodControl
from controllers.quotas import those_that_lack
from controllers.workqueue import MAX_BACKOFF
from pinnace.api.batch_v1_pb2 import Job, JobCondition, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS, PODS, RESOURCE_QUOTAS
from pinnace.api.selectors import from_message
from pinnace.api.times import to_seconds
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta

AT_ONCE = 32
"""Pods whose finalizers are removed at once."""


def job_of(pod: Pod) -> str:
    """For an index, and a key: "namespace/name" of the job whose finalizer the pod has, or "namespace/" where it has lost its
    job; empty: it has no finalizer."""
    if not tracked(pod):
        return ""
    reference = controller_of(pod)
    if reference is None:
        return f"{pod.metadata.namespace}/"
    return f"{pod.metadata.namespace}/{reference.name}" if reference.kind == JOBS.kind else ""


class JobController:
    name = "job"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        informers = shared.informers
        self._client = shared.client.of(JOBS)
        self._pods_client = shared.client.pods
        self._events = shared.events
        self._clock = shared.clock
        self._jobs = informers.store(JOBS)
        self._neighbours = informers.index(JOBS, namespace_of)
        self._tracked = informers.index(PODS, job_of)
        self._expectations = Expectations(informers)
        self._claimer = Claimer(shared, JOBS, PODS, self._expectations, finalizer=FINALIZER)
        self._control = PodControl(shared, self._expectations)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        refused = those_that_lack(self._neighbours, lambda job: ended(job) is None)
        return (Watch(JOBS, itself), Watch(PODS, _of_pod), Watch(RESOURCE_QUOTAS, refused))

    async def sync(self, key: str) -> float | None:
        await self._expectations.met(key)
        job = self._jobs.get(key)
        await self._let_go(key, job)
        if job is None:
            self._claimer.forget(key)
            self._control.forget(key)
            return None
        if (end := ended(job)) is not None:
            return await self._expire(job, end)
        pods = await self._claimer.claim(key, job, from_message(job.spec.selector))
        wanted = plan(job, pods, self._clock.time())
        try:
            await self._tell(key, job, wanted.status)
        except NotFound:
            return None
        try:
            await self._carry_out(key, job, wanted)
        except ApiError as error:
            raise Unfinished(error, wanted.again) from error
        return wanted.again

    async def _carry_out(self, key: str, job: Job, wanted: Plan) -> None:
        await self._untrack(key, {pod.metadata.uid: pod for pod in (*wanted.release, *wanted.delete)}.values())
        error = await self._control.delete(key, job, wanted.delete) or await self._control.create(key, job, wanted.create)
        if error is not None:
            raise error

    async def _let_go(self, key: str, job: Job | None) -> None:
        """Pods of a job that is gone, has left them, or has ended need not be counted any more."""
        ends = job is None or ended(job) is not None
        its = kept_by(job) if job is not None else ""
        pods = self._tracked.under(key).values()
        await self._untrack(key, [pod for pod in pods if ends or keeper(pod) != its])

    async def _untrack(self, key: str, pods: Iterable[Pod]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(pod: Pod) -> None:
            async with limit:
                try:
                    stored = await self._pods_client.update(untracked(pod))
                except NotFound:
                    return
                self._expectations.wrote(key, PODS, stored.metadata.resourceVersion)

        outcomes = await asyncio.gather(*(one(pod) for pod in pods if tracked(pod)), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _tell(self, key: str, job: Job, status: JobStatus) -> None:
        if status == job.status:
            return
        changed = Job(metadata=job.metadata, spec=job.spec, status=status)
        stored = await self._client.update_status(changed)
        self._expectations.wrote(key, JOBS, stored.metadata.resourceVersion)
        self._record(job, status)

    def _record(self, job: Job, status: JobStatus) -> None:
        """Events of what is new in the status."""
        if condition(status, COMPLETE) is not None:
            self._events.event(job, "Normal", "Completed", "Job completed")
        if (why := condition(status, FAILURE)) is not None and condition(job.status, FAILURE) is None:
            self._events.event(job, "Warning", why.reason, why.message)
        was, is_ = (condition(each, SUSPENDED) is not None for each in (job.status, status))
        if was != is_:
            self._events.event(job, "Normal", "Suspended" if is_ else "Resumed", "Job suspended" if is_ else "Job resumed")

    async def _expire(self, job: Job, end: JobCondition) -> float | None:
        """This version only: somebody may have given it more time meanwhile."""
        metadata = job.metadata
        if not job.spec.HasField("ttlSecondsAfterFinished") or metadata.HasField("deletionTimestamp"):
            return None
        left = to_seconds(end.lastTransitionTime) + job.spec.ttlSecondsAfterFinished - self._clock.time()
        if left > 0:
            return left
        name, namespace, uid, version = metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion
        await self._client.delete(name, namespace, uid=uid, resource_version=version, propagation="Foreground")
        return None


def _of_pod(delta: Delta[Pod]) -> Iterable[str]:
    """Its job; or, if it has lost that one, those of its namespace that have: nobody else takes their finalizers away."""
    yield from its_controller(JOBS)(delta)
    if delta.kind != DELETED and (key := job_of(delta.obj)).endswith("/"):
        yield key
