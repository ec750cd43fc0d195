"""One pod on one node: the pure state machine, the fake runtime and the status, without an API and without delays.

    machine = Machine(make_pod("a").init().req()); machine.wait(5); assert machine.phase is Phase.RUNNING

Time advances only in `wait`, from one change to the next. `log` has the actions and events in order.
"""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import ContainerStatus, PodCondition, PodStatus
from pinnace.api.scalars import to_time
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle import (
    PodPhase,
    PodState,
    RecordEvent,
    RemovePod,
    StartCall,
    StartContainer,
    StopContainer,
    accept_pod,
    adopt_pod_state,
    advance_pod,
)
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.pod_record import compute_desired_state
from pinnace.kubelet.runtime.interface import ContainerView, Moment
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from pinnace.kubelet.status import build_status_update
from tests.builders import PodBuilder

ADDRESSES = PodAddresses("192.0.2.1", "192.0.2.2")
BEGIN = Moment(100.0, 5_000.0)
STEPS = 100
"""The limit of steps at one moment before the test fails."""


class Machine:
    def __init__(self, builder: PodBuilder, volumes: float = 0.0) -> None:
        """`volumes` is the number of seconds until the volumes are mounted."""
        self._mounted_at = BEGIN.monotonic + volumes
        self.pod = builder.build()
        self.uid = self.pod.metadata.uid
        self.template = get_template(self.pod)
        self.now = BEGIN
        self.runtime = SimulatedRuntime(Behaviour())
        self.runtime.prepare_pod(self.pod, ADDRESSES)
        self.state: PodState = accept_pod(self.template.plan, self.now)
        self.views: Sequence[ContainerView] = ()
        self.log: list[str] = []
        """Entries such as "start c0", "stop c0 30", "call c0 Startup probe", "Killing: Stopping container c0" and "remove"."""
        self.phases = [self.state.phase]
        self._wake_at: float | None = None
        self.step()

    @property
    def phase(self) -> PodPhase:
        return self.state.phase

    @property
    def alive(self) -> list[str]:
        """Containers that have started and not ended."""
        return [view.name for view in self.runtime.observe_containers(self.uid, self.now) if view.exit is None]

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return self.now.monotonic - BEGIN.monotonic

    def step(self) -> None:
        """Take all steps that are due now."""
        want = compute_desired_state(self.pod, self.template)._replace(mounted_at=self._mounted_at)
        for _ in range(STEPS):
            self.views = self.runtime.observe_containers(self.uid, self.now)
            step = advance_pod(want, self.state, self.views, self.now)
            again = advance_pod(want, self.state, self.views, self.now)
            assert again == step, "a repeated step returns the same actions"
            self.state, self._wake_at = step.state, step.wake_at
            if self.state.phase is not self.phases[-1]:
                self.phases.append(self.state.phase)
            said = [_words(action) for action in step.actions]
            self.log += [words for words in said if words != "remove" or "remove" not in self.log]
            if not [self._carry_out(action) for action in step.actions if not isinstance(action, RecordEvent | RemovePod)]:
                return
        raise AssertionError(f"the pod spins: {self.log[-9:]}")

    def _carry_out(self, action: StartContainer | StopContainer | StartCall) -> bool:
        match action:
            case StartContainer(container, attempt):
                assert self.now.monotonic >= self._mounted_at, "no container starts before its volumes are mounted"
                self.runtime.start(self.uid, container, attempt, self.now)
            case StopContainer(container, grace):
                self.runtime.stop(self.uid, container, grace, self.now)
            case StartCall(container, call):
                self.runtime.call(self.uid, container, call, self.now)
        return True

    def wait(self, seconds: float) -> "Machine":
        end = self.now.after(seconds)
        while self._wake_at is not None and self._wake_at <= end.monotonic:
            assert self._wake_at > self.now.monotonic, "the wake-up time is not in the future"
            self.now = self.now.after(self._wake_at - self.now.monotonic)
            self.step()
        self.now = end
        self.step()
        return self

    def delete(self, grace: int = 30) -> "Machine":
        self.pod.metadata.deletionTimestamp.CopyFrom(to_time(self.now.unix + grace))
        self.pod.metadata.deletionGracePeriodSeconds = grace
        self.step()
        return self

    def restart(self) -> "Machine":
        """Another kubelet process adopts the pod from its reported status."""
        self.pod.status.CopyFrom(self.status)
        self.runtime = SimulatedRuntime(Behaviour())
        self.state = adopt_pod_state(self.pod, self.template.plan, self.now)
        if not self.state.phase.final:
            self.runtime.adopt_pod(self.pod, self.now)
        self.step()
        return self

    @property
    def status(self) -> PodStatus:
        return build_status_update(self.pod, "1", self.template, self.state, self.views, ADDRESSES).status

    def container(self, name: str) -> ContainerStatus:
        status = self.status
        (result,) = (
            container_status
            for container_status in (*status.initContainerStatuses, *status.containerStatuses)
            if container_status.name == name
        )
        return result

    def condition(self, kind: str) -> PodCondition:
        (result,) = (item for item in self.status.conditions if item.type == kind)
        return result


def _words(action: object) -> str:
    match action:
        case StartContainer(container, _):
            return f"start {container}"
        case StopContainer(container, grace):
            return f"stop {container} {grace:g}"
        case StartCall(container, call):
            return f"call {container} {call.kind.value}"
        case RecordEvent(_, reason, message):
            return f"{reason}: {message}"
    return "remove"
