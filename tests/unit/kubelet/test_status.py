"""The status message: its contents, preserved fields and transition times."""

import pytest

from pinnace.api.core_v1_pb2 import Pod, PodCondition, PodStatus
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.pods import EVICTED
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle import ConditionState, PodPhase, PodPlan, PodState, accept_pod, evict_pod_state, reject_pod
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.runtime.interface import ContainerExit, ContainerState, ContainerView, Moment
from pinnace.kubelet.status import build_status_update
from tests.builders import make_pod

EARLIER, NOW = Moment(50.0, 4_950.0), Moment(100.0, 5_000.0)
ADDRESSES = PodAddresses("192.168.0.1", "10.0.1.2")
RUNNING = ContainerView("c0", 0, ContainerState.RUNNING, NOW, None, None, None, None)
CREATED = ContainerView("c0", 0, ContainerState.CREATED, None, None, None, None, 101.0)
EXIT = ContainerExit(3, EARLIER, NOW)


def state(phase: PodPhase, ready: bool = False) -> PodState:
    fact = ConditionState(ready, NOW)
    return PodState(phase, EARLIER, ConditionState(True, EARLIER), fact, fact, ended=NOW if phase.final else None)


def status(pod: Pod, state: PodState, *views: ContainerView) -> PodStatus:
    return build_status_update(pod, "7", get_template(pod), state, views, ADDRESSES).status


def condition(of: PodStatus, kind: str) -> PodCondition:
    (result,) = (condition for condition in of.conditions if condition.type == kind)
    return result


def test_report_has_the_identity_and_resource_version() -> None:
    pod = make_pod("a", "web").req(cpu="1").label("x", "y").version(3).build()
    report = build_status_update(pod, "7", get_template(pod), accept_pod(PodPlan(()), NOW), (), ADDRESSES)
    metadata = report.metadata
    assert (metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion) == ("a", "web", "uid-web-a", "7")
    assert not report.HasField("spec")
    assert not metadata.labels


def test_status_of_a_running_pod() -> None:
    pod = make_pod("a").req(cpu="1").condition("PodScheduled", "True").build()
    pod.status.qosClass = "Burstable"
    result = status(pod, state(PodPhase.RUNNING, ready=True), RUNNING)
    assert (result.phase, result.qosClass, result.startTime.seconds) == ("Running", "Burstable", 4_950)
    assert (result.hostIP, result.podIP) == ADDRESSES
    assert ([host_ip.ip for host_ip in result.hostIPs], [pod_ip.ip for pod_ip in result.podIPs]) == (
        [ADDRESSES.host],
        [ADDRESSES.pod],
    )
    assert {item.type: item.status for item in result.conditions} == dict.fromkeys(
        ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), "True"
    )
    assert condition(result, "Ready").lastTransitionTime.seconds == 5_000
    assert condition(result, "Initialized").lastTransitionTime.seconds == 4_950
    (container,) = result.containerStatuses
    assert (container.name, container.image, container.ready, container.started) == ("c0", "app:1", True, True)
    assert container.state.running.startedAt.seconds == 5_000


@pytest.mark.parametrize("ready", [True, False])
def test_status_and_conditions_have_the_observed_generation(ready: bool) -> None:
    pod = make_pod("a").req(cpu="1").condition("PodScheduled", "True").build()
    pod.metadata.generation = 4
    result = status(pod, state(PodPhase.RUNNING, ready=ready), RUNNING)
    assert result.observedGeneration == 4
    own = [item for item in result.conditions if item.type != "PodScheduled"]
    assert [item.observedGeneration for item in own] == [4] * 4


def test_rejected_pod_has_the_observed_generation() -> None:
    pod = make_pod("a").req(cpu="1").build()
    pod.metadata.generation = 3
    assert status(pod, reject_pod("OutOfcpu", "no cpu", NOW)).observedGeneration == 3


