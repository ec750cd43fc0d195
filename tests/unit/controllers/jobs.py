"""Pods as the job controller creates them, with its finalizer."""

from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.scalars import to_time
from pinnace.controllers.job_status import (
    FINALIZER,
)
from tests.workloads import pod_of

NOW = 10_000.0


def pod(job: Job, name: str, phase: str = "Running", *, ended: float = 0.0, terminating: bool = False) -> Pod:
    builder = pod_of(job, name).node("n").phase(phase).created(1.0)
    made = (builder.terminating(NOW) if terminating else builder).build()
    made.metadata.finalizers.append(FINALIZER)
    if ended:
        made.status.containerStatuses.add(name="c0").state.terminated.finishedAt.CopyFrom(to_time(ended))
    return made


def pods(job: Job, *phases: str) -> list[Pod]:
    return [pod(job, f"p{number}", phase) for number, phase in enumerate(phases)]
