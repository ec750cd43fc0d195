"""Jobs whose completionMode is Indexed: one pod for each number below spec.completions. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from controllers.podfacts import facts_of
from controllers.podstates import active, terminating
from controllers.replicasets.victims import victims
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


def concerns(job: Job, pod: Pod) -> bool:
    """Of an Indexed job, only pods with a number that is asked for do: it may have been made smaller. What becomes of others is
    neither a success nor a failure of it."""
    return not is_indexed(job) or ((index := index_of(pod)) is not None and index < job.spec.completions)


class Indexes:
    """Numbers, as the runs in which a status shows them: "0-1999999999" is one run, and would be two billion numbers."""

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """`runs`: the first and the last number of each, in order and apart from one another."""
        self._runs = list(runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._runs)

    def __str__(self) -> str:
        """As "1,3-5,7,8": two are no run."""
        return ",".join(_told(first, last) for first, last in self._runs)

    def with_(self, more: Iterable[int]) -> "Indexes":
        return Indexes(_joined([*self._runs, *((index, index) for index in more)]))

    def others(self, end: int) -> Iterator[int]:
        """What is not in them, below `end`."""
        begin = 0
        for first, last in self._runs:
            yield from range(begin, min(first, end))
            begin = last + 1
        yield from range(begin, end)


def _told(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def parsed(text: str, completions: int) -> Indexes:
    """ "1,3-5,7" as numbers, those below `completions`. A part that is none is nothing: whoever may write the status of a job
    may have written it before that was checked."""
    runs = list[tuple[int, int]]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = natural(first), natural(last or first)
        if begin is not None and end is not None and begin <= (end := min(end, completions - 1)):
            runs.append((begin, end))
    return Indexes(_joined(runs))


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, those that touch as one."""
    joined = list[tuple[int, int]]()
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def lacking(job: Job, done: Indexes, pods: Sequence[Pod], number: int) -> list[int]:
    """The first numbers without a pod that runs or has succeeded; nor one that still ends, where pods are replaced only when
    they have ended: that one has its number until then."""
    keeps = only_ended_are_replaced(job)
    having = (pod for pod in pods if active(pod) or (keeps and terminating(pod)))
    taken = {index for pod in having if (index := index_of(pod)) is not None}
    return list(islice((index for index in done.others(job.spec.completions) if index not in taken), number))


def surplus(job: Job, pods: Iterable[Pod], now: float) -> list[Pod]:
    """Pods that run under a number that is not asked for, or that another pod has: all but the one that a replica set would
    keep longest. `now` is Unix time."""
    found, of_index = list[Pod](), dict[int, list[Pod]]()
    for pod in filter(active, pods):
        if (index := index_of(pod)) is None or not concerns(job, pod):
            found.append(pod)
        else:
            of_index.setdefault(index, []).append(pod)
    for like in of_index.values():
        if len(like) > 1:
            facts = [facts_of(pod) for pod in like]
            found += victims(facts, len(facts) - 1, facts, now)
    return found


def number(pod: Pod, job: Job, index: int) -> None:
    """Tells a new pod which it is: in its name, its host name, a label, an annotation, and each container's environment."""
    metadata, name = pod.metadata, f"{job.metadata.name}-{index}"
    metadata.generateName = f"{name}-"
    metadata.annotations[INDEX] = metadata.labels[INDEX] = str(index)
    is_label = not names.dns_label(name)  # a new job's name makes one, but jobs grow, and older ones are there
    if is_label and not pod.spec.hostname:
        pod.spec.hostname = name
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        _tell(container)


def _tell(container: Container) -> None:
    if not any(each.name == _VARIABLE for each in container.env):
        variable = container.env.add(name=_VARIABLE)
        variable.valueFrom.fieldRef.fieldPath = f"metadata.annotations['{INDEX}']"