def test_missing_address_is_not_reported() -> None:
    """The server rejects an empty address, and then no status of the pod could be reported."""
    pod = make_pod("a").req(cpu="1").build()
    for _ in range(2):
        report = build_status_update(
            pod, "7", get_template(pod), state(PodPhase.RUNNING, ready=True), (RUNNING,), PodAddresses(ADDRESSES.host, "")
        )
        assert ([host_ip.ip for host_ip in report.status.hostIPs], list(report.status.podIPs)) == ([ADDRESSES.host], [])
        pod.status.CopyFrom(report.status)


def test_existing_start_time_is_kept() -> None:
    pod = make_pod("a").req(cpu="1").build()
    pod.status.startTime.seconds = 4_000
    assert status(pod, state(PodPhase.RUNNING, ready=True), RUNNING).startTime.seconds == 4_000


def test_repeated_report_has_no_duplicates() -> None:
    pod = make_pod("a").req(cpu="1").condition("PodScheduled", "True").condition("example.com/gate", "False").build()
    first = status(pod, state(PodPhase.RUNNING, ready=True), RUNNING)
    pod.status.CopyFrom(first)
    again = status(pod, state(PodPhase.RUNNING, ready=True), RUNNING)
    assert sorted(item.type for item in again.conditions) == sorted(item.type for item in first.conditions)
    assert len(again.containerStatuses) == len(again.podIPs) == len(again.hostIPs) == 1
    assert condition(again, "example.com/gate").status == "False"


def test_unknown_fields_are_preserved() -> None:
    pod = make_pod("a").req(cpu="1").build()
    unknown = b"\xc2\x3e\x03abc"  # field 1000
    pod.status.MergeFromString(unknown)
    assert unknown in status(pod, accept_pod(PodPlan(()), NOW)).SerializeToString()


def test_status_of_a_pod_being_created() -> None:
    pod = make_pod("a").req(cpu="1").req(cpu="1").build()
    result = status(pod, state(PodPhase.PENDING), RUNNING)
    ready = condition(result, "Ready")
    assert (ready.status, ready.reason, ready.message) == (
        "False", "ContainersNotReady", "containers with unready status: [c1]",
    )  # fmt: skip
    assert result.containerStatuses[1].state.waiting.reason == "ContainerCreating"
    assert status(pod, state(PodPhase.PENDING), CREATED).containerStatuses[0].state.waiting.reason == "ContainerCreating"


@pytest.mark.parametrize(
    ("phase", "code", "reason", "ready_reason"),
    [(PodPhase.SUCCEEDED, 0, "Completed", "PodCompleted"), (PodPhase.FAILED, 3, "Error", "PodFailed")],
)
def test_status_of_an_ended_pod(phase: PodPhase, code: int, reason: str, ready_reason: str) -> None:
    pod = make_pod("a").req(cpu="1").restart_policy("Never").build()
    exited = ContainerView("c0", 0, ContainerState.EXITED, EARLIER, EXIT._replace(code=code), None, None, None)
    result = status(pod, state(phase), exited)
    ended = result.containerStatuses[0].state.terminated
    assert (ended.exitCode, ended.reason, ended.startedAt.seconds, ended.finishedAt.seconds) == (code, reason, 4_950, 5_000)
    assert condition(result, "Ready").reason == ready_reason
    assert not result.containerStatuses[0].ready


def test_status_of_a_container_in_backoff() -> None:
    pod = make_pod("a").req(cpu="1").build()
    exited = ContainerView("c0", 2, ContainerState.EXITED, EARLIER, EXIT, None, None, None)
    (container,) = status(pod, state(PodPhase.RUNNING), exited).containerStatuses
    assert (container.state.waiting.reason, container.restartCount) == ("CrashLoopBackOff", 2)
    assert container.lastState.terminated.exitCode == 3


def test_status_of_a_restarted_container() -> None:
    pod = make_pod("a").req(cpu="1").build()
    view = ContainerView("c0", 1, ContainerState.RUNNING, NOW, None, EXIT, None, None)
    (container,) = status(pod, state(PodPhase.RUNNING, ready=True), view).containerStatuses
    assert (container.ready, container.restartCount, container.lastState.terminated.exitCode) == (True, 1, 3)
    assert container.state.running.startedAt.seconds == 5_000


