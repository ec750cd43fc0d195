"""Init containers and sidecars: the order of starts and stops, and the reported status."""

import pytest

from pinnace.kubelet.lifecycle import PodPhase
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.machine import Machine


def starts(machine: Machine) -> list[str]:
    return [words.removeprefix("start ") for words in machine.log if words.startswith("start ")]


def stops(machine: Machine) -> list[str]:
    return [words for words in machine.log if words.startswith("stop ")]


def test_init_containers_run_in_order_before_the_main_containers() -> None:
    machine = Machine(make_pod("a").init().init().req().req().declare(run_seconds__i0=2, run_seconds__i1=3))
    assert (starts(machine), machine.phase) == (["i0"], PodPhase.PENDING)
    assert starts(machine.wait(2)) == ["i0", "i1"]
    assert starts(machine.wait(2.9)) == ["i0", "i1"]
    assert starts(machine.wait(0.1)) == ["i0", "i1", "c0", "c1"]
    assert machine.phase is PodPhase.RUNNING
    assert machine.condition("Initialized").lastTransitionTime.seconds == 5_005


def test_status_of_an_initializing_pod() -> None:
    machine = Machine(make_pod("a").init().init().req().declare(run_seconds__i0=2, run_seconds__i1=3)).wait(2)
    first, second, main = (machine.container(name) for name in ("i0", "i1", "c0"))
    assert (first.state.terminated.reason, first.ready) == ("Completed", True)
    assert second.state.HasField("running")
    assert main.state.waiting.reason == "PodInitializing"
    initialized, ready = machine.condition("Initialized"), machine.condition("Ready")
    assert (initialized.status, initialized.reason) == ("False", "ContainersNotInitialized")
    assert initialized.message == "containers with incomplete status: [i1]"
    assert (ready.reason, ready.message) == ("ContainersNotReady", "containers with unready status: [c0]")


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_failed_init_container_is_retried_with_backoff(policy: str) -> None:
    machine = Machine(make_pod("a").init().req().restart_policy(policy).declare(exit_code__i0=3))
    assert starts(machine) == ["i0", "i0"]  # the first retry is immediate
    status = machine.container("i0")
    assert (status.state.waiting.reason, status.restartCount) == ("CrashLoopBackOff", 1)
    assert status.state.waiting.message == "back-off 10s restarting failed container=i0 pod=a_default(uid-default-a)"
    assert starts(machine.wait(30)) == ["i0"] * 4
    assert machine.phase is PodPhase.PENDING


def test_failed_init_container_fails_a_pod_with_restart_policy_never() -> None:
    machine = Machine(make_pod("a").init().init(sidecar=True).init().req().restart_policy("Never").declare(exit_code__i2=3))
    assert starts(machine) == ["i0", "i1", "i2"]
    assert stops(machine) == ["stop i1 30"]
    assert (machine.phases, machine.alive) == ([PodPhase.PENDING, PodPhase.FAILED], [])
    assert machine.condition("Initialized").status == "False"
    assert machine.container("c0").state.waiting.reason == "PodInitializing"


def sidecar_that_needs_a_probe(**declared: float) -> PodBuilder:
    pod = make_pod("a").init(sidecar=True).init().req().declare(**declared)
    pod.init_containers()[0].startupProbe.handler.exec.command.append("true")
    return pod


def test_container_after_a_sidecar_waits_for_its_start_only() -> None:
    machine = Machine(sidecar_that_needs_a_probe(started_after_seconds=15))
    assert starts(machine.wait(19)) == ["i0"]
    assert not machine.container("i0").started
    assert starts(machine.wait(1)) == ["i0", "i1", "c0"]
    assert machine.alive == ["i0", "c0"]
    assert machine.container("i0").started


def test_init_container_is_started_while_running_and_ready_once_done() -> None:
    machine = Machine(make_pod("a").init().req().declare(run_seconds__i0=5))
    assert (machine.container("i0").started, machine.container("i0").ready) == (True, False)
    machine.wait(5)
    assert (machine.container("i0").started, machine.container("i0").ready) == (False, True)


@pytest.mark.parametrize("sidecar", [False, True])
def test_first_init_container_reports_a_pod_that_ended_before_start(sidecar: bool) -> None:
    machine = Machine(make_pod("a").init(sidecar=sidecar).init().req(), volumes=60).delete()
    assert machine.phase is PodPhase.FAILED
    assert machine.container("i0").state.terminated.reason == "ContainerStatusUnknown"
    assert {machine.container(name).state.waiting.reason for name in ("i1", "c0")} == {"PodInitializing"}


@pytest.mark.parametrize(("sidecar", "seconds"), [(False, 15), (True, 1_000)])
def test_sidecar_crash_after_later_containers_run_delays_nothing(sidecar: bool, seconds: int) -> None:
    pod = make_pod("a").init(sidecar=True).init(sidecar=sidecar).init().req()
    machine = Machine(pod.declare(run_seconds__i0=1, run_seconds__i1=seconds, run_seconds__i2=15)).wait(32)
    assert machine.container("i0").state.waiting.reason == "CrashLoopBackOff"
    assert [name for name in starts(machine) if name != "i0"] == ["i1", "i2", "c0"]
    assert (machine.condition("Initialized").status, machine.phase) == ("True", PodPhase.RUNNING)


