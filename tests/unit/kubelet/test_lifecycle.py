"""The state machine, case by case. Containers are given as they are seen; time is a number."""

import pytest

from kubelet.lifecycle import (
    RESTART_BACKOFF,
    RESTART_BACKOFF_MAX,
    RESTART_BACKOFF_RESET,
    TRANSITIONS,
    Phase,
    PodState,
    Remove,
    Start,
    Step,
    Stop,
    Wanted,
    accept,
    adopt,
    advance,
    refuse,
    restart_at,
)
from kubelet.runtime import ContainerState, ContainerView, Exit, Instant, past
from pinnace.api.times import to_time
from tests.builders import make_pod

NOW = Instant(100.0, 5_000.0)
NEW = accept(NOW)
RUNNING = PodState(Phase.RUNNING, NOW, ready=True, ready_changed=NOW)


def want(*containers: str, policy: str = "Always", grace: float | None = None) -> Wanted:
    return Wanted(containers or ("a",), policy, grace)


def created(name: str = "a", at: float = 101.0) -> ContainerView:
    return ContainerView(name, 0, ContainerState.CREATED, None, None, None, None, at)


def running(name: str = "a", *, attempt: int = 0, stop_grace: float | None = None, ends: float | None = None) -> ContainerView:
    return ContainerView(name, attempt, ContainerState.RUNNING, NOW, None, None, stop_grace, ends)


def exited(name: str = "a", code: int = 0, *, attempt: int = 0) -> ContainerView:
    return ContainerView(name, attempt, ContainerState.EXITED, NOW, Exit(code, NOW, NOW), None, None, None)


@pytest.mark.parametrize(
    ("policy", "containers", "phase"),
    [
        ("Always", [], Phase.PENDING),
        ("Always", [created()], Phase.PENDING),
        ("Always", [running()], Phase.RUNNING),
        ("Always", [exited()], Phase.RUNNING),  # comes back
        ("Always", [exited(code=1)], Phase.RUNNING),
        ("", [exited(code=1)], Phase.RUNNING),  # the default is Always
        ("OnFailure", [exited(code=1)], Phase.RUNNING),
        ("OnFailure", [exited()], Phase.SUCCEEDED),
        ("Never", [exited()], Phase.SUCCEEDED),
        ("Never", [exited(code=1)], Phase.FAILED),
    ],
)
def test_phase_of_a_pod_with_one_container(policy: str, containers: list[ContainerView], phase: Phase) -> None:
    assert advance(want(policy=policy), NEW, containers, NOW).state.phase is phase


@pytest.mark.parametrize(
    ("policy", "a", "b", "phase"),
    [
        ("Always", running("a"), created("b"), Phase.PENDING),
        ("Always", running("a"), running("b"), Phase.RUNNING),
        ("Never", running("a"), exited("b", 1), Phase.RUNNING),
        ("Never", exited("a"), exited("b", 1), Phase.FAILED),
        ("Never", exited("a"), exited("b"), Phase.SUCCEEDED),
        ("OnFailure", exited("a"), exited("b", 1), Phase.RUNNING),
    ],
)
def test_phase_of_a_pod_with_two_containers(policy: str, a: ContainerView, b: ContainerView, phase: Phase) -> None:
    assert advance(want("a", "b", policy=policy), NEW, [a, b], NOW).state.phase is phase


def test_a_new_pod_starts_all_of_its_containers() -> None:
    assert advance(want("a", "b"), NEW, [], NOW) == Step(NEW, None, (Start("a", 0), Start("b", 0)))


def test_a_container_that_was_not_started_with_the_others_is_started() -> None:
    step = advance(want("a", "b"), NEW, [running("a")], NOW)
    assert step.actions == (Start("b", 0),)
    assert step.state.phase is Phase.PENDING


def test_the_next_step_is_due_when_the_first_container_changes() -> None:
    assert advance(want("a", "b"), NEW, [created("a", 103.0), created("b", 102.0)], NOW).wake_at == 102.0
    assert advance(want(), RUNNING, [running(ends=107.0)], NOW).wake_at == 107.0
    assert advance(want(), RUNNING, [running()], NOW).wake_at is None


