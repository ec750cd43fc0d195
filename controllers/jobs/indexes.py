"""Jobs whose completionMode is Indexed: one pod for each number below spec.completions. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

from controllers.podstates import active, terminating
from pinnace.api import names
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.naturals import natural

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod: its number."""
_VARIABLE = "JOB_COMPLETION_INDEX"


def is_indexed(job: Job) -> bool:
    return job.spec.completionMode == "Indexed"


def only_ended_are_replaced(job: Job) -> bool:
    """Else pods are replaced as soon as they are being deleted."""
    return job.spec.podReplacementPolicy == "Failed"


def index_of(pod: Pod) -> int | None:
    """None: it has none."""
    return natural(pod.metadata.annotations.get(INDEX, ""))


def parsed(text: str, completions: int) -> set[int]:
    """ "1,3-5,7" as numbers, those below `completions`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first) + 1, completions)))
    return found


def shown(indexes: Iterable[int]) -> str:
    """The numbers as "1,3-5,7"."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def lacking(job: Job, done: set[int], pods: Sequence[Pod], number: int) -> list[int]:
    """The first numbers without a pod that runs or has succeeded; nor one that still ends, where pods are replaced only when
    they have ended: that one has its number until then."""
    keeps = only_ended_are_replaced(job)
    having = (pod for pod in pods if active(pod) or (keeps and terminating(pod)))
    taken = done | {index for pod in having if (index := index_of(pod)) is not None}
    free: Iterator[int] = (index for index in count() if index not in taken)
    return [index for index in islice(free, number) if index < job.spec.completions]


def surplus(job: Job, pods: Iterable[Pod]) -> list[Pod]:
    """Pods that run under a number that is not asked for, or that another pod has: all but the first."""
    seen, found = set[int](), []
    for pod in sorted((pod for pod in pods if active(pod)), key=lambda pod: pod.metadata.creationTimestamp.seconds):
        index = index_of(pod)
        if index is None or index >= job.spec.completions or index in seen:
            found.append(pod)
        else:
            seen.add(index)
    return found


def number(pod: Pod, job: Job, index: int) -> None:
    """Tells a new pod which it is: in its name, its host name, a label, an annotation, and each container's environment."""
    metadata, name = pod.metadata, f"{job.metadata.name}-{index}"
    metadata.generateName = f"{name}-"
    metadata.annotations[INDEX] = metadata.labels[INDEX] = str(index)
    if not pod.spec.hostname and not names.dns_label(
        name
    ):  # a new job's name makes one, but jobs grow, and older ones are there
        pod.spec.hostname = name
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        _tell(container)


def _tell(container: Container) -> None:
    if not any(each.name == _VARIABLE for each in container.env):
        variable = container.env.add(name=_VARIABLE)
        variable.valueFrom.fieldRef.fieldPath = f"metadata.annotations['{INDEX}']"
