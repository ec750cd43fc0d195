"""The state machine, case by case. The tests give the observed containers; time is a number."""

import pytest

from pinnace.api.scalars import to_time
from pinnace.kubelet.lifecycle import (
    TRANSITIONS,
    ConditionState,
    ContainerPlan,
    DesiredState,
    PodPhase,
    PodPlan,
    PodState,
    PodStep,
    RecordEvent,
    RemovePod,
    StartContainer,
    StopContainer,
    accept_pod,
    adopt_pod_state,
    advance_pod,
    format_duration,
    reject_pod,
    restart_backoff,
)
from pinnace.kubelet.lifecycle.container import BACKOFF, BACKOFF_MAX, BACKOFF_RESET
from pinnace.kubelet.runtime.interface import ContainerExit, ContainerState, ContainerView, Moment, to_past_moment
from tests.builders import make_pod

NOW = Moment(100.0, 5_000.0)
NEW = accept_pod(PodPlan(()), NOW)
RUNNING = PodState(PodPhase.RUNNING, NOW, ConditionState(True, NOW), ConditionState(True, NOW), ConditionState(True, NOW))


def want(*containers: str, policy: str = "Always", grace: float | None = None) -> DesiredState:
    return DesiredState(PodPlan(tuple(ContainerPlan(name, policy) for name in containers or ("a",))), grace)


def created(name: str = "a", at: float = 101.0) -> ContainerView:
    return ContainerView(name, 0, ContainerState.CREATED, None, None, None, None, at)


def running(name: str = "a", *, attempt: int = 0, stop_grace: float | None = None, ends: float | None = None) -> ContainerView:
    return ContainerView(name, attempt, ContainerState.RUNNING, NOW, None, None, stop_grace, ends)


def exited(name: str = "a", code: int = 0, *, attempt: int = 0) -> ContainerView:
    return ContainerView(name, attempt, ContainerState.EXITED, NOW, ContainerExit(code, NOW, NOW), None, None, None)


@pytest.mark.parametrize(
    ("policy", "containers", "phase"),
    [
        ("Always", [], PodPhase.PENDING),
        ("Always", [created()], PodPhase.PENDING),
        ("Always", [running()], PodPhase.RUNNING),
        ("Always", [exited()], PodPhase.RUNNING),  # is restarted
        ("Always", [exited(code=1)], PodPhase.RUNNING),
        ("OnFailure", [exited(code=1)], PodPhase.RUNNING),
        ("OnFailure", [exited()], PodPhase.SUCCEEDED),
        ("Never", [exited()], PodPhase.SUCCEEDED),
        ("Never", [exited(code=1)], PodPhase.FAILED),
    ],
)
def test_phase_of_a_pod_with_one_container(policy: str, containers: list[ContainerView], phase: PodPhase) -> None:
    assert advance_pod(want(policy=policy), NEW, containers, NOW).state.phase is phase


@pytest.mark.parametrize(
    ("policy", "a", "b", "phase"),
    [
        ("Always", running("a"), created("b"), PodPhase.PENDING),
        ("Always", running("a"), running("b"), PodPhase.RUNNING),
        ("Never", running("a"), exited("b", 1), PodPhase.RUNNING),
        ("Never", exited("a"), exited("b", 1), PodPhase.FAILED),
        ("Never", exited("a"), exited("b"), PodPhase.SUCCEEDED),
        ("OnFailure", exited("a"), exited("b", 1), PodPhase.RUNNING),
    ],
)
def test_phase_of_a_pod_with_two_containers(policy: str, a: ContainerView, b: ContainerView, phase: PodPhase) -> None:
    assert advance_pod(want("a", "b", policy=policy), NEW, [a, b], NOW).state.phase is phase


def test_new_pod_starts_all_containers() -> None:
    assert advance_pod(want("a", "b"), NEW, [], NOW) == PodStep(NEW, None, (StartContainer("a", 0), StartContainer("b", 0)))


def test_missing_container_is_started() -> None:
    step = advance_pod(want("a", "b"), NEW, [running("a")], NOW)
    assert step.actions == (StartContainer("b", 0),)
    assert step.state.phase is PodPhase.PENDING


