"""Admission: what a pod takes from its node (resources, addresses, volumes), and preemption for critical pods.

Nodes and pods come from two watches, and the node watch may be behind. A pod that was placed because of a new label, more
resources or a removed taint would then be rejected for good. So a rejection waits until nodes are known up to the pod's own
revision (a bookmark at the latest), or for STALE_NODE_TIMEOUT. The pod is checked again when its node changes, and every
RETRY_INTERVAL.

A critical pod on a full node preempts pods of a lower priority, with their own grace period. As in Kubernetes it selects as
few guaranteed pods as possible, then as few burstable ones, then best-effort ones; of each kind those that come nearest to the
missing resources, and of these the smallest.

Source: pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/preemption of Kubernetes, and
https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import EVICTED, qos_class
from pinnace.fit import FitRefusal, pod_requests
from pinnace.kubelet import lifecycle
from pinnace.kubelet.eviction import CRITICAL, pressure_rejection
from pinnace.kubelet.lifecycle import PodState
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.node import VirtualNode, VirtualNodes
from pinnace.kubelet.pod_record import PodRecord
from pinnace.kubelet.runtime.interface import ContainerView, Moment, Runtime, UnsupportedPod
from pinnace.kubelet.runtime.simulated_runtime import PodVolumeManager

STALE_NODE_TIMEOUT = 20.0
"""Seconds after which a pod is rejected although its node may be outdated. A stalled watch is replaced earlier."""
RETRY_INTERVAL = 0.5
"""Seconds between two checks of a waiting pod."""
PREEMPTING = "Preempting"
PREEMPTED = "Preempted in order to admit critical pod"
_KINDS = ("BestEffort", "Burstable", "Guaranteed")
Amounts = Mapping[str, int]
"""By resource, as in pinnace.fit. "pods" is a resource."""
UNEXPECTED = "UnexpectedAdmissionError"


class StaleNodeCheck:
    """`known`: returns the revision up to which nodes are known."""

    def __init__(self, known: Callable[[], int]) -> None:
        self._known = known
        self._until: dict[str, dict[str, float]] = {}
        """Deadlines of waiting pods in monotonic seconds, by node and uid."""

    def next_check_at(self, node: str, uid: str, revision: str, now: float) -> float | None:
        """The time of the next check in monotonic seconds, or None if the rejection is final."""
        until = self._until.setdefault(node, {}).setdefault(uid, now + STALE_NODE_TIMEOUT)
        if int(revision) > self._known() and now < until:
            return now + RETRY_INTERVAL
        self.forget_pod(node, uid)
        return None

    def waiting_pods(self, node: str) -> Iterable[str]:
        """The uids of pods of this node whose rejection waits."""
        return tuple(self._until.get(node, ()))

    def forget_pod(self, node: str, uid: str) -> None:
        """Forget a pod that was admitted or deleted."""
        if (waiting := self._until.get(node)) is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._until[node]


def is_critical(pod: Pod) -> bool:
    return pod.spec.priority >= CRITICAL


def select_pods_to_preempt(pod: Pod, others: Iterable[Pod], lacking: Amounts) -> Sequence[Pod] | None:
    """The pods of `others` to preempt so that the `lacking` resources become free. None: preempting all candidates would not be
    sufficient.
    """
    kinds: dict[str, list[Pod]] = {kind: [] for kind in _KINDS}
    for other in others:
        if other.spec.priority < pod.spec.priority:
            kinds[qos_class(other.spec)].append(other)
    chosen: list[Pod] = []
    while kinds:
        _, candidates = kinds.popitem()  # the most important pods first
        spared = [item for kind in kinds.values() for item in kind]
        nearest = _select_fewest_pods(candidates, _remaining_lacking_amounts(lacking, [*chosen, *spared]))
        if nearest is None:
            return None
        chosen += nearest
    return chosen


def insufficient_resources_message(lacking: Amounts) -> str:
    """Kubernetes' message."""
    resources = "".join(f"(res: {resource}, q: {amount}), " for resource, amount in lacking.items())
    return (
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to "
        f"preempt: no set of running pods found to reclaim resources: [{resources}]"
    )


def _select_fewest_pods(pods: Iterable[Pod], lacking: Amounts) -> list[Pod] | None:
    left, chosen, candidates = lacking, list[Pod](), {pod.metadata.uid: pod for pod in pods}
    while left:
        if not candidates:
            return None
        uid = min(candidates, key=lambda uid: (*_distance_to_lacking(_requested_amounts(candidates[uid]), left), uid))
        chosen.append(candidates.pop(uid))
        left = _remaining_lacking_amounts(left, chosen[-1:])
    return chosen


