"""A fake of the API for the pods of a fleet: versions, compare-and-swap, phases that only move forward, and deletion."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_time
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest, WatchEventType
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.client.errors import unavailable_error
from pinnace.client.informer import Delta
from pinnace.kubelet.lifecycle import PodPhase
from pinnace.kubelet.node import VirtualNodes
from pinnace.kubelet.pod_manager import PodManager
from pinnace.kubelet.runtime.simulated_runtime import NO_STAGES, SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour, Stages
from tests.builders import PodBuilder, make_node
from tests.clock import FakeClock


class FakeApi:
    """Holds pods by uid. `down` makes every call fail. `refuses` maps a verb to the code of its items. `deaf` withholds
    changes from the fleet until `deliver`. While `answers` is clear, reports are stored and not answered.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pods: dict[str, Pod] = {}
        self.history: list[tuple[str, str]] = []
        """The name and phase of each written status, and (name, "deleted")."""
        self.written: dict[str, list[PodPhase]] = {}
        """The written phases of each pod, by uid."""
        self.created: list[str] = []
        self.restarts = False
        """Whether the fleet is to be restarted."""
        self.events: list[tuple[str, str]] = []
        self.trips = False
        """Whether pods may trigger bugs. Otherwise a bug fails the test, because the fleet only logs it."""
        self.down = False
        self.refuses: dict[str, Code] = {}
        self.deaf = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.nodes_known = sys.maxsize
        """The revision up to which the kubelet has received nodes."""
        self._revision = 100
        self._undelivered: list[Delta[Pod]] = []
        self._process: asyncio.Task[None] | None = None
        self.nodes: VirtualNodes
        self.fleet: PodManager
        self.runtime: SimulatedRuntime

    async def start_fleet(
        self,
        *nodes: Node,
        default: Behaviour = Behaviour(),  # noqa: B008 (immutable)
        stages: Stages = NO_STAGES,
    ) -> None:
        """Start a kubelet process that knows only the objects of the API. The previous process is killed."""
        await self.stop_fleet()
        self.restarts = False
        self._undelivered.clear()
        self.runtime = SimulatedRuntime(default, stages)
        self.nodes = VirtualNodes()
        self.fleet = PodManager(self.nodes, self, self.runtime, self, nodes_known=lambda: self.nodes_known, clock=self.clock)
        for node in nodes or (make_node("n").build(),):
            self.fleet.set_node(node)
        self.fleet.handle_deltas([Delta(WatchEventType.ADDED, self._copy(pod), None) for pod in self.pods.values()])
        self._process = asyncio.create_task(self.fleet.run())
        await self.clock.advance(0.0)

    async def stop_fleet(self) -> None:
        """Stop the process, and raise its error if it failed."""
        if self._process is not None:
            self._process.cancel()
            with suppress(asyncio.CancelledError):
                await self._process
            self._process = None

    def create(self, builder: PodBuilder, node: str = "n") -> Pod:
        """Create the pod, bound to the node."""
        pod = builder.node(node).build()
        pod.metadata.generation = 1
        self.pods[pod.metadata.uid] = pod
        self.created.append(pod.metadata.name)
        self._changed(pod, WatchEventType.ADDED)
        return pod

    def delete(self, name: str, grace: int = 30) -> None:
        """Delete the pod as a user. A finished pod is removed at once. The grace period can only be shortened."""
        pod = self.pod(name)
        if pod.status.phase in ("Succeeded", "Failed"):
            self.remove(name)
            return
        if pod.metadata.HasField("deletionTimestamp") and pod.metadata.deletionGracePeriodSeconds <= grace:
            return
        pod.metadata.deletionTimestamp.CopyFrom(to_time(self.clock.time() + grace))
        pod.metadata.deletionGracePeriodSeconds = grace
        self._changed(pod, WatchEventType.MODIFIED)

    def remove(self, name: str) -> None:
        """Remove the pod at once, without the kubelet."""
        self._changed(self.pods.pop(self.pod(name).metadata.uid), WatchEventType.DELETED)

    def touch(self, name: str) -> None:
        """Change a label of the pod as another client."""
        pod = self.pod(name)
        pod.metadata.labels["touched"] = str(self._revision)
        self._changed(pod, WatchEventType.MODIFIED)

    def set_deadline(self, name: str, seconds: int) -> None:
        pod = self.pod(name)
        pod.spec.activeDeadlineSeconds = seconds
        pod.metadata.generation += 1
        self._changed(pod, WatchEventType.MODIFIED)

    def resize(self, name: str, cpu: str) -> None:
        pod = self.pod(name)
        pod.spec.containers[0].resources.requests["cpu"].string = cpu
        pod.metadata.generation += 1
        self._changed(pod, WatchEventType.MODIFIED)

    def set_image(self, name: str, container: str, image: str) -> None:
        pod = self.pod(name)
        next(item for item in (*pod.spec.initContainers, *pod.spec.containers) if item.name == container).image = image
        pod.metadata.generation += 1
        self._changed(pod, WatchEventType.MODIFIED)

    def annotate(self, name: str, key: str, value: str) -> None:
        pod = self.pod(name)
        pod.metadata.annotations[key] = value
        self._changed(pod, WatchEventType.MODIFIED)

    def relist(self) -> None:
        """Open a new watch, which lists all pods of the fleet's node."""
        self.undelivered()
        self.deaf = False
        self.fleet.replace_pods(["n"], [self._copy(pod) for pod in self.pods.values()])

    def set_condition(self, name: str, kind: str, status: str) -> None:
        """Set a condition of the pod as a controller."""
        pod = self.pod(name)
        pod.status.conditions.add(type=kind, status=status)
        self._changed(pod, WatchEventType.MODIFIED)

    def report_by_another(self, name: str, phase: PodPhase) -> None:
        """Report a phase as another process of the same fleet, which accepted the pod a minute ago."""
        pod = self.pod(name)
        pod.status.phase = phase
        pod.status.startTime.CopyFrom(to_time(self.clock.time() - 60))
        self._changed(pod, WatchEventType.MODIFIED)

    def is_ready(self, name: str) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.pod(name).status.conditions)

    def say_not_ready(self, name: str) -> None:
        """Set the pod to not ready, as the node lifecycle controller does for a silent node."""
        pod = self.pod(name)
        for condition in pod.status.conditions:
            if condition.type == "Ready":
                condition.status = "False"
        self._changed(pod, WatchEventType.MODIFIED)

    def pod(self, name: str) -> Pod:
        (result,) = (pod for pod in self.pods.values() if pod.metadata.name == name)
        return result

    def phases(self, name: str) -> list[str]:
        return [phase for each, phase in self.history if each == name]

    def deliver(self) -> None:
        """Deliver all withheld changes to the fleet, and deliver later changes at once."""
        self.deaf = False
        self.fleet.handle_deltas(self.undelivered())

    def undelivered(self) -> list[Delta[Pod]]:
        """Return and drop the withheld changes."""
        undelivered, self._undelivered = self._undelivered, []
        return undelivered

    def event(self, obj: Pod, type_: str, reason: str, message: str) -> None:
        assert self.trips or reason != "FailedSync", message
        self.events.append((obj.metadata.name, reason))

    async def update_status_batch(self, objs: Sequence[Pod]) -> Sequence[BatchItem]:
        if self.down:
            raise unavailable_error("the test says so")
        items = [self._update_status(obj) for obj in objs]
        await self.answers.wait()
        return items

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> Sequence[BatchItem]:
        if self.down:
            raise unavailable_error("the test says so")
        return [self._delete(request) for request in requests]

    def _update_status(self, obj: Pod) -> BatchItem:
        if code := self.refuses.get("UpdateStatus"):
            return refusal(code)
        pod = self.pods.get(obj.metadata.uid)
        if pod is None:
            return refusal(Code.NOT_FOUND)
        if obj.metadata.resourceVersion != pod.metadata.resourceVersion:
            return refusal(Code.ABORTED)
        violations = STRATEGIES[PODS.plural].validate_status_update(obj, pod)
        assert not violations, violations
        pod.status.CopyFrom(obj.status)
        self.history.append((pod.metadata.name, pod.status.phase))
        self.written.setdefault(pod.metadata.uid, []).append(PodPhase(pod.status.phase))
        return self._changed(pod, WatchEventType.MODIFIED)

    def _delete(self, request: DeleteRequest) -> BatchItem:
        if code := self.refuses.get("Delete"):
            return refusal(code)
        pod = self.pods.pop(request.options.preconditions.uid, None)
        if pod is None:
            return refusal(Code.NOT_FOUND)
        assert request.options.gracePeriodSeconds == 0
        assert pod.status.phase in ("Succeeded", "Failed"), "the final status was not reported"
        self.history.append((request.name, "deleted"))
        return self._changed(pod, WatchEventType.DELETED)

    def _changed(self, pod: Pod, kind: WatchEventType) -> BatchItem:
        self._revision += 1
        pod.metadata.resourceVersion = str(self._revision)
        self._undelivered.append(Delta(kind, self._copy(pod), None))
        if not self.deaf:
            self.deliver()
        return BatchItem(name=pod.metadata.name, uid=pod.metadata.uid, resourceVersion=pod.metadata.resourceVersion)

    @staticmethod
    def _copy(pod: Pod) -> Pod:
        copy = Pod()
        copy.CopyFrom(pod)
        return copy


def refusal(code: Code) -> BatchItem:
    return BatchItem(error=encode(Refusal(code, "Test", "as the test wants")))
