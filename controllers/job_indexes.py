"""The completion indexes of Indexed jobs: their format in the status, the pods of each index, and failures per index.

With backoffLimitPerIndex, each pod has the number of earlier failures of its index as an annotation. The last failed pod of an
index that is to be retried keeps its finalizer until its replacement exists, so that the number is never lost.

Source: pkg/controller/job/indexed_job_utils.go of Kubernetes 1.36.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from pinnace.api import names
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.integers import parse_int32, parse_natural
from pinnace.api.scalars import to_seconds
from pinnace.controllers.podcontrol import select_pods_to_delete
from pinnace.controllers.pods import compute_pod_properties, is_pod_active, is_pod_terminating
from pinnace.runtime.backoff import exponential_delay

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the index of a pod."""
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
"""Annotation with the number of earlier failures of the pod's index that count against backoffLimitPerIndex."""
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation with the number of earlier failures that a podFailurePolicy ignored. It is absent if there are none."""
_VARIABLE = "JOB_COMPLETION_INDEX"
_GENERATE_NAME_LENGTH = 58
"""Number of characters of `generateName` that the server uses."""
FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds from the end of a failed pod until its replacement. The delay doubles with each further failure."""


def is_indexed(job: Job) -> bool:
    return job.spec.completionMode == "Indexed"


def replaces_only_terminated_pods(job: Job) -> bool:
    """Return True if pods are replaced only after they terminate. Otherwise they are replaced when their deletion starts."""
    return job.spec.podReplacementPolicy == "Failed"


def index_of(pod: Pod) -> int | None:
    """Return the completion index of the pod, or None."""
    return parse_natural(pod.metadata.annotations.get(INDEX, ""))


def counts_for_job(job: Job, pod: Pod) -> bool:
    """Return True if the pod counts for the job.

    In an Indexed job, only pods with an index below spec.completions count, because completions can be reduced.
    """
    return not is_indexed(job) or ((index := index_of(pod)) is not None and index < job.spec.completions)


class CompletionIndexes:
    """A set of indexes as ranges, as in the status: "0-1999999999" is one range instead of two billion numbers."""

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """`runs` has the first and last index of each range, sorted and without adjacent ranges."""
        self._runs = list(runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._runs)

    def __str__(self) -> str:
        """Format the indexes as in "1,3-5,7,8". Two indexes do not form a range."""
        return ",".join(_format_range(first, last) for first, last in self._runs)

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self._runs, index, key=lambda run: run[1])
        return at < len(self._runs) and self._runs[at][0] <= index

    def with_indexes(self, more: Iterable[int]) -> "CompletionIndexes":
        return CompletionIndexes(_merge_ranges([*self._runs, *((index, index) for index in more)]))

    def union(self, other: "CompletionIndexes") -> "CompletionIndexes":
        return CompletionIndexes(_merge_ranges([*self._runs, *other._runs]))

    def intersection(self, other: "CompletionIndexes") -> "CompletionIndexes":
        """Return the indexes in both sets. The cost is the number of their ranges."""
        runs, own, others = list[tuple[int, int]](), iter(self._runs), iter(other._runs)
        mine, its = next(own, None), next(others, None)
        while mine is not None and its is not None:
            if (first := max(mine[0], its[0])) <= (last := min(mine[1], its[1])):
                runs.append((first, last))
            if mine[1] < its[1]:
                mine = next(own, None)
            else:
                its = next(others, None)
        return CompletionIndexes(runs)

    def missing_below(self, end: int) -> Iterator[int]:
        """Yield the indexes below `end` that are not in the set."""
        begin = 0
        for first, last in self._runs:
            yield from range(begin, min(first, end))
            begin = last + 1
        yield from range(begin, end)


def _format_range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def parse_indexes(text: str, completions: int) -> CompletionIndexes:
    """Parse text such as "1,3-5,7". Indexes from `completions` on and invalid parts are ignored.

    Invalid parts can exist, because the status may have been written before it was validated.
    """
    runs = list[tuple[int, int]]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = parse_natural(first), parse_natural(last or first)
        if begin is not None and end is not None and begin <= (end := min(end, completions - 1)):
            runs.append((begin, end))
    return CompletionIndexes(_merge_ranges(runs))


