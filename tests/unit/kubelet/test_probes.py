"""Startup, readiness and liveness probes: when they are made, what they come to, and what its health does to a pod."""

from typing import Any

import pytest

from kubelet.lifecycle import Phase, plan_of
from kubelet.lifecycle.container import ProbeResult, probe
from kubelet.lifecycle.plan import ProbeMemory, ProbePlan
from kubelet.runtime.interface import Call, CallKind, CallView, ContainerState, ContainerView
from pinnace.api.core_v1_pb2 import ExecAction, Pod, Probe
from pinnace.api.intstr_v1_pb2 import IntOrString
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.machine import BEGIN, Machine

HANDLER = ExecAction(command=["true"])
PLAN = ProbePlan(CallKind.READINESS, HANDLER, initial_delay=5.0, period=10.0, timeout=1.0, successes=2, failures=3, grace=30.0)


def seen(*calls: CallView) -> ContainerView:
    return ContainerView("a", 0, ContainerState.RUNNING, BEGIN, None, None, None, None, calls)


def outcome(number: int, failure: str = "", *, begun: float = 0.0, takes: float = 0.0) -> CallView:
    began = BEGIN.after(begun)
    return CallView(CallKind.READINESS, number, began, began.after(takes), failure, None)


def step(memory: ProbeMemory, at: float, *calls: CallView) -> ProbeResult:
    return probe(PLAN, memory, seen(*calls), BEGIN.monotonic, BEGIN.after(at))


def test_the_first_call_comes_after_the_initial_delay() -> None:
    early = step(ProbeMemory(), 4.9)
    assert (early.call, early.wake_at) == (None, 105.0)
    assert step(ProbeMemory(), 5.0).call == Call(CallKind.READINESS, 0, HANDLER, 1.0)


def test_a_call_that_is_out_is_waited_for() -> None:
    out = CallView(CallKind.READINESS, 0, BEGIN.after(5), None, "", 105.5)
    assert step(ProbeMemory(), 30.0, out) == ProbeResult(ProbeMemory(), None, None, 105.5, "")


def test_a_call_is_counted_once_and_the_next_comes_a_period_after_its_begin() -> None:
    counted = step(ProbeMemory(), 6.0, outcome(0, begun=5, takes=0.5))
    assert (counted.memory, counted.call, counted.wake_at) == (ProbeMemory(1, 105.0, 1), None, 115.0)
    assert step(counted.memory, 6.0, outcome(0, begun=5, takes=0.5)).memory == counted.memory
    following = step(counted.memory, 15.0, outcome(0, begun=5, takes=0.5)).call
    assert following is not None
    assert following.number == 1


def test_a_call_that_took_longer_than_the_period_is_followed_at_once() -> None:
    late = step(ProbeMemory(), 25.0, outcome(0, "timed out", begun=5, takes=20))
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
def test_a_verdict_takes_as_many_in_a_row_as_the_threshold(outcomes: str, verdicts: list[bool | None]) -> None:
    memory, found, complaints = ProbeMemory(), [], 0
    for number, sign in enumerate(outcomes):
        probed = step(memory, 5.0, outcome(number, "" if sign == "+" else "refused"))
        memory = probed.memory
        found.append(probed.verdict)
        complaints += probed.failure == "refused"
    assert found == verdicts
    assert complaints == sum(pair in ("+-", " -") for pair in map("".join, zip(" " + outcomes, outcomes, strict=False)))


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


def told(machine: Machine, word: str) -> list[str]:
    return [each for each in machine.told if each.startswith(word)]


def test_a_container_is_ready_from_when_its_readiness_probe_succeeds_and_not_when_it_fails() -> None:
    pod = probed(readinessProbe=exec_probe(periodSeconds=5, failureThreshold=2))
    machine = Machine(pod.declare(ready_after_seconds=12, unready_after_seconds=31))
    assert (machine.phase, machine.state.ready.holds, machine.container("c0").started) == (Phase.RUNNING, False, True)
    assert not machine.wait(14).container("c0").ready
    machine.wait(1)
    assert (machine.container("c0").ready, machine.state.ready.holds) == (True, True)
    assert machine.wait(24).state.ready.holds, "it has failed once, at 35 s"
    machine.wait(1)
    assert machine.condition("Ready").message == "containers with unready status: [c0]"
    assert machine.condition("Ready").lastTransitionTime.seconds == 5_040
    assert told(machine, "Unhealthy") == ["Unhealthy: Readiness probe failed: exit code 1"] * 2, "one a row, not one a call"
    assert (machine.alive, told(machine, "stop")) == (["c0"], [])