def _distance_to_lacking(requests: Amounts, lacking: Amounts) -> tuple[float, int, int]:
    """The sum of the relative shortages of all resources; then the size of the pod."""
    shares = (max(0, amount - requests.get(resource, 0)) / amount for resource, amount in lacking.items())
    return sum(share**2 for share in shares), requests.get("memory", 0), requests.get("cpu", 0)


def _remaining_lacking_amounts(lacking: Amounts, pods: Sequence[Pod]) -> Amounts:
    freed = [_requested_amounts(pod) for pod in pods]
    left = {resource: amount - sum(numbers.get(resource, 0) for numbers in freed) for resource, amount in lacking.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _requested_amounts(pod: Pod) -> Amounts:
    return dict(pod_requests(pod).amounts)


class PodAdmission:
    """`nodes_known`: see StaleNodeCheck. `staying`: the pods of a node that are not terminating. `preempt`: ends a pod for a
    critical pod, by uid, if `can_end`. `wake`: requeues a pod, by uid. `event`: records an event (pod, type, reason, message).
    """

    def __init__(
        self,
        nodes: VirtualNodes,
        runtime: Runtime,
        volumes: PodVolumeManager,
        nodes_known: Callable[[], int],
        staying: Callable[[str], Sequence[Pod]],
        preempt: Callable[[str], None],
        can_end: Callable[[str], bool],
        wake: Callable[[str], None],
        event: Callable[[Pod, str, str, str], None],
    ) -> None:
        self._nodes = nodes
        self._runtime = runtime
        self._volumes = volumes
        self._staying = staying
        self._preempt = preempt
        self._can_end = can_end
        self._wake = wake
        self._event = event
        self._pending: dict[str, dict[str, PodRecord]] = {}
        """Pods with a pending resize, by node and uid."""
        self._stale_node_check = StaleNodeCheck(nodes_known)
        self._making_room: dict[str, dict[str, int]] = {}
        """The priorities of pods that preempt others, by node and uid."""

    def admit_pod(self, record: PodRecord, now: Moment) -> PodState | float:
        """Admit or reject the pod. Return the time of the next attempt in monotonic seconds if the decision must wait. The
        node belongs to the fleet.
        """
        pod = record.pod
        uid, node = pod.metadata.uid, self._nodes.node_of_pod(pod)
        assert node is not None
        self._stop_preempting(pod)  # unless this call decides again that it waits
        if bar := pressure_rejection(pod, self._nodes.node_pressures(pod)):
            return self._reject_pod(uid, EVICTED, bar, now)
        wanted = record.want.grace is None
        if wanted and self._waits_for_higher_priority(pod):
            return now.monotonic + RETRY_INTERVAL
        admitted = node.admit_pod(uid, record.template)
        if isinstance(admitted, FitRefusal):
            again = (
                self._stale_node_check.next_check_at(pod.spec.nodeName, uid, record.revision, now.monotonic) if wanted else None
            )
            room = self._preempt_for_critical_pod(record, node, now) if wanted and again is None and is_critical(pod) else None
            return again or room or self._reject_pod(uid, admitted.admission_reason, admitted.admission_message, now)
        self._stale_node_check.forget_pod(pod.spec.nodeName, uid)
        try:
            if needs_volumes(pod):
                record.want = record.want._replace(mounted_at=self._volumes.publish_volumes(pod, now))
            if remark := self._runtime.prepare_pod(pod, admitted):
                self._event(pod, "Normal", "Simulated", remark)
        except UnsupportedPod as error:
            self.release_resources(record)
            return lifecycle.reject_pod(UNEXPECTED, f"Pod was rejected: {error}", now)
        record.addresses = admitted
        return lifecycle.accept_pod(record.template.plan, now)

    def _preempt_for_critical_pod(self, record: PodRecord, node: VirtualNode, now: Moment) -> PodState | float | None:
        """Preempt other pods for a critical pod, and return the time of the next attempt. None: no pod can help."""
        pod = record.pod
        staying = self._staying(pod.spec.nodeName)
        lacking = node.missing_resources_without(
            record.template, set(node.counted_pods) - {item.metadata.uid for item in staying}
        )
        if lacking is None:
            return None
        victims = select_pods_to_preempt(pod, [item for item in staying if self._can_end(item.metadata.uid)], lacking)
        if victims is None:
            return self._reject_pod(pod.metadata.uid, UNEXPECTED, insufficient_resources_message(lacking), now)
        for victim in victims:
            self._preempt(victim.metadata.uid)
        self._making_room.setdefault(pod.spec.nodeName, {})[pod.metadata.uid] = pod.spec.priority
        return now.monotonic + RETRY_INTERVAL

    def _waits_for_higher_priority(self, pod: Pod) -> bool:
        """Whether the pod must wait because resources are being freed for a pod of higher priority."""
        return any(priority > pod.spec.priority for priority in self._making_room.get(pod.spec.nodeName, {}).values())

    def _stop_preempting(self, pod: Pod) -> None:
        if (pods := self._making_room.get(pod.spec.nodeName)) is not None:
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self._making_room[pod.spec.nodeName]

    def readmit_pod(self, record: PodRecord) -> None:
        """Admit a pod that an earlier process accepted. Its resources are counted, and it keeps its address."""
        pod = record.pod
        node = self._nodes.node_of_pod(pod)
        if node is not None and pod.metadata.uid not in node.counted_pods:
            record.addresses = node.readmit_pod(pod.metadata.uid, record.template, pod.status.podIP)

    def adopt_volumes(self, record: PodRecord, now: Moment) -> None:
        """Adopt the volumes of the pod. They are mounted if a container has started."""
        if needs_volumes(record.pod):
            mounted_at = self._volumes.adopt_volumes(record.pod, now, started=bool(record.containers))
            record.want = record.want._replace(mounted_at=mounted_at)

    def release_resources(self, record: PodRecord) -> None:
        """Release all resources of the pod."""
        if needs_volumes(record.pod):
            self._volumes.unpublish_volumes(record.pod)
        self._forget_resize(record.pod)
        if node := self._nodes.node_of_pod(record.pod):
            node.release_pod(record.pod.metadata.uid)
            self.retry_resizes(record.pod.spec.nodeName)

    def resize_pod(self, record: PodRecord, containers: Sequence[ContainerView], now: Moment) -> bool:
        """Allocate the resources of the spec, or record why the node cannot. Return whether the result has changed."""
        pod, before = record.pod, record.resize
        uid, node = pod.metadata.uid, self._nodes.node_of_pod(pod)
        if before is None or node is None or uid not in node.counted_pods:
            return False
        pending = node.cannot_resize(uid, get_template(pod).requests)
        if pending is not None:
            self._pending.setdefault(pod.spec.nodeName, {})[uid] = record
            reason, message = pending
            since = before.since if before.reason else now.unix
            record.resize = before._replace(reason=reason, message=message, since=since, unseen=False)
            return record.resize != before
        self._forget_resize(pod)
        record.set_resize(before.after_grant(pod.spec, containers, now.unix))
        self.recount_resources(record)
        return True

    def recount_resources(self, record: PodRecord) -> None:
        """The resources of the pod have changed."""
        if node := self._nodes.node_of_pod(record.pod):
            node.recount_pod(record.pod.metadata.uid, record.counted_requests)
            self.retry_resizes(record.pod.spec.nodeName)

    def retry_resizes(self, node: str) -> None:
        """Pending resizes of the node, in the order of priority, then QoS class, then waiting time."""
        if waiting := self._pending.get(node):
            for uid, _ in sorted(waiting.items(), key=lambda item: _resize_order(item[1])):
                self._wake(uid)

    def _forget_resize(self, pod: Pod) -> None:
        if (waiting := self._pending.get(pod.spec.nodeName)) is not None:
            waiting.pop(pod.metadata.uid, None)
            if not waiting:
                del self._pending[pod.spec.nodeName]

    def pods_to_recheck(self, node: str) -> Iterable[str]:
        """The uids of pods to check again after a change of the node."""
        return self._stale_node_check.waiting_pods(node)

    def forget_pod(self, pod: Pod) -> None:
        self._forget_resize(pod)
        self._stop_preempting(pod)
        self._stale_node_check.forget_pod(pod.spec.nodeName, pod.metadata.uid)

    def _reject_pod(self, uid: str, reason: str, message: str, now: Moment) -> PodState:
        self._runtime.remove(uid)  # volumes of a process that was killed before it could report
        return lifecycle.reject_pod(reason, f"Pod was rejected: {message}", now)


def needs_volumes(pod: Pod) -> bool:
    """Whether the volumes are concerned with the pod: it has some, or variables from objects."""
    return bool(pod.spec.volumes) or any(
        container.envFrom or any(variable.HasField("valueFrom") for variable in container.env)
        for container in (*pod.spec.initContainers, *pod.spec.containers)
    )


def _resize_order(record: PodRecord) -> tuple[int, bool, float]:
    spec = record.pod.spec
    return (-spec.priority, qos_class(spec) != "Guaranteed", record.resize.since if record.resize is not None else 0.0)