def test_readiness_changes_with_the_containers_and_remembers_when() -> None:
    later = Instant(110.0, 5_010.0)
    unready = advance(want(), RUNNING, [exited(attempt=3)], later).state
    assert (unready.phase, unready.ready, unready.ready_changed) == (Phase.RUNNING, False, later)
    much_later = Instant(120.0, 5_020.0)
    assert advance(want(), unready, [exited(attempt=3)], much_later).state is unready


def test_the_first_restart_is_immediate_and_later_ones_wait_longer_and_longer() -> None:
    assert advance(want(), RUNNING, [exited()], NOW).actions == (Start("a", 1),)
    step = advance(want(), RUNNING, [exited(attempt=1)], NOW)
    assert (step.actions, step.wake_at) == ((), NOW.monotonic + RESTART_BACKOFF)
    due = Instant(NOW.monotonic + RESTART_BACKOFF, 0.0)
    assert advance(want(), RUNNING, [exited(attempt=1)], due).actions == (Start("a", 2),)

    delays = [restart_at(Exit(1, NOW, NOW), attempt) - NOW.monotonic for attempt in range(10_000)]
    assert delays[:4] == [0, RESTART_BACKOFF, 2 * RESTART_BACKOFF, 4 * RESTART_BACKOFF]
    assert max(delays) == delays[-1] == RESTART_BACKOFF_MAX


def test_a_container_that_ran_long_is_restarted_at_once() -> None:
    end = NOW.after(RESTART_BACKOFF_RESET)
    assert restart_at(Exit(1, NOW, end), 7) == end.monotonic


def test_deletion_stops_what_runs_with_the_grace_of_the_pod() -> None:
    step = advance(want("a", "b", grace=30.0), RUNNING, [running("a"), exited("b", 1)], NOW)
    assert step.actions == (Stop("a", 30.0),)
    assert step.state.phase is Phase.RUNNING


def test_a_container_is_asked_again_only_when_the_grace_gets_shorter() -> None:
    asked = running(stop_grace=30.0, ends=130.0)
    assert advance(want(grace=30.0), RUNNING, [asked], NOW) == Step(RUNNING, 130.0, ())
    assert advance(want(grace=5.0), RUNNING, [asked], NOW).actions == (Stop("a", 5.0),)


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.SUCCEEDED), (137, Phase.FAILED)])
def test_deletion_ends_a_pod_whatever_its_restart_policy(code: int, phase: Phase) -> None:
    step = advance(want(grace=30.0), RUNNING, [exited(code=code)], NOW)
    assert (step.state.phase, step.wake_at, step.actions) == (phase, None, (Remove(),))


def test_a_pod_that_is_deleted_before_it_started_never_starts() -> None:
    step = advance(want(grace=30.0), NEW, [], NOW)
    assert (step.state.phase, step.actions) == (Phase.FAILED, (Remove(),))


def test_a_final_phase_stays_whatever_the_containers_do() -> None:
    refused = refuse("OutOfcpu", "no room", NOW)
    assert advance(want(), refused, [], NOW) == Step(refused, None, ())
    assert advance(want(), refused, [running()], NOW) == Step(refused, None, ())
    assert advance(want(grace=0.0), refused, [], NOW) == Step(refused, None, (Remove(),))


def test_a_running_pod_does_not_go_back_to_pending() -> None:
    assert advance(want("a", "b"), RUNNING, [running("a"), created("b")], NOW).state.phase is Phase.RUNNING


def test_every_phase_has_its_row_and_final_ones_have_no_way_out() -> None:
    assert TRANSITIONS.keys() == set(Phase)
    assert {phase for phase in Phase if phase.final} == {phase for phase, after in TRANSITIONS.items() if not after}


def test_adopting_takes_the_reported_state_as_it_is() -> None:
    pod = make_pod("a").phase("Running").condition("Ready", "True").build()
    pod.status.startTime.CopyFrom(to_time(4_000))
    pod.status.conditions[0].lastTransitionTime.CopyFrom(to_time(4_900))
    state = adopt(pod, NOW)
    assert state == PodState(Phase.RUNNING, Instant(-900.0, 4_000), ready=True, ready_changed=Instant(0.0, 4_900))


def test_a_clock_that_was_set_back_does_not_put_the_past_into_the_future() -> None:
    assert past(9_999.0, NOW) == Instant(NOW.monotonic, 9_999.0)