def _merge_ranges(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort the ranges and merge adjacent ranges."""
    joined = list[tuple[int, int]]()
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def first_missing_indexes(job: Job, done: CompletionIndexes, pods: Sequence[Pod], number: int) -> list[int]:
    """Return the first indexes that are not `done` (succeeded or failed) and have no active pod.

    If pods are replaced only after they terminate, a terminating pod keeps its index.
    """
    keeps = replaces_only_terminated_pods(job)
    having = (pod for pod in pods if is_pod_active(pod) or (keeps and is_pod_terminating(pod)))
    taken = {index for pod in having if (index := index_of(pod)) is not None}
    return list(islice((index for index in done.missing_below(job.spec.completions) if index not in taken), number))


def find_surplus_pods(job: Job, pods: Iterable[Pod], now: float) -> list[Pod]:
    """Return active pods with an index that is not required or that another pod has.

    Of pods with the same index, the pod that a replica set would delete last is kept. `now` is Unix time.
    """
    result, of_index = list[Pod](), dict[int, list[Pod]]()
    for pod in filter(is_pod_active, pods):
        if (index := index_of(pod)) is None or not counts_for_job(job, pod):
            result.append(pod)
        else:
            of_index.setdefault(index, []).append(pod)
    for like in of_index.values():
        if len(like) > 1:
            facts = [compute_pod_properties(pod) for pod in like]
            result += select_pods_to_delete(facts, len(facts) - 1, facts, now)
    return result


def set_pod_index(pod: Pod, job: Job, index: int) -> None:
    """Set the index of a new pod in its name, host name, label, annotation, and the environment of each container."""
    metadata, name = pod.metadata, f"{job.metadata.name}-{index}"
    suffix = f"-{index}-"
    metadata.generateName = job.metadata.name[: _GENERATE_NAME_LENGTH - len(suffix)] + suffix
    metadata.annotations[INDEX] = metadata.labels[INDEX] = str(index)
    is_label = not names.dns_label(name)  # validated for new jobs, but completions can grow, and older jobs exist
    if is_label:
        pod.spec.hostname = name
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        _add_index_variable(container)


def _add_index_variable(container: Container) -> None:
    if not any(env_var.name == _VARIABLE for env_var in container.env):
        variable = container.env.add(name=_VARIABLE)
        variable.valueFrom.fieldRef.fieldPath = f"metadata.labels['{INDEX}']"


def has_limit_per_index(job: Job) -> bool:
    return job.spec.HasField("backoffLimitPerIndex")


def index_failures(pod: Pod) -> int:
    """Return the number of earlier failures of the pod's index that count against backoffLimitPerIndex."""
    return _count_annotation(pod, FAILURE_COUNT)


def all_index_failures(pod: Pod) -> int:
    """Return the number of all earlier failures of the pod's index."""
    return index_failures(pod) + _count_annotation(pod, IGNORED_FAILURE_COUNT)


def _count_annotation(pod: Pod, annotation: str) -> int:
    """Return a count in an annotation. Text of a client that is no count is 0."""
    return max(0, parse_int32(pod.metadata.annotations.get(annotation, "")) or 0)


def find_pods_to_replace(failed: Iterable[Pod], settled: CompletionIndexes) -> dict[int, Pod]:
    """Return the last failed pod of each index that is to be retried. `settled` are indexes that have a pod or are finished."""
    last = dict[int, Pod]()
    for pod in failed:
        index = index_of(pod)
        if index is None or index in settled:
            continue
        known = last.get(index)
        if known is None or (all_index_failures(pod), pod_end_time(pod)) >= (all_index_failures(known), pod_end_time(known)):
            last[index] = pod
    return last


def seconds_until_retry(replaced: Pod | None, now: float) -> float:
    """Return the seconds until the pod of an index may be replaced. `replaced` is None for an index without a failed pod."""
    if replaced is None:
        return 0.0
    end, metadata = pod_end_time(replaced), replaced.metadata
    if metadata.HasField("deletionTimestamp"):
        end = max(end, to_seconds(metadata.deletionTimestamp) - metadata.deletionGracePeriodSeconds)
    return max(0.0, end + exponential_delay(FIRST_BACKOFF, LONGEST_BACKOFF, all_index_failures(replaced)) - now)


def set_index_failures(pod: Pod, replaced: Pod | None, *, ignored: bool) -> None:
    """Set the number of failures of the index of a new pod. `ignored`: a policy ignores the failure of the replaced pod."""
    counted = 0 if replaced is None else index_failures(replaced) + (not ignored)
    uncounted = 0 if replaced is None else all_index_failures(replaced) - index_failures(replaced) + ignored
    pod.metadata.annotations[FAILURE_COUNT] = str(counted)
    if uncounted:
        pod.metadata.annotations[IGNORED_FAILURE_COUNT] = str(uncounted)


def pod_end_time(pod: Pod) -> float:
    """Return the end of the pod: the last end of a container, including sidecars, or the last change of a condition.

    For a pod that its node rejected, neither may be reported. Its creation time is used instead.
    """
    status = pod.status
    ends = [
        container_status.state.terminated.finishedAt
        for container_status in (*status.initContainerStatuses, *status.containerStatuses)
    ]
    changes = [pod_condition.lastTransitionTime for pod_condition in status.conditions]
    return max(map(to_seconds, (pod.metadata.creationTimestamp, *ends, *changes)))
