"""What this process knows of one pod: the last version from the API, the desired state, the lifecycle state, and its
reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.api.core_v1_pb2 import Pod, PodCondition
from pinnace.api.pods import ended
from pinnace.fit import Requests
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle import DesiredState, PodPhase, PodState, was_accepted
from pinnace.kubelet.lifecycle.plan import PodTemplateFacts, get_template
from pinnace.kubelet.runtime.interface import ContainerState, ContainerView
from pinnace.kubelet.status import (
    PendingResize,
    build_status_update,
    resources_of,
    set_held_reasons,
    statuses_equal,
    with_resources,
)


@dataclass(slots=True, eq=False)
class PodRecord:
    pod: Pod
    """The informer's object."""
    revision: str
    """The latest known version: the informer's, or the result of the last own write."""
    template: PodTemplateFacts
    want: DesiredState
    state: PodState | None = None
    """None: not admitted or adopted yet."""
    containers: Sequence[ContainerView] = ()
    addresses: PodAddresses = PodAddresses("", "")  # noqa: RUF009 (immutable)
    changes: int = 0
    """The number of changes to report."""
    acknowledged: int = 0
    """The value of `changes` at the last stored report."""
    sent_revision: str = ""
    sent_changes: int = 0
    """`revision` and `changes` of the report in flight."""
    waiting: bool = False
    """A report had a Conflict, and the informer has not received the conflicting version."""
    foreign: bool = False
    """Another client may have written the informer's latest status; it has not been compared yet."""
    patient_until: float = 0.0
    """Monotonic time until which overwritten fields are not corrected."""
    over: bool = False
    """The pod must be deleted when everything has been reported."""
    resize: PendingResize | None = None
    """None: the pod has the resources of its spec."""

    @classmethod
    def from_pod(cls, pod: Pod) -> "PodRecord":
        template = get_template(pod)
        return cls(pod, pod.metadata.resourceVersion, template, compute_desired_state(pod, template))

    @property
    def is_reported(self) -> bool:
        return self.acknowledged == self.changes

    @property
    def is_run_by_other_process(self) -> bool:
        """Whether another process of this fleet accepted the pod before a report of this process was stored, or finished it.
        Then its report wins, so that the pod does not move backwards.
        """
        if self.state is None or not was_accepted(self.pod):
            return False
        status = self.pod.status
        if ended(self.pod) and status.phase != self.state.phase:
            return True
        if self.acknowledged:
            return False
        return self._is_behind_other_process or status.startTime.seconds != int(self.state.accepted.unix)

    @property
    def _is_behind_other_process(self) -> bool:
        """Whether another process of this fleet has started a pod that this process has not started. Phases do not move
        backwards.
        """
        ours = self.state is not None and self.state.phase is PodPhase.PENDING
        return ours and self.pod.status.phase not in ("", PodPhase.PENDING)

    def is_contradicted(self) -> bool:
        """Whether the stored status differs from the status of this process, because another client overwrote it. Only the
        informer's latest version is compared; it can arrive before the response to an own write. Pods that had finished when
        they were adopted are not compared, because the stored status is all that is known.
        """
        if (
            not self.foreign
            or self.state is None
            or not self.is_reported
            or self._is_behind_other_process
            or self.state.ended_before_adoption
        ):
            return False
        if self.revision != self.pod.metadata.resourceVersion:  # this process has a newer report
            return False
        ours = self._render_report(self.state)
        self.foreign = not statuses_equal(ours.status, self.pod.status)
        return self.foreign

    @property
    def running_containers(self) -> list[str]:
        """The names of its running containers."""
        return [container.name for container in self.containers if container.state is ContainerState.RUNNING]

    def apply_pod_version(self, pod: Pod) -> bool:
        """Apply a newer version of the pod, or the event of an own write. Return False for an older version. If the desired
        state has changed, `want` is another object.
        """
        metadata = pod.metadata
        revision = metadata.resourceVersion
        if int(revision) < int(self.revision):
            return False
        if revision != self.pod.metadata.resourceVersion:
            # during a write, the event is usually its own; the response will confirm this
            self.foreign = revision != self.revision and (self.foreign or not self.is_reported or pod.status != self.pod.status)
        moved = metadata.generation != self.pod.metadata.generation
        if moved and self.state is not None and self.resize is None and resources_of(self.pod.spec) != resources_of(pod.spec):
            self.resize = PendingResize(resources_of(self.pod.spec))
        self.pod, self.revision = pod, revision
        if moved:
            self.template = get_template(self.pod_as_allocated)
        if moved or metadata.HasField("deletionTimestamp") or self.template.plan.gates:
            self.want = compute_desired_state(pod, self.template)._replace(mounted_at=self.want.mounted_at, held=self.want.held)
        return True

    @property
    def pod_as_allocated(self) -> Pod:
        """The pod with its allocated resources."""
        return self.pod if self.resize is None else with_resources(self.pod, self.resize.allocated)

    @property
    def counted_requests(self) -> Requests:
        """The resources that the node counts."""
        if self.resize is None or not self.resize.restarting:
            return self.template.requests
        return get_template(with_resources(self.pod, self.resize.counted_amounts())).requests

    def set_resize(self, resize: PendingResize | None) -> None:
        """The pending work of a resize has changed."""
        self.resize = resize
        self.template = get_template(self.pod_as_allocated)
        self.want = self.want._replace(plan=self.template.plan)

    def next_report(self) -> Pod | None:
        """The next UpdateStatus request."""
        if self.state is None:
            return None
        self.sent_revision, self.sent_changes = self.revision, self.changes
        return self._render_report(self.state)

    def _render_report(self, state: PodState) -> Pod:
        report = build_status_update(
            self.pod, self.revision, self.template, state, self.containers, self.addresses, self.resize
        )
        if self.want.held and not state.phase.final:
            set_held_reasons(report.status, self.want.held, initialized=state.initialized.holds)
        return report

    def acknowledge_report(self, revision: str) -> None:
        """The report in flight is stored, at `revision`."""
        self.acknowledged = self.sent_changes
        if int(revision) > int(self.revision):
            self.revision = revision
        if revision == self.pod.metadata.resourceVersion:
            self.foreign = False


def compute_desired_state(pod: Pod, template: PodTemplateFacts) -> DesiredState:
    metadata, plan = pod.metadata, template.plan
    grace = float(metadata.deletionGracePeriodSeconds) if metadata.HasField("deletionTimestamp") else None
    return DesiredState(plan, grace, unmet_gates_message(plan.gates, pod.status.conditions) if plan.gates else "")


def unmet_gates_message(gates: Sequence[str], conditions: Sequence[PodCondition]) -> str:
    """The message about readiness gates that are not True; empty if all are."""
    result = {condition.type: condition.status for condition in conditions}
    return ", ".join(
        f'the status of pod readiness gate "{gate}" is not "True", but {result[gate]}'
        if gate in result
        else f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        for gate in gates
        if result.get(gate) != "True"
    )
