"""postStart and preStop hooks: ordering, failures and their share of the grace period."""

import pytest

from pinnace.api.pods import EVICTED
from pinnace.kubelet.lifecycle import PodPhase, evict_pod_state
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.machine import Machine


def hooked(*hooks: str, policy: str = "Always") -> PodBuilder:
    """A pod whose container c0 has these hooks, and whose c1 has none."""
    builder = make_pod("a").req().req().restart_policy(policy)
    for hook in hooks:
        getattr(builder.main_containers()[0].lifecycle, hook).exec.command.append("true")
    return builder


def test_next_container_starts_after_the_post_start_hook() -> None:
    machine = Machine(hooked("postStart").declare(post_start_seconds=3))
    assert machine.log == ["start c0", "call c0 PostStartHook"]
    assert machine.container("c0").state.waiting.reason == "ContainerCreating"
    assert machine.phase is PodPhase.PENDING
    machine.wait(3)
    assert machine.alive == ["c0", "c1"]
    assert (machine.phase, machine.state.ready.holds) == (PodPhase.RUNNING, True)
    assert machine.container("c0").started


def test_failed_post_start_hook_restarts_the_container() -> None:
    machine = Machine(hooked("postStart").declare(post_start_seconds=1, post_start_exit_code=1)).wait(1)
    assert "FailedPostStartHook: PostStartHook failed" in machine.log
    assert "Killing: FailedPostStartHook" in machine.log
    machine.wait(1)
    assert machine.container("c0").state.waiting.reason == "CrashLoopBackOff"
    assert machine.wait(10).container("c0").restartCount == 2


def test_pre_stop_hook_reduces_the_grace_period_of_its_container() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=12, stop_seconds=60)).delete(grace=30)
    assert machine.log[-4:] == [
        "Killing: Stopping container c0", "call c0 PreStopHook", "Killing: Stopping container c1", "stop c1 30",
    ]  # fmt: skip
    machine.wait(12)
    assert machine.log[-1] == "stop c0 18"
    machine.wait(18)
    assert (machine.alive, machine.phase) == ([], PodPhase.FAILED)


def test_pre_stop_hook_that_exhausts_the_grace_period_leaves_two_seconds() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=99, stop_seconds=1)).delete(grace=10).wait(10)
    assert machine.log[-2:] == ["FailedPreStopHook: PreStopHook failed", "stop c0 2"]
    machine.wait(1)
    assert machine.phase is PodPhase.SUCCEEDED


def test_failed_pre_stop_hook_is_reported_and_does_not_delay() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=1, pre_stop_exit_code=7)).delete().wait(1)
    assert machine.log[-3:] == ["FailedPreStopHook: PreStopHook failed", "stop c0 29", "remove"]


def test_shorter_grace_period_ends_a_pre_stop_hook() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=25)).delete(grace=30).wait(1).delete(grace=3).wait(3)
    assert machine.log[-2:] == ["stop c0 2", "remove"]


@pytest.mark.parametrize("grace", [0, 30])
def test_zero_grace_period_skips_the_pre_stop_hook(grace: int) -> None:
    machine = Machine(hooked("preStop").declare(stop_seconds=5)).delete(grace=grace)
    assert ("call c0 PreStopHook" in machine.log) == (grace > 0)
    assert (machine.alive == []) == (grace == 0)


def test_eviction_allows_one_second_for_the_pre_stop_hook() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=9, stop_seconds=1))
    machine.state = evict_pod_state(machine.state, EVICTED, "low on memory", machine.now)
    machine.step()
    assert "call c0 PreStopHook" in machine.log
    assert machine.wait(1).log[-1] == "stop c0 2"
    assert machine.wait(1).phase is PodPhase.FAILED


def test_sleep_hook_delays_the_stop() -> None:
    builder = make_pod("a").req()
    builder.main_containers()[0].lifecycle.preStop.sleep.seconds = 4
    machine = Machine(builder).delete(grace=30).wait(3.9)
    assert machine.alive == ["c0"]
    assert machine.wait(0.1).phase is PodPhase.SUCCEEDED


def test_container_that_ends_during_its_hook_is_not_stopped() -> None:
    machine = Machine(hooked("preStop").declare(pre_stop_seconds=20, run_seconds__c0=5, exit_code__c0=0)).delete(grace=30)
    machine.wait(5)
    assert "stop c0" not in " ".join(machine.log)
    assert machine.phase is PodPhase.SUCCEEDED


def test_unhealthy_container_is_stopped_after_its_pre_stop_hook() -> None:
    builder = hooked("preStop").declare(pre_stop_seconds=2, unhealthy_after_seconds=0)
    liveness = builder.main_containers()[0].livenessProbe
    liveness.failureThreshold = 1
    liveness.handler.exec.command.append("true")
    machine = Machine(builder)
    assert machine.log[-1] == "call c0 PreStopHook"
    machine.wait(2)
    assert machine.container("c0").restartCount == 1


def test_restarted_kubelet_repeats_only_unfinished_hooks() -> None:
    machine = Machine(hooked("postStart", "preStop").declare(post_start_seconds=1, pre_stop_seconds=5)).wait(2)
    machine.restart()
    assert machine.log.count("call c0 PostStartHook") == 1
    machine.delete().wait(2).restart()
    assert machine.log.count("call c0 PreStopHook") == 2
    assert machine.wait(5).phase is PodPhase.SUCCEEDED