def test_next_step_is_due_at_the_earliest_container_change() -> None:
    assert advance_pod(want("a", "b"), NEW, [created("a", 103.0), created("b", 102.0)], NOW).wake_at == 102.0
    assert advance_pod(want(), RUNNING, [running(ends=107.0)], NOW).wake_at == 107.0
    assert advance_pod(want(), RUNNING, [running()], NOW).wake_at is None


def test_readiness_follows_the_containers_and_keeps_its_transition_time() -> None:
    later = Moment(101.0, 5_001.0)
    unready = advance_pod(want(), RUNNING, [exited(attempt=3)], later).state
    assert (unready.phase, unready.ready, unready.containers_ready) == (
        PodPhase.RUNNING,
        ConditionState(False, later),
        ConditionState(False, later),
    )
    much_later = Moment(102.0, 5_002.0)
    assert advance_pod(want(), unready, [exited(attempt=3)], much_later).state is unready


def test_closed_readiness_gate_makes_a_pod_unready() -> None:
    gated = want()._replace(gated="not yet")
    state = advance_pod(gated, RUNNING, [running()], NOW).state
    assert (state.containers_ready.holds, state.ready.holds, state.gated) == (True, False, "not yet")
    assert advance_pod(want(), state, [running()], NOW).state.ready.holds


def crash(attempt: int, seconds: float = 0.0) -> ContainerView:
    """A view of a container that crashed after this time."""
    end = NOW.after(seconds)
    return ContainerView("a", attempt, ContainerState.EXITED, NOW, ContainerExit(1, NOW, end), None, None, None)


BACKED_OFF = RecordEvent("Warning", "BackOff", "Back-off restarting failed container a")


def test_first_restart_is_immediate_and_later_ones_back_off() -> None:
    assert advance_pod(want(), RUNNING, [crash(0)], NOW).actions == (StartContainer("a", 1),)
    step = advance_pod(want(), RUNNING, [crash(1)], NOW)
    assert (step.actions, step.wake_at) == ((BACKED_OFF,), NOW.monotonic + BACKOFF)
    assert advance_pod(want(), step.state, [crash(1)], NOW).actions == (), "one event for each crash"
    due = Moment(NOW.monotonic + BACKOFF, 0.0)
    assert advance_pod(want(), step.state, [crash(1)], due).actions == (StartContainer("a", 2),)

    delays = [restart_backoff(crash(attempt), None) for attempt in range(10_000)]
    assert delays[:7] == [0, 10, 20, 40, 80, 160, 300]
    assert max(delays) == delays[-1] == BACKOFF_MAX
    assert [format_duration(seconds) for seconds in delays[1:7]] == ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s"]


def test_backoff_is_reset_after_ten_minutes_of_running() -> None:
    state, late = RUNNING, NOW.after(BACKOFF_RESET)
    step = advance_pod(want(), state, [crash(7, BACKOFF_RESET)], late)
    assert step.actions == (StartContainer("a", 8),)
    assert advance_pod(want(), step.state, [crash(8)], NOW).wake_at == NOW.monotonic + BACKOFF
    assert advance_pod(want(), step.state, [crash(9)], NOW).wake_at == NOW.monotonic + 2 * BACKOFF
    assert advance_pod(want(), state, [crash(7, BACKOFF_RESET - 1)], late).wake_at == late.monotonic - 1 + BACKOFF_MAX


def killing(name: str) -> RecordEvent:
    return RecordEvent("Normal", "Killing", f"Stopping container {name}")


def test_deletion_stops_running_containers_with_the_grace_period() -> None:
    step = advance_pod(want("a", "b", grace=30.0), RUNNING, [running("a"), exited("b", 1)], NOW)
    assert step.actions == (killing("a"), StopContainer("a", 30.0))
    assert step.state.phase is PodPhase.RUNNING


@pytest.mark.parametrize(("grace", "given"), [(30.0, 30.0), (2.0, 2.0), (1.0, 2.0), (0.0, 0.0)])
def test_nonzero_grace_period_is_at_least_two_seconds(grace: float, given: float) -> None:
    assert advance_pod(want(grace=grace), RUNNING, [running()], NOW).actions == (killing("a"), StopContainer("a", given))


