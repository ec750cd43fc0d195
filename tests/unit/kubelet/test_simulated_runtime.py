"""The fake runtime: behavior declared by annotations, over time."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerState as ContainerStateMessage
from pinnace.api.core_v1_pb2 import Pod, SleepAction
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle import accept_pod, advance_pod
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.pod_record import compute_desired_state
from pinnace.kubelet.runtime.interface import (
    CallKind,
    ContainerCall,
    ContainerState,
    ContainerView,
    Moment,
    UnsupportedPod,
    reported_exit,
)
from pinnace.kubelet.runtime.simulated_runtime import KILLED, SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour, annotated_behaviour
from pinnace.kubelet.status import build_status_update
from tests.builders import make_pod

NOW = Moment(100.0, 5_000.0)
UID = "uid-default-a"
ADDRESSES = PodAddresses("h", "p")


def pod(**annotations: str) -> Pod:
    built = make_pod("a").req(cpu="1").build()
    for name, value in annotations.items():
        built.metadata.annotations["pinnace.io/" + name.replace("_", "-")] = value
    return built


def at(seconds: float) -> Moment:
    return NOW.after(seconds)


def started(default: Behaviour = Behaviour(), **annotations: str) -> SimulatedRuntime:  # noqa: B008 (immutable)
    runtime = SimulatedRuntime(default)
    return prepared(pod(**annotations), runtime)


def prepared(source: Pod, runtime: SimulatedRuntime) -> SimulatedRuntime:
    """Prepare the pod and start its container."""
    runtime.prepare_pod(source, ADDRESSES)
    runtime.start(UID, "c0", 0, NOW)
    return runtime


def see(runtime: SimulatedRuntime, seconds: float) -> ContainerView:
    (view,) = runtime.observe_containers(UID, at(seconds))
    return view


def test_container_without_annotations_runs_at_once_and_forever() -> None:
    view = see(started(), 1e9)
    assert (view.state, view.started, view.changes_at) == (ContainerState.RUNNING, NOW, None)


def test_annotations_override_the_defaults_of_the_process() -> None:
    default = Behaviour(start_seconds=9.0, run_seconds=8.0, exit_code=7)
    declared = annotated_behaviour(pod(start_seconds="1.5", exit_code="3"), default)
    assert declared is not None
    assert declared.behaviour_of("c0") == Behaviour(start_seconds=1.5, run_seconds=8.0, exit_code=3)
    assert annotated_behaviour(pod(), default) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("run_seconds", "soon"), ("run_seconds", "-1"), ("start_seconds", "nan"), ("stop_seconds", "inf"), ("exit_code", "256")],
)
def test_invalid_annotation_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(UnsupportedPod, match=f'pinnace.io/{name.replace("_", "-")}: "{value}" is not'):
        SimulatedRuntime(Behaviour()).prepare_pod(pod(**{name: value}), ADDRESSES)


def test_container_is_created_runs_and_exits_as_declared() -> None:
    runtime = started(start_seconds="2", run_seconds="3", exit_code="4")
    assert (see(runtime, 1.9).state, see(runtime, 1.9).changes_at) == (ContainerState.CREATED, 102.0)
    assert (see(runtime, 2.0).state, see(runtime, 2.0).changes_at) == (ContainerState.RUNNING, 105.0)
    exited = see(runtime, 5.0)
    assert exited.state is ContainerState.EXITED
    assert exited.exit is not None
    assert (exited.exit.code, exited.exit.started, exited.exit.finished) == (4, at(2), at(5))


def test_next_attempt_has_the_last_exit() -> None:
    runtime = started(run_seconds="3", exit_code="4")
    ended = see(runtime, 3).exit
    runtime.start(UID, "c0", 1, at(10))
    view = see(runtime, 10)
    assert (view.attempt, view.state, view.started, view.last_exit) == (1, ContainerState.RUNNING, at(10), ended)


@pytest.mark.parametrize(
    ("stop_seconds", "grace", "ends", "code"),
    [("0", 30.0, 0.0, 0), ("5", 30.0, 5.0, 0), ("60", 30.0, 30.0, KILLED), ("0", 0.0, 0.0, KILLED)],
)
def test_stop_takes_the_declared_time_up_to_the_grace_period(stop_seconds: str, grace: float, ends: float, code: int) -> None:
    runtime = started(stop_seconds=stop_seconds)
    runtime.stop(UID, "c0", grace, at(10))
    view = see(runtime, 10 + ends)
    assert view.exit is not None
    assert (view.exit.code, view.exit.finished, view.stop_grace) == (code, at(10 + ends), grace)
    if ends:
        assert see(runtime, 10 + ends - 0.1).state is ContainerState.RUNNING


def test_later_stop_can_only_shorten_the_grace_period() -> None:
    runtime = started(stop_seconds="60")
    runtime.stop(UID, "c0", 30.0, at(0))
    runtime.stop(UID, "c0", 5.0, at(1))
    assert see(runtime, 1).changes_at == at(6).monotonic
    runtime.stop(UID, "c0", 50.0, at(2))
    assert see(runtime, 2).changes_at == at(6).monotonic


def test_stop_before_the_start_kills_and_after_the_end_changes_nothing() -> None:
    early = started(start_seconds="5")
    early.stop(UID, "c0", 30.0, at(1))
    view = see(early, 1)
    assert view.exit is not None
    assert (view.exit.code, view.exit.finished) == (KILLED, at(1))

    late = started(run_seconds="1", exit_code="3")
    ended = see(late, 2).exit
    late.stop(UID, "c0", 30.0, at(2))
    assert see(late, 3).exit == ended


def test_removed_pod_has_no_containers() -> None:
    runtime = started()
    runtime.remove(UID)
    assert not runtime.observe_containers(UID, NOW)


def restarted(runtime: SimulatedRuntime, source: Pod, seconds: float) -> SimulatedRuntime:
    """The runtime of the next process, which knows only the reported status."""
    template = get_template(source)
    views = runtime.observe_containers(UID, at(seconds))
    state = advance_pod(compute_desired_state(source, template), accept_pod(template.plan, NOW), views, at(seconds)).state
    source.status.CopyFrom(build_status_update(source, "1", template, state, views, ADDRESSES).status)
    fresh = SimulatedRuntime(Behaviour())
    fresh.adopt_pod(source, at(seconds))
    return fresh


def test_restarted_process_continues_running_containers() -> None:
    source = pod(run_seconds="60", exit_code="3")
    runtime = prepared(source, SimulatedRuntime(Behaviour()))
    fresh = restarted(runtime, source, 10)
    assert see(fresh, 10) == see(runtime, 10)
    assert see(fresh, 60) == see(runtime, 60)


def test_restarted_process_keeps_exits_and_restarts() -> None:
    source = pod(run_seconds="1", exit_code="3")
    runtime = prepared(source, SimulatedRuntime(Behaviour()))
    runtime.start(UID, "c0", 1, at(1))  # the container is in back-off now
    fresh = restarted(runtime, source, 3)
    assert see(fresh, 3).exit == see(runtime, 3).exit
    assert see(fresh, 3).attempt == 1

    runtime.start(UID, "c0", 2, at(12))
    fresh = restarted(runtime, source, 12.5)
    assert see(fresh, 12.5) == see(runtime, 12.5)


def test_restarted_process_keeps_the_reason_of_an_exit() -> None:
    state = ContainerStateMessage()
    state.terminated.exitCode, state.terminated.reason, state.terminated.message = 137, "OOMKilled", "512Mi"
    remembered = reported_exit(state, NOW)
    assert remembered is not None
    assert (remembered.code, remembered.reason, remembered.message) == (137, "OOMKilled", "512Mi")
    state.terminated.reason = "Error"
    assert reported_exit(state, NOW) == remembered._replace(reason=""), "the reason is derived from the code"


def test_container_that_had_not_started_is_not_adopted() -> None:
    source = pod(start_seconds="60")
    runtime = prepared(source, SimulatedRuntime(Behaviour()))
    assert not restarted(runtime, source, 1).observe_containers(UID, at(1))


def test_restarted_process_ignores_annotations_invalidated_after_admission() -> None:
    source = pod()
    runtime = started()
    source.metadata.annotations["pinnace.io/run-seconds"] = "oops"
    assert see(restarted(runtime, source, 5), 5).state is ContainerState.RUNNING


def test_sleep_hook_takes_its_time_and_a_later_call_replaces_it() -> None:
    runtime = started()
    runtime.call(UID, "c0", ContainerCall(CallKind.PRE_STOP, 0, SleepAction(seconds=3), timeout=30.0), at(1))
    (begun,) = see(runtime, 3.9).calls
    assert (begun.ended, begun.changes_at) == (None, at(4).monotonic)
    (ended,) = see(runtime, 4).calls
    assert (ended.ended, ended.failure) == (at(4), "")

    runtime.call(UID, "c0", ContainerCall(CallKind.PRE_STOP, 1, SleepAction(seconds=3), timeout=2.0), at(5))
    (broken_off,) = see(runtime, 7).calls
    assert (broken_off.number, broken_off.ended, broken_off.failure) == (1, at(7), "timed out after 2 s")