def test_containers_of_a_pod_that_never_started_have_unknown_status() -> None:
    pod = make_pod("a").req(cpu="1").build()
    (container,) = status(pod, state(PodPhase.FAILED)).containerStatuses
    assert (container.state.terminated.exitCode, container.state.terminated.reason) == (137, "ContainerStatusUnknown")


def test_rejected_pod_has_a_reason_and_no_address_or_containers() -> None:
    pod = make_pod("a").req(cpu="1").condition("PodScheduled", "True").build()
    result = status(pod, reject_pod("OutOfcpu", "no room", NOW))
    assert (result.phase, result.reason, result.message) == ("Failed", "OutOfcpu", "no room")
    assert not result.podIP
    assert not result.containerStatuses
    assert [item.type for item in result.conditions] == ["PodScheduled"]


def test_exit_reason_and_message_are_reported() -> None:
    pod = make_pod("a").req(cpu="1").restart_policy("Never").build()
    killed = ContainerView(
        "c0", 0, ContainerState.EXITED, EARLIER, EXIT._replace(code=137, reason="OOMKilled", message="512Mi"), None, None, None
    )
    ended = status(pod, state(PodPhase.FAILED), killed).containerStatuses[0].state.terminated
    assert (ended.exitCode, ended.reason, ended.message) == (137, "OOMKilled", "512Mi")


def test_ended_pod_is_not_ready_to_start_containers() -> None:
    pod = make_pod("a").req(cpu="1").build()
    assert condition(status(pod, state(PodPhase.RUNNING)), "PodReadyToStartContainers").status == "True"
    ended = condition(status(pod, state(PodPhase.SUCCEEDED)), "PodReadyToStartContainers")
    assert (ended.status, ended.lastTransitionTime.seconds) == ("False", 5_000)


def evicted() -> PodState:
    """The state of an evicted pod that ended three seconds later."""
    evicting = evict_pod_state(state(PodPhase.RUNNING), EVICTED, "low on memory", NOW, disrupts=True)
    return evicting._replace(phase=PodPhase.FAILED, ended=NOW.after(3.0))


def test_disruption_target_has_the_time_of_the_eviction() -> None:
    """The time is neither the time of acceptance nor the end of the last container."""
    pod = make_pod("a").req(cpu="1").req(cpu="1").build()
    target = condition(status(pod, evicted()), "DisruptionTarget")
    assert (target.status, target.reason, target.message) == ("True", "TerminationByKubelet", "low on memory")
    assert target.lastTransitionTime.seconds == 5_000


def test_disruption_target_is_set_once_the_pod_has_ended() -> None:
    """A kubelet that restarts meanwhile leaves the pod running, and the condition would stay."""
    pod = make_pod("a").req(cpu="1").build()
    ending = evicted()._replace(phase=PodPhase.RUNNING, ended=None)
    assert not [item for item in status(pod, ending).conditions if item.type == "DisruptionTarget"]


def test_existing_disruption_target_keeps_its_transition_time() -> None:
    pod = make_pod("a").req(cpu="1").build()
    before = Time(seconds=4_000)
    pod.status.conditions.add(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI", lastTransitionTime=before)
    target = condition(status(pod, evicted()), "DisruptionTarget")
    assert (target.reason, target.lastTransitionTime) == ("TerminationByKubelet", before)


def test_static_node_name_sets_pod_scheduled() -> None:
    pod = make_pod("a").req(cpu="1").build()
    assert condition(status(pod, state(PodPhase.RUNNING)), "PodScheduled").status == "True"


def test_fast_path_for_plain_pods_equals_the_full_path() -> None:
    pod = make_pod("a").req(cpu="1").req(cpu="1").build()
    template = get_template(pod)
    assert template.plan.plain
    views = (RUNNING._replace(name="c1", started=EARLIER), RUNNING)
    full_path = template._replace(plan=template.plan._replace(plain=False))
    ready = state(PodPhase.RUNNING, ready=True)
    assert build_status_update(pod, "7", template, ready, views, ADDRESSES) == build_status_update(
        pod, "7", full_path, ready, views, ADDRESSES
    )