def test_readiness_and_liveness_wait_for_the_startup_probe() -> None:
    pod = probed(
        startupProbe=exec_probe(periodSeconds=4, failureThreshold=30),
        readinessProbe=exec_probe(),
        livenessProbe=exec_probe(initialDelaySeconds=6),
    )
    machine = Machine(pod.declare(started_after_seconds=10)).wait(11)
    assert {each for each in machine.told if each.startswith("call")} == {"call c0 Startup probe"}
    machine.wait(1)
    assert (machine.container("c0").started, machine.container("c0").ready) == (True, True)
    assert not told(machine, "call c0 Liveness"), "its delay counts from here"
    assert told(machine.wait(6), "call c0 Liveness") == ["call c0 Liveness probe"]
    assert len(told(machine.wait(60), "call c0 Startup")) == 4, "a container that has started is not asked again"


@pytest.mark.parametrize(
    ("kind", "probes", "declared", "fails_at"),
    [
        ("liveness", {"livenessProbe": exec_probe(failureThreshold=2)}, {"unhealthy_after_seconds": 15}, 30),
        ("startup", {"startupProbe": exec_probe(failureThreshold=3)}, {"started_after_seconds": 999}, 20),
    ],
)
def test_a_container_that_fails_is_stopped_and_started_again(
    kind: str, probes: dict[str, Probe], declared: dict[str, float], fails_at: float
) -> None:
    machine = Machine(probed("OnFailure", **probes).declare(stop_seconds=4, **declared)).wait(fails_at - 0.1)
    assert not told(machine, "stop")
    machine.wait(0.1)
    assert told(machine, "Killing") == [f"Killing: Container c0 failed {kind} probe, will be restarted"]
    assert told(machine, "stop") == ["stop c0 30"]
    machine.wait(4)
    status = machine.container("c0")
    assert (status.restartCount, status.state.HasField("running")) == (1, True), "whatever its code: it is 0"
    assert machine.phase is Phase.RUNNING


def test_container_that_succeeds_before_it_is_seen_running_is_completed() -> None:
    pod = probed("OnFailure", livenessProbe=exec_probe(failureThreshold=1)).declare(start_seconds=1, unhealthy_after_seconds=5)
    machine = Machine(pod).wait(11)
    assert told(machine, "start") == ["start c0", "start c0"]
    machine.now = machine.now.after(1)
    machine.runtime.crash(machine.uid, "c0", 1, 0, machine.now)
    machine.step()
    status = machine.container("c0")
    assert (machine.phase, status.state.terminated.reason, status.restartCount) == (Phase.SUCCEEDED, "Completed", 1)


def test_a_pod_that_restarts_nothing_ends_when_its_container_is_unhealthy() -> None:
    machine = Machine(probed("Never", livenessProbe=exec_probe(failureThreshold=1)).declare(unhealthy_after_seconds=5))
    machine.wait(10)
    assert told(machine, "Killing") == ["Killing: Container c0 failed liveness probe"]
    assert (machine.phase, machine.alive) == (Phase.SUCCEEDED, [])


def test_a_probe_may_give_less_grace_than_the_pod() -> None:
    liveness = exec_probe(failureThreshold=1, terminationGracePeriodSeconds=7)
    machine = Machine(probed(livenessProbe=liveness).declare(unhealthy_after_seconds=0, stop_seconds=60))
    assert told(machine, "stop") == ["stop c0 7"]
    assert machine.wait(7).container("c0").lastState.terminated.exitCode == 137