def test_stop_is_repeated_only_for_an_earlier_deadline() -> None:
    asked = running(stop_grace=30.0, ends=130.0)
    deleting = advance_pod(want(grace=30.0), RUNNING, [running()], NOW).state
    later = NOW.after(7.0)
    assert advance_pod(want(grace=30.0), deleting, [asked], later) == PodStep(deleting, 130.0, ())
    assert advance_pod(want(grace=25.0), deleting, [asked], later).actions == (), "the second deadline would be later"
    assert advance_pod(want(grace=5.0), deleting, [asked], later).actions == (StopContainer("a", 5.0),)


@pytest.mark.parametrize(("code", "phase"), [(0, PodPhase.SUCCEEDED), (137, PodPhase.FAILED)])
def test_deleted_pod_ends_despite_restart_policy_always(code: int, phase: PodPhase) -> None:
    step = advance_pod(want(grace=30.0), RUNNING, [exited(code=code)], NOW)
    assert (step.state.phase, step.wake_at, step.actions) == (phase, None, (RemovePod(),))


LIMITED = DesiredState(PodPlan((ContainerPlan("a", "Always"),), grace=20.0, deadline=60.0), None)


def test_pod_is_stopped_at_its_deadline_and_fails() -> None:
    assert advance_pod(LIMITED, RUNNING, [running()], NOW).wake_at == NOW.monotonic + 60.0
    late = NOW.after(60.0)
    step = advance_pod(LIMITED, RUNNING, [running()], late)
    message = "Pod was active on the node longer than the specified deadline"
    assert step.actions == (RecordEvent("Normal", "DeadlineExceeded", message), killing("a"), StopContainer("a", 20.0))
    assert (step.state.phase, step.state.reason) == (PodPhase.RUNNING, ""), "the phase changes once the container has ended"
    over = advance_pod(LIMITED, step.state, [exited()], late).state
    assert (over.phase, over.reason, over.message) == (PodPhase.FAILED, "DeadlineExceeded", message)


def test_deadline_counts_from_acceptance_even_if_no_container_started() -> None:
    step = advance_pod(LIMITED, NEW, [], NOW.after(60.0))
    assert (step.state.phase, step.state.reason) == (PodPhase.FAILED, "DeadlineExceeded")


def test_pod_deleted_before_its_start_never_starts() -> None:
    step = advance_pod(want(grace=30.0), NEW, [], NOW)
    assert (step.state.phase, step.actions) == (PodPhase.FAILED, (RemovePod(),))


def test_final_phase_does_not_change() -> None:
    refused = reject_pod("OutOfcpu", "no room", NOW)
    assert advance_pod(want(), refused, [], NOW) == PodStep(refused, None, ())
    assert advance_pod(want(), refused, [running()], NOW) == PodStep(refused, None, ())
    assert advance_pod(want(grace=0.0), refused, [], NOW) == PodStep(refused, None, (RemovePod(),))


def test_running_pod_does_not_return_to_pending() -> None:
    assert advance_pod(want("a", "b"), RUNNING, [running("a"), created("b")], NOW).state.phase is PodPhase.RUNNING


def test_transitions_cover_all_phases_and_final_phases_have_none() -> None:
    assert TRANSITIONS.keys() == set(PodPhase)
    assert {phase for phase in PodPhase if phase.final} == {phase for phase, after in TRANSITIONS.items() if not after}


def test_adopted_pod_has_the_reported_state() -> None:
    pod = make_pod("a").phase("Running").condition("Ready", "True").build()
    pod.status.startTime.CopyFrom(to_time(4_000))
    pod.status.conditions[0].lastTransitionTime.CopyFrom(to_time(4_900))
    since = Moment(-900.0, 4_000)
    unknown = ConditionState(False, since)
    state = adopt_pod_state(pod, PodPlan(()), NOW)
    assert state == PodState(
        PodPhase.RUNNING, since, ConditionState(True, since), unknown, ConditionState(True, Moment(0.0, 4_900)), records={}
    )


def test_past_time_is_not_in_the_future_after_a_clock_change() -> None:
    assert to_past_moment(9_999.0, NOW) == Moment(NOW.monotonic, 9_999.0)
