"""Ephemeral containers: they start in a running pod, are never restarted, and the pod does not depend on them."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerStatus
from pinnace.kubelet.lifecycle import PodPhase
from pinnace.kubelet.lifecycle.plan import get_template
from tests.builders import make_pod
from tests.unit.kubelet.machine import Machine


def debug(machine: Machine, name: str = "debugger") -> Machine:
    """Add an ephemeral container, as `kubectl debug` does."""
    common = machine.pod.spec.ephemeralContainers.add().ephemeralContainerCommon
    common.name, common.image = name, "busybox"
    machine.template = get_template(machine.pod)
    machine.step()
    return machine


def reported(machine: Machine, name: str = "debugger") -> ContainerStatus:
    return next(item for item in machine.status.ephemeralContainerStatuses if item.name == name)


def test_ephemeral_container_starts_in_a_running_pod_that_stays_ready() -> None:
    machine = debug(Machine(make_pod("a").req()).wait(5))
    assert machine.alive == ["c0", "debugger"]
    status = reported(machine)
    assert (status.state.running.startedAt.seconds, status.ready, status.restartCount) == (5_005, False, 0)
    assert machine.condition("Ready").status == "True" and machine.phase is PodPhase.RUNNING


def test_ephemeral_container_starts_before_init_containers_have_finished() -> None:
    machine = debug(Machine(make_pod("a").init().req().declare(run_seconds__i0=100)))
    assert machine.alive == ["i0", "debugger"]


@pytest.mark.parametrize("code", [0, 3])
def test_ephemeral_container_that_ends_is_not_restarted_and_fails_nothing(code: int) -> None:
    machine = debug(Machine(make_pod("a").req().declare(run_seconds__debugger=4, exit_code__debugger=code)))
    machine.wait(400)
    terminated = reported(machine).state.terminated
    assert (terminated.exitCode, terminated.reason) == (code, "Error" if code else "Completed")
    assert (machine.alive, machine.phase, machine.condition("Ready").status) == (["c0"], PodPhase.RUNNING, "True")


@pytest.mark.parametrize(("code", "phase"), [(0, PodPhase.SUCCEEDED), (1, PodPhase.FAILED)])
def test_pod_ends_with_its_main_containers_and_stops_ephemeral_ones(code: int, phase: PodPhase) -> None:
    pod = make_pod("a").req().restart_policy("Never").declare(run_seconds__c0=5, exit_code__c0=code)
    machine = debug(Machine(pod)).wait(60)
    assert (machine.phase, machine.alive) == (phase, [])
    assert "stop debugger 30" in machine.log
    assert reported(machine).state.HasField("terminated")


def test_deleted_pod_stops_its_ephemeral_containers() -> None:
    machine = debug(Machine(make_pod("a").req())).delete().wait(60)
    assert machine.alive == [] and "remove" in machine.log