def test_a_probe_that_takes_longer_than_its_timeout_has_failed() -> None:
    machine = Machine(probed(readinessProbe=exec_probe(timeoutSeconds=2)).declare(probe_seconds=3)).wait(2)
    assert told(machine, "Unhealthy") == ["Unhealthy: Readiness probe failed: timed out after 2 s"]


def test_a_new_attempt_is_unready_until_it_is_probed() -> None:
    pod = probed(readinessProbe=exec_probe(initialDelaySeconds=3)).declare(run_seconds=5, start_seconds=1)
    machine = Machine(pod).wait(4)
    assert machine.container("c0").ready
    machine.wait(3)
    status = machine.container("c0")
    assert (status.restartCount, status.ready, status.state.HasField("running")) == (1, False, True)
    assert machine.wait(3).container("c0").ready


def test_a_pod_that_is_deleted_is_probed_for_readiness_only() -> None:
    pod = probed(readinessProbe=exec_probe(), livenessProbe=exec_probe()).declare(stop_seconds=25, unhealthy_after_seconds=1)
    machine = Machine(pod).delete(grace=30).wait(24)
    assert len(told(machine, "call c0 Readiness")) == 3
    assert len(told(machine, "call c0 Liveness")) == 1


def test_a_container_that_is_stopped_because_it_is_unhealthy_is_probed_for_readiness_only() -> None:
    pod = probed(readinessProbe=exec_probe(failureThreshold=1), livenessProbe=exec_probe(failureThreshold=1))
    machine = Machine(pod.declare(stop_seconds=25, unhealthy_after_seconds=1, unready_after_seconds=12)).wait(19)
    assert machine.alive == ["c0"] and machine.container("c0").ready
    machine.wait(1)
    assert machine.alive == ["c0"] and not machine.container("c0").ready and not machine.state.ready.holds
    assert len(told(machine, "call c0 Liveness")) == 2


def test_a_restarted_kubelet_keeps_what_was_ready_and_goes_on_probing() -> None:
    pod = probed(startupProbe=exec_probe(), readinessProbe=exec_probe(), livenessProbe=exec_probe(failureThreshold=1))
    machine = Machine(pod.declare(unhealthy_after_seconds=25)).wait(12)
    before = machine.status
    machine.restart()
    assert machine.status == before
    assert machine.alive == ["c0"]
    assert len(told(machine, "call c0 Startup")) == 1, "it had started"
    machine.wait(20)
    assert told(machine, "Killing") == ["Killing: Container c0 failed liveness probe, will be restarted"]


def test_the_ports_of_probes_are_numbers() -> None:
    pod = Pod()
    container = pod.spec.containers.add(name="c0")
    container.ports.add(name="web", containerPort=8080)
    container.readinessProbe.handler.httpGet.port.CopyFrom(IntOrString(type=1, strVal="web"))
    container.livenessProbe.handler.tcpSocket.port.CopyFrom(IntOrString(type=1, strVal="lost"))
    container.startupProbe.handler.tcpSocket.port.CopyFrom(IntOrString(intVal=99))

    def port(probe: ProbePlan | None) -> Any:
        assert probe is not None
        return probe.handler.port.intVal  # type: ignore[union-attr]

    (plan,) = plan_of(pod.spec).main
    assert [port(each) for each in (plan.readiness, plan.liveness, plan.startup)] == [8080, 0, 99]


@pytest.mark.parametrize("kind", ["livenessProbe", "startupProbe"])
def test_a_probe_of_a_port_that_the_container_does_not_have_stops_nothing(kind: str) -> None:
    """It fails, as with processes, where nobody answers at port 0."""
    probe = Probe(periodSeconds=1, failureThreshold=1)
    probe.handler.tcpSocket.port.CopyFrom(IntOrString(type=1, strVal="lost"))
    machine = Machine(probed(**{kind: probe}).declare(unhealthy_after_seconds=0, started_after_seconds=900)).wait(600)
    assert (machine.alive, told(machine, "stop"), machine.container("c0").restartCount) == (["c0"], [], 0)
    assert machine.container("c0").started is (kind == "livenessProbe")
    assert len(told(machine, "Unhealthy")) == 1