def test_sidecar_crash_before_later_containers_run_delays_them() -> None:
    machine = Machine(sidecar_that_needs_a_probe(started_after_seconds=15, run_seconds__i0=5)).wait(14)
    assert set(starts(machine)) == {"i0"}


def test_sidecar_is_restarted_under_any_policy_and_the_pod_is_unready_meanwhile() -> None:
    machine = Machine(make_pod("a").init(sidecar=True).req().restart_policy("Never").declare(run_seconds__i0=5))
    assert machine.state.ready.holds
    assert starts(machine.wait(11)) == ["i0", "c0", "i0"]
    assert machine.condition("Ready").message == "containers with unready status: [i0]"
    assert machine.condition("Initialized").status == "True", "an initialized pod stays initialized"
    assert starts(machine.wait(9)) == ["i0", "c0", "i0", "i0"]
    assert machine.state.ready.holds


def test_sidecars_are_stopped_in_reverse_order_after_the_main_containers() -> None:
    pod = make_pod("a").init(sidecar=True).init(sidecar=True).req().req().declare(stop_seconds=3, stop_seconds__c1=5)
    machine = Machine(pod).delete(grace=30)
    assert stops(machine) == ["stop c0 30", "stop c1 30"]
    assert stops(machine.wait(5))[2:] == ["stop i1 25"]
    assert stops(machine.wait(3))[3:] == ["stop i0 22"]
    machine.wait(3)
    assert (machine.phase, machine.alive, machine.log[-1]) == (PodPhase.SUCCEEDED, [], "remove")


def test_sidecars_get_two_seconds_after_the_grace_period() -> None:
    pod = make_pod("a").init(sidecar=True).req().declare(stop_seconds=60)
    machine = Machine(pod).delete(grace=30).wait(30)
    assert stops(machine) == ["stop c0 30", "stop i0 2"]
    assert machine.wait(2).phase is PodPhase.FAILED


def test_ordered_stop_of_sidecars_is_bounded_by_the_grace_period() -> None:
    pod = (
        make_pod("a")
        .init(sidecar=True)
        .init(sidecar=True)
        .init(sidecar=True)
        .req()
        .declare(stop_seconds=60, stop_seconds__c0=1)
    )
    machine = Machine(pod).delete(grace=10).wait(10)
    assert stops(machine) == ["stop c0 10", "stop i2 9", "stop i1 2", "stop i0 2"]
    assert machine.wait(2).log[-1] == "remove"


@pytest.mark.parametrize(("code", "phase"), [(0, PodPhase.SUCCEEDED), (1, PodPhase.FAILED)])
def test_pod_with_a_sidecar_ends_with_its_main_containers(code: int, phase: PodPhase) -> None:
    pod = make_pod("a").init(sidecar=True).req().restart_policy("Never").declare(
        run_seconds__c0=5, exit_code__c0=code, stop_seconds__i0=2
    )  # fmt: skip
    machine = Machine(pod).wait(5)
    assert (stops(machine), machine.phase) == (["stop i0 30"], PodPhase.RUNNING)
    assert machine.wait(2).phases == [PodPhase.PENDING, PodPhase.RUNNING, phase]


def test_sidecar_in_backoff_does_not_delay_the_end_of_a_pod() -> None:
    pod = make_pod("a").init(sidecar=True).req().restart_policy("Never").declare(run_seconds__i0=2, run_seconds__c0=5)
    assert Machine(pod).wait(5).phase is PodPhase.SUCCEEDED


def test_deletion_of_an_initializing_pod_starts_no_more_containers() -> None:
    machine = Machine(make_pod("a").init(sidecar=True).init().init().req().declare(run_seconds__i1=5, stop_seconds=1))
    machine.wait(1).delete(grace=30)
    assert stops(machine) == ["stop i1 30"]
    machine.wait(10)
    assert starts(machine) == ["i0", "i1"]
    assert (machine.phase, machine.log[-1]) == (PodPhase.FAILED, "remove")


def test_restarted_kubelet_continues_with_the_current_init_container() -> None:
    machine = Machine(make_pod("a").init().init(sidecar=True).init().req().declare(run_seconds__i0=2, run_seconds__i2=5))
    machine.wait(4).restart()
    assert machine.alive == ["i1", "i2"]
    assert starts(machine) == ["i0", "i1", "i2"], "no container is started twice"
    machine.wait(3).restart()
    assert starts(machine) == ["i0", "i1", "i2", "c0"]
    assert machine.restart().phase is PodPhase.RUNNING
    assert starts(machine) == ["i0", "i1", "i2", "c0"]
