"""The columns of `get pods`, compared with kubectl's output for the same status."""

import pytest
from google.protobuf import text_format

from pinnace.api.core_v1_pb2 import ContainerState, Pod
from pinnace.printers.workloads import format_restarts, pod_readiness, pod_row, pod_status
from tests.builders import make_pod

NOW = 1000.0


def state(text: str) -> ContainerState:
    return text_format.Parse(text, ContainerState())


def with_containers(pod: Pod, *states: str, ready: bool = False, init: bool = False) -> Pod:
    """Add a status for each container, in order. `init`: for each init container."""
    containers, statuses = (
        (pod.spec.initContainers, pod.status.initContainerStatuses)
        if init
        else (pod.spec.containers, pod.status.containerStatuses)
    )
    for container, text in zip(containers, states, strict=True):
        statuses.add(name=container.name, state=state(text), ready=ready)
    return pod


RUNNING = "running {}"
CREATING = 'waiting { reason: "ContainerCreating" }'
COMPLETED = 'terminated { reason: "Completed" }'
CRASHED = 'waiting { reason: "CrashLoopBackOff" }'


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (make_pod("a").req(cpu="1").build(), "Pending"),
        (with_containers(make_pod("a").req(cpu="1").build(), CREATING), "ContainerCreating"),
        (with_containers(make_pod("a").req(cpu="1").phase("Running").build(), RUNNING, ready=True), "Running"),
        (with_containers(make_pod("a").req(cpu="1").phase("Running").build(), CRASHED), "CrashLoopBackOff"),
        (with_containers(make_pod("a").req(cpu="1").phase("Succeeded").build(), COMPLETED), "Completed"),
        (with_containers(make_pod("a").req(cpu="1").phase("Failed").build(), "terminated { exitCode: 3 }"), "ExitCode:3"),
        (with_containers(make_pod("a").req(cpu="1").phase("Failed").build(), "terminated { signal: 9 }"), "Signal:9"),
        (make_pod("a").req(cpu="1").terminating().build(), "Terminating"),
        (make_pod("a").req(cpu="1").phase("Succeeded").terminating().build(), "Succeeded"),
        (make_pod("a").condition("PodScheduled", "False", "SchedulingGated").build(), "SchedulingGated"),
        (make_pod("a").condition("PodScheduled", "False", "Unschedulable").build(), "Pending"),
        (Pod(), "Unknown"),
    ],
)
def test_pod_status_column(pod: Pod, word: str) -> None:
    assert pod_status(pod) == word


def test_pod_reason_overrides_the_phase() -> None:
    pod = make_pod("a").req(cpu="1").phase("Failed").build()
    pod.status.reason = "OutOfcpu"
    assert pod_status(pod) == "OutOfcpu"


def test_evicted_pod_is_shown_as_evicted() -> None:
    pod = with_containers(make_pod("a").req(cpu="1").phase("Failed").build(), COMPLETED)
    pod.status.reason = "Evicted"
    assert pod_status(pod) == "Evicted"


def test_terminating_pod_on_a_lost_node_is_unknown() -> None:
    pod = make_pod("a").req(cpu="1").phase("Running").terminating().build()
    pod.status.reason = "NodeLost"
    assert pod_status(pod) == "Unknown"


def test_status_shows_the_first_container_reason() -> None:
    pod = with_containers(make_pod("a").req(cpu="1").req(cpu="1").phase("Running").build(), CRASHED, CREATING)
    assert pod_status(pod) == "CrashLoopBackOff"


def test_completed_and_running_containers() -> None:
    pod = make_pod("a").req(cpu="1").req(cpu="1").phase("Running").build()
    with_containers(pod, COMPLETED, RUNNING, ready=True)
    assert pod_status(pod) == "NotReady"
    pod.status.conditions.add(type="Ready", status="True")
    assert pod_status(pod) == "Running"
    assert pod_readiness(pod) == (1, 2)


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ((COMPLETED, RUNNING), "Init:1/2"),
        ((RUNNING, 'waiting { reason: "PodInitializing" }'), "Init:0/2"),
        ((CRASHED, 'waiting { reason: "PodInitializing" }'), "Init:CrashLoopBackOff"),
        (("terminated { exitCode: 2 }", RUNNING), "Init:ExitCode:2"),
        (('terminated { exitCode: 2 reason: "Error" }', RUNNING), "Init:Error"),
        ((COMPLETED, COMPLETED), "ContainerCreating"),
    ],
)
def test_status_of_init_containers(states: tuple[str, str], word: str) -> None:
    pod = with_containers(make_pod("a").init().init().req(cpu="1").build(), *states, init=True)
    assert pod_status(with_containers(pod, CREATING)) == word


def test_sidecars_count_as_containers() -> None:
    pod = with_containers(make_pod("a").init(sidecar=True).req(cpu="1").build(), RUNNING, init=True, ready=True)
    with_containers(pod, RUNNING, ready=True)
    pod.status.phase = "Running"
    assert pod_readiness(pod) == (0, 2)  # the sidecar has not started: the pod is still initializing
    pod.status.initContainerStatuses[0].started = True
    assert pod_readiness(pod) == (2, 2)
    assert pod_status(pod) == "Running"


def test_restarts_show_the_time_of_the_last_one() -> None:
    pod = with_containers(make_pod("a").req(cpu="1").req(cpu="1").phase("Running").build(), RUNNING, CRASHED)
    assert format_restarts(pod, NOW) == "0"
    first, second = pod.status.containerStatuses
    first.restartCount, second.restartCount = 1, 2
    assert format_restarts(pod, NOW) == "3"
    first.lastState.terminated.finishedAt.seconds = 700
    second.lastState.terminated.finishedAt.seconds = 900
    assert format_restarts(pod, NOW) == "3 (100s ago)"


def test_pod_row_cells() -> None:
    pod = make_pod("a").req(cpu="1").created(NOW - 5).build()
    assert pod_row(pod, NOW) == ("a", "0/1", "Pending", "0", "5s", "<none>", "<none>", "<none>", "<none>")
    pod.spec.nodeName, pod.status.podIP = "n", "10.0.0.1"
    assert pod_row(pod, NOW)[-4:] == ("10.0.0.1", "n", "<none>", "<none>")


def test_true_readiness_gates_are_counted() -> None:
    pod = make_pod("a").readiness_gate("a").readiness_gate("b").readiness_gate("c").build()
    for gate, said in (("a", "True"), ("b", "False"), ("other", "True")):
        pod.status.conditions.add(type=gate, status=said)
    assert pod_row(pod, NOW)[-1] == "1/3"
