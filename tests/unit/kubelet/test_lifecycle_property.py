"""Properties of the state machine for any pod and any events: phases are legal, starts are ordered, and no container is
left.
"""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.kubelet.lifecycle import TRANSITIONS, ConditionState, DesiredState, PodPhase, PodState, advance_pod
from pinnace.kubelet.runtime.interface import ContainerExit, ContainerState, ContainerView
from tests.builders import PodBuilder, make_pod
from tests.unit.kubelet.machine import BEGIN, Machine

seconds = st.sampled_from([0, 1, 3, 12])
containers = st.fixed_dictionaries(
    {},
    optional={
        "start_seconds": seconds,
        "run_seconds": seconds,
        "stop_seconds": st.sampled_from([0, 1, 40]),
        "exit_code": st.sampled_from([0, 1]),
        "started_after_seconds": seconds,
        "ready_after_seconds": seconds,
        "unhealthy_after_seconds": seconds,
        "probe_seconds": st.sampled_from([0, 2]),
        "post_start_seconds": seconds,
        "post_start_exit_code": st.sampled_from([0, 1]),
        "pre_stop_seconds": st.sampled_from([0, 5, 40]),
    },
)
probes_and_hooks = st.sets(
    st.sampled_from(["startupProbe", "readinessProbe", "livenessProbe", "postStart", "preStop"]), max_size=3
)


@st.composite
def pods(draw: st.DrawFn) -> PodBuilder:
    builder = make_pod("a").restart_policy(draw(st.sampled_from(["Always", "OnFailure", "Never"])))
    for sidecar in draw(st.lists(st.booleans(), max_size=3)):
        builder.init(sidecar=sidecar)
    for _ in range(draw(st.integers(1, 2))):
        builder.req()
    for container in (*builder.init_containers(), *builder.main_containers()):
        builder.declare(**{f"{name}__{container.name}": value for name, value in draw(containers).items()})
        for what in draw(probes_and_hooks) if container.restartPolicy or not container.name.startswith("i") else ():
            hook = what in ("postStart", "preStop")
            handler = getattr(container.lifecycle, what) if hook else getattr(container, what).handler
            handler.exec.command.append("true")
    if draw(st.booleans()):
        builder.deadline(draw(st.sampled_from([5, 30])))
    return builder


Event = Callable[[Machine], object]
events: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from([0.5, 1.0, 7.0, 60.0]).map(lambda pause: lambda machine: machine.wait(pause)),
    st.sampled_from([0, 1, 30]).map(lambda grace: lambda machine: machine.delete(grace)),
    st.just(Machine.restart),
)


@given(pods(), st.sampled_from([0.0, 3.0]), st.lists(events, max_size=8))
@settings(deadline=None)
def test_invariants_hold_after_any_sequence_of_events(builder: PodBuilder, volumes: float, sequence: list[Event]) -> None:
    machine = Machine(builder, volumes)
    for event in sequence:
        event(machine)
        check(machine)
    machine.delete(grace=5).wait(200)
    check(machine)
    assert machine.phase.final
    assert machine.log[-1] == "remove"


def check(machine: Machine) -> None:
    for before, after in pairwise(machine.phases):
        assert after in TRANSITIONS[before], machine.phases
    if machine.phase.final:
        assert machine.alive == [], "a container runs in a final phase"
        assert "start" not in " ".join(machine.log[_index(machine.log, "remove") :])
    init = machine.template.plan.init
    ends = {view.name: view.exit for view in machine.runtime.observe_containers(machine.uid, machine.now)}
    for before, after in pairwise([*init, *machine.template.plan.main[:1]]):
        if after.name in ends and not before.sidecar:
            assert (end := ends[before.name]) is not None, f"{after.name} started while {before.name} was running"
            assert end.code == 0, f"{after.name} started, but {before.name} had failed"
    order = [item.name for item in init]
    first_starts = list(dict.fromkeys(words.split()[1] for words in machine.log if words.startswith("start ")))
    inits = [name for name in first_starts if name in order]
    assert inits == order[: len(inits)], "init containers start in order"
    assert first_starts[: len(inits)] == inits, "main containers start after the init containers"
    if len(first_starts) > len(inits):
        assert inits == order, "main containers start only after all init containers"
        assert machine.state.initialized.holds


def _index(log: list[str], word: str) -> int:
    return log.index(word) if word in log else len(log)


@given(st.data())
def test_fast_path_for_plain_pods_equals_the_full_path(data: st.DataObject) -> None:
    builder = make_pod("a").req().req().restart_policy(data.draw(st.sampled_from(["Always", "OnFailure", "Never"])))
    plan = Machine(builder).template.plan
    assert plan.plain
    want = DesiredState(plan, data.draw(st.sampled_from([None, 30.0])))
    views = [view for name in ("c0", "c1") if (view := data.draw(st.none() | views_of(name))) is not None]
    state: PodState = Machine(builder).state
    if data.draw(st.booleans()):
        running = [ContainerView(name, 0, ContainerState.RUNNING, BEGIN, None, None, None, None) for name in ("c0", "c1")]
        state = advance_pod(want._replace(grace=None), state, running, BEGIN).state
        assert state.phase is PodPhase.RUNNING
        if data.draw(st.booleans()):  # an adopted pod whose node was unreachable
            state = state._replace(ready=ConditionState(False, BEGIN))
    now = BEGIN.after(5)
    assert advance_pod(want, state, views, now) == advance_pod(
        want._replace(plan=plan._replace(plain=False)), state, views, now
    )


def views_of(name: str) -> st.SearchStrategy[ContainerView]:
    return st.builds(
        lambda attempt, state, code, changes_at: ContainerView(
            name,
            attempt,
            state,
            None if state is ContainerState.CREATED else BEGIN,
            ContainerExit(code, BEGIN, BEGIN) if state is ContainerState.EXITED else None,
            None,
            None,
            None if state is ContainerState.EXITED else changes_at,
        ),
        st.integers(0, 3),
        st.sampled_from(ContainerState),
        st.integers(0, 1),
        st.sampled_from([None, 106.0, 107.0]),
    )
