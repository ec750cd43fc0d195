"""What a pod takes of its node, from when it is admitted until it is gone: room, addresses, volumes."""

from collections.abc import Callable, Iterable, Sequence

from kubelet import lifecycle
from kubelet.eviction import barred
from kubelet.lifecycle import PodState
from kubelet.preemption import is_critical, not_enough, preempted
from kubelet.record import Record
from kubelet.runtime import ContainerView, Instant, Runtime, Unsupported
from kubelet.secondlook import AGAIN, SecondLook
from kubelet.template import template_of
from kubelet.virtualnode import VirtualNode
from kubelet.virtualnodes import VirtualNodes
from kubelet.volumes import Volumes
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import EVICTED, qos_class
from pinnace.fit import Refusal

UNEXPECTED = "UnexpectedAdmissionError"


class Admission:
    """`nodes_known`: see SecondLook. `staying`: the pods of a node that are not about to end; `preempt`: ends one of them for a
    critical pod, by its uid, if it `can_end`. `wake`: has a pod looked at, by its uid."""

    def __init__(
        self,
        nodes: VirtualNodes,
        runtime: Runtime,
        volumes: Volumes,
        nodes_known: Callable[[], int],
        staying: Callable[[str], Sequence[Pod]],
        preempt: Callable[[str], None],
        can_end: Callable[[str], bool],
        wake: Callable[[str], None],
    ) -> None:
        self._nodes = nodes
        self._runtime = runtime
        self._volumes = volumes
        self._staying = staying
        self._preempt = preempt
        self._can_end = can_end
        self._wake = wake
        self._pending: dict[str, dict[str, Record]] = {}
        """Pods whose resize waits for room, by node and uid."""
        self._second_look = SecondLook(nodes_known)
        self._making_room: dict[str, dict[str, int]] = {}
        """The priorities of the pods for which others end, by node and uid."""

    def admit(self, record: Record, now: Instant) -> PodState | float:
        """Accepted, and counted, or refused; or when to ask again, in monotonic seconds. The node is one of the fleet's."""
        pod = record.pod
        uid, node = pod.metadata.uid, self._nodes.of(pod)
        assert node is not None
        self._stop_making_room(pod)  # unless it turns out anew that it must wait
        if bar := barred(pod, self._nodes.pressures(pod)):
            return self._refuse(uid, EVICTED, bar, now)
        wanted = record.want.grace is None
        if wanted and self._comes_after_others(pod):
            return now.monotonic + AGAIN
        admitted = node.admit(uid, record.template)
        if isinstance(admitted, Refusal):
            again = self._second_look.at(pod.spec.nodeName, uid, record.revision, now.monotonic) if wanted else None
            room = self._make_room(record, node, now) if wanted and again is None and is_critical(pod) else None
            return again or room or self._refuse(uid, admitted.admission_reason, admitted.admission_message, now)
        self._second_look.over(pod.spec.nodeName, uid)
        try:
            if pod.spec.volumes:
                record.want = record.want._replace(mounted_at=self._volumes.publish(pod, now))
            self._runtime.prepare(pod, admitted)
        except Unsupported as error:
            self.vacate(record)
            return lifecycle.refuse(UNEXPECTED, f"Pod was rejected: {error}", now)
        record.addresses = admitted
        return lifecycle.accept(record.template.plan, now)

    def _make_room(self, record: Record, node: VirtualNode, now: Instant) -> PodState | float | None:
        """Has others end for a critical pod, which is asked for again until they have. None: room would not help it."""
        pod = record.pod
        staying = self._staying(pod.spec.nodeName)
        lacking = node.lacking(record.template, set(node.tenants) - {each.metadata.uid for each in staying})
        if lacking is None:
            return None
        victims = preempted(pod, [each for each in staying if self._can_end(each.metadata.uid)], lacking)
        if victims is None:
            return self._refuse(pod.metadata.uid, UNEXPECTED, not_enough(lacking), now)
        for each in victims:
            self._preempt(each.metadata.uid)
        self._making_room.setdefault(pod.spec.nodeName, {})[pod.metadata.uid] = pod.spec.priority
        return now.monotonic + AGAIN

    def _comes_after_others(self, pod: Pod) -> bool:
        """Is room being made on its node for a more important one, which it would take?"""
        return any(priority > pod.spec.priority for priority in self._making_room.get(pod.spec.nodeName, {}).values())

    def _stop_making_room(self, pod: Pod) -> None:
        if (pods := self._making_room.get(pod.spec.nodeName)) is not None:
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self._making_room[pod.spec.nodeName]

    def readmit(self, record: Record) -> None:
        """One that an earlier process had accepted: it counts, and keeps its address."""
        pod = record.pod
        node = self._nodes.of(pod)
        if node is not None and pod.metadata.uid not in node.tenants:
            record.addresses = node.readmit(pod.metadata.uid, record.template, pod.status.podIP)

    def remount(self, record: Record, now: Instant) -> None:
        """Its volumes: they are there where its containers were started."""
        if record.pod.spec.volumes:
            mounted_at = self._volumes.adopt(record.pod, now, started=bool(record.containers))
            record.want = record.want._replace(mounted_at=mounted_at)

    def vacate(self, record: Record) -> None:
        """The pod uses nothing of its node any more."""
        if record.pod.spec.volumes:
            self._volumes.unpublish(record.pod)
        self._forget_resize(record.pod)
        if node := self._nodes.of(record.pod):
            node.vacate(record.pod.metadata.uid)
            self.retry_resizes(record.pod.spec.nodeName)

    def resize(self, record: Record, containers: Sequence[ContainerView], now: Instant) -> bool:
        """Allocates the resources of the spec, or notes why the node cannot. Has that changed anything?"""
        pod, before = record.pod, record.resize
        uid, node = pod.metadata.uid, self._nodes.of(pod)
        if before is None or node is None or uid not in node.tenants:
            return False
        pending = node.cannot_resize(uid, template_of(pod).requests)
        if pending is not None:
            self._pending.setdefault(pod.spec.nodeName, {})[uid] = record
            reason, message = pending
            since = before.since if before.reason else now.unix
            record.resize = before._replace(reason=reason, message=message, since=since, unseen=False)
            return record.resize != before
        self._forget_resize(pod)
        record.set_resize(before.granted(pod.spec, containers, now.unix))
        self.recount(record)
        return True

    def recount(self, record: Record) -> None:
        """The pod has other resources than before."""
        if node := self._nodes.of(record.pod):
            node.recount(record.pod.metadata.uid, record.counted)
            self.retry_resizes(record.pod.spec.nodeName)

    def retry_resizes(self, node: str) -> None:
        """The node may have room for resizes that wait: those of a higher priority first, then those of guaranteed pods, then
        those that wait longest."""
        if waiting := self._pending.get(node):
            for uid, _ in sorted(waiting.items(), key=lambda each: _order(each[1])):
                self._wake(uid)

    def _forget_resize(self, pod: Pod) -> None:
        if (waiting := self._pending.get(pod.spec.nodeName)) is not None:
            waiting.pop(pod.metadata.uid, None)
            if not waiting:
                del self._pending[pod.spec.nodeName]

    def undecided(self, node: str) -> Iterable[str]:
        """The uids of the pods that are to be asked for again when the node has changed."""
        return self._second_look.waiting(node)

    def forget(self, pod: Pod) -> None:
        self._forget_resize(pod)
        self._stop_making_room(pod)
        self._second_look.over(pod.spec.nodeName, pod.metadata.uid)

    def _refuse(self, uid: str, reason: str, message: str, now: Instant) -> PodState:
        self._runtime.remove(uid)  # what a process has left that was killed before it could report
        return lifecycle.refuse(reason, f"Pod was rejected: {message}", now)


def _order(record: Record) -> tuple[int, bool, float]:
    spec = record.pod.spec
    return (-spec.priority, qos_class(spec) != "Guaranteed", record.resize.since if record.resize is not None else 0.0)
