"""Startup, readiness and liveness probes: schedule, results and their effect on a pod."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import ExecAction, Pod, Probe
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.kubelet.lifecycle import PodPhase, build_pod_plan
from pinnace.kubelet.lifecycle.container import ProbeResult, advance_probe
from pinnace.kubelet.lifecycle.plan import ProbePlan, ProbeState
from pinnace.kubelet.runtime.interface import CallKind, CallView, ContainerCall, ContainerState, ContainerView
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.machine import BEGIN, Machine

HANDLER = ExecAction(command=["true"])
PLAN = ProbePlan(CallKind.READINESS, HANDLER, initial_delay=5.0, period=10.0, timeout=1.0, successes=2, failures=3, grace=30.0)


def seen(*calls: CallView) -> ContainerView:
    return ContainerView("a", 0, ContainerState.RUNNING, BEGIN, None, None, None, None, calls)


def outcome(number: int, failure: str = "", *, begun: float = 0.0, takes: float = 0.0) -> CallView:
    began = BEGIN.after(begun)
    return CallView(CallKind.READINESS, number, began, began.after(takes), failure, None)


def step(memory: ProbeState, at: float, *calls: CallView) -> ProbeResult:
    return advance_probe(PLAN, memory, seen(*calls), BEGIN.monotonic, BEGIN.after(at))


def test_first_call_is_made_after_the_initial_delay() -> None:
    early = step(ProbeState(), 4.9)
    assert (early.call, early.wake_at) == (None, 105.0)
    assert step(ProbeState(), 5.0).call == ContainerCall(CallKind.READINESS, 0, HANDLER, 1.0)


def test_pending_call_is_awaited() -> None:
    out = CallView(CallKind.READINESS, 0, BEGIN.after(5), None, "", 105.5)
    assert step(ProbeState(), 30.0, out) == ProbeResult(ProbeState(), None, None, 105.5, "")


def test_call_is_counted_once_and_the_next_follows_after_the_period() -> None:
    counted = step(ProbeState(), 6.0, outcome(0, begun=5, takes=0.5))
    assert (counted.memory, counted.call, counted.wake_at) == (ProbeState(1, 105.0, 1), None, 115.0)
    assert step(counted.memory, 6.0, outcome(0, begun=5, takes=0.5)).memory == counted.memory
    following = step(counted.memory, 15.0, outcome(0, begun=5, takes=0.5)).call
    assert following is not None
    assert following.number == 1


def test_call_longer_than_the_period_is_followed_at_once() -> None:
    late = step(ProbeState(), 25.0, outcome(0, "timed out", begun=5, takes=20))
    assert late.call is not None
    assert late.memory.counted == 1


@pytest.mark.parametrize(
    ("outcomes", "verdicts"),
    [
        ("++", [None, True]),
        ("+-+", [None, None, None]),  # not in a row
        ("---", [None, None, False]),
        ("--+---", [None, None, None, None, None, False]),
        ("++--+-", [None, True, None, None, None, None]),
        ("+++", [None, True, True]),
    ],
)
def test_verdict_needs_consecutive_results_up_to_the_threshold(outcomes: str, verdicts: list[bool | None]) -> None:
    memory, result, events = ProbeState(), [], 0
    for number, sign in enumerate(outcomes):
        probed = step(memory, 5.0, outcome(number, "" if sign == "+" else "refused"))
        memory = probed.memory
        result.append(probed.verdict)
        events += probed.failure == "refused"
    assert result == verdicts
    assert events == sum(pair in ("+-", " -") for pair in map("".join, zip(" " + outcomes, outcomes, strict=False)))


def exec_probe(**numbers: Any) -> Probe:
    probe = Probe(**numbers)
    probe.handler.exec.command.append("true")
    return probe


def probed(policy: str = "Always", **probes: Probe) -> PodBuilder:
    """A pod whose container c0 has these probes."""
    builder = make_pod("a").req().restart_policy(policy)
    for field, each in probes.items():
        getattr(builder.main_containers()[0], field).CopyFrom(each)
    return builder


def log(machine: Machine, word: str) -> list[str]:
    return [item for item in machine.log if item.startswith(word)]


def test_container_readiness_follows_its_probe() -> None:
    pod = probed(readinessProbe=exec_probe(periodSeconds=5, failureThreshold=2))
    machine = Machine(pod.declare(ready_after_seconds=12, unready_after_seconds=31))
    assert (machine.phase, machine.state.ready.holds, machine.container("c0").started) == (PodPhase.RUNNING, False, True)
    assert not machine.wait(14).container("c0").ready
    machine.wait(1)
    assert (machine.container("c0").ready, machine.state.ready.holds) == (True, True)
    assert machine.wait(24).state.ready.holds, "one failure, at 35 s"
    machine.wait(1)
    assert machine.condition("Ready").message == "containers with unready status: [c0]"
    assert machine.condition("Ready").lastTransitionTime.seconds == 5_040
    assert log(machine, "Unhealthy") == ["Unhealthy: Readiness probe failed: exit code 1"] * 2, (
        "one event for each series of failures"
    )
    assert (machine.alive, log(machine, "stop")) == (["c0"], [])


def test_readiness_and_liveness_wait_for_the_startup_probe() -> None:
    pod = probed(
        startupProbe=exec_probe(periodSeconds=4, failureThreshold=30),
        readinessProbe=exec_probe(),
        livenessProbe=exec_probe(initialDelaySeconds=6),
    )
    machine = Machine(pod.declare(started_after_seconds=10)).wait(11)
    assert {item for item in machine.log if item.startswith("call")} == {"call c0 Startup probe"}
    machine.wait(1)
    assert (machine.container("c0").started, machine.container("c0").ready) == (True, True)
    assert not log(machine, "call c0 Liveness"), "the initial delay begins at the start"
    assert log(machine.wait(6), "call c0 Liveness") == ["call c0 Liveness probe"]
    assert len(log(machine.wait(60), "call c0 Startup")) == 4, "a started container is not probed again"


@pytest.mark.parametrize(
    ("kind", "probes", "declared", "fails_at"),
    [
        ("liveness", {"livenessProbe": exec_probe(failureThreshold=2)}, {"unhealthy_after_seconds": 15}, 30),
        ("startup", {"startupProbe": exec_probe(failureThreshold=3)}, {"started_after_seconds": 999}, 20),
    ],
)
def test_container_with_a_failed_liveness_or_startup_probe_is_restarted(
    kind: str, probes: dict[str, Probe], declared: dict[str, float], fails_at: float
) -> None:
    machine = Machine(probed("OnFailure", **probes).declare(stop_seconds=4, **declared)).wait(fails_at - 0.1)
    assert not log(machine, "stop")
    machine.wait(0.1)
    assert log(machine, "Killing") == [f"Killing: Container c0 failed {kind} probe, will be restarted"]
    assert log(machine, "stop") == ["stop c0 30"]
    machine.wait(4)
    status = machine.container("c0")
    assert (status.restartCount, status.state.HasField("running")) == (1, True), (
        "the container is restarted despite exit code 0"
    )
    assert machine.phase is PodPhase.RUNNING


def test_container_that_succeeds_before_it_is_seen_running_is_completed() -> None:
    pod = probed("OnFailure", livenessProbe=exec_probe(failureThreshold=1)).declare(start_seconds=1, unhealthy_after_seconds=5)
    machine = Machine(pod).wait(11)
    assert log(machine, "start") == ["start c0", "start c0"]
    machine.now = machine.now.after(1)
    machine.runtime.crash_container(machine.uid, "c0", 1, 0, machine.now)
    machine.step()
    status = machine.container("c0")
    assert (machine.phase, status.state.terminated.reason, status.restartCount) == (PodPhase.SUCCEEDED, "Completed", 1)


def test_unhealthy_container_ends_a_pod_with_restart_policy_never() -> None:
    machine = Machine(probed("Never", livenessProbe=exec_probe(failureThreshold=1)).declare(unhealthy_after_seconds=5))
    machine.wait(10)
    assert log(machine, "Killing") == ["Killing: Container c0 failed liveness probe"]
    assert (machine.phase, machine.alive) == (PodPhase.SUCCEEDED, [])


def test_probe_can_shorten_the_grace_period() -> None:
    liveness = exec_probe(failureThreshold=1, terminationGracePeriodSeconds=7)
    machine = Machine(probed(livenessProbe=liveness).declare(unhealthy_after_seconds=0, stop_seconds=60))
    assert log(machine, "stop") == ["stop c0 7"]
    assert machine.wait(7).container("c0").lastState.terminated.exitCode == 137


def test_probe_fails_after_its_timeout() -> None:
    machine = Machine(probed(readinessProbe=exec_probe(timeoutSeconds=2)).declare(probe_seconds=3)).wait(2)
    assert log(machine, "Unhealthy") == ["Unhealthy: Readiness probe failed: timed out after 2 s"]


def test_restarted_container_is_unready_until_its_probe_succeeds() -> None:
    pod = probed(readinessProbe=exec_probe(initialDelaySeconds=3)).declare(run_seconds=5, start_seconds=1)
    machine = Machine(pod).wait(4)
    assert machine.container("c0").ready
    machine.wait(3)
    status = machine.container("c0")
    assert (status.restartCount, status.ready, status.state.HasField("running")) == (1, False, True)
    assert machine.wait(3).container("c0").ready


def test_terminating_pod_is_probed_for_readiness_only() -> None:
    pod = probed(readinessProbe=exec_probe(), livenessProbe=exec_probe()).declare(stop_seconds=25, unhealthy_after_seconds=1)
    machine = Machine(pod).delete(grace=30).wait(24)
    assert len(log(machine, "call c0 Readiness")) == 3
    assert len(log(machine, "call c0 Liveness")) == 1


def test_stopping_unhealthy_container_is_probed_for_readiness_only() -> None:
    pod = probed(readinessProbe=exec_probe(failureThreshold=1), livenessProbe=exec_probe(failureThreshold=1))
    machine = Machine(pod.declare(stop_seconds=25, unhealthy_after_seconds=1, unready_after_seconds=12)).wait(19)
    assert machine.alive == ["c0"] and machine.container("c0").ready
    machine.wait(1)
    assert machine.alive == ["c0"] and not machine.container("c0").ready and not machine.state.ready.holds
    assert len(log(machine, "call c0 Liveness")) == 2


def test_restarted_kubelet_keeps_readiness_and_continues_probing() -> None:
    pod = probed(startupProbe=exec_probe(), readinessProbe=exec_probe(), livenessProbe=exec_probe(failureThreshold=1))
    machine = Machine(pod.declare(unhealthy_after_seconds=25)).wait(12)
    before = machine.status
    machine.restart()
    assert machine.status == before
    assert machine.alive == ["c0"]
    assert len(log(machine, "call c0 Startup")) == 1, "the container had started"
    machine.wait(20)
    assert log(machine, "Killing") == ["Killing: Container c0 failed liveness probe, will be restarted"]


def test_named_ports_of_probes_are_resolved() -> None:
    pod = Pod()
    container = pod.spec.containers.add(name="c0")
    container.ports.add(name="web", containerPort=8080)
    container.readinessProbe.handler.httpGet.port.CopyFrom(IntOrString(type=1, strVal="web"))
    container.livenessProbe.handler.tcpSocket.port.CopyFrom(IntOrString(type=1, strVal="lost"))
    container.startupProbe.handler.tcpSocket.port.CopyFrom(IntOrString(intVal=99))

    def port(probe: ProbePlan | None) -> Any:
        assert probe is not None
        return probe.handler.port.intVal

    (plan,) = build_pod_plan(pod.spec).main
    assert [port(item) for item in (plan.readiness, plan.liveness, plan.startup)] == [8080, 0, 99]


@pytest.mark.parametrize("kind", ["livenessProbe", "startupProbe"])
def test_probe_of_an_unknown_port_restarts_nothing(kind: str) -> None:
    """The probe fails, as it does for processes, where nothing listens on port 0."""
    probe = Probe(periodSeconds=1, failureThreshold=1)
    probe.handler.tcpSocket.port.CopyFrom(IntOrString(type=1, strVal="lost"))
    machine = Machine(probed(**{kind: probe}).declare(unhealthy_after_seconds=0, started_after_seconds=900)).wait(600)
    assert (machine.alive, log(machine, "stop"), machine.container("c0").restartCount) == (["c0"], [], 0)
    assert machine.container("c0").started is (kind == "livenessProbe")
    assert len(log(machine, "Unhealthy")) == 1
