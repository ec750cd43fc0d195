"""Properties of a fleet under any events: phases follow the graph, nodes are not overcommitted, and all work completes."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api.pods import ended
from pinnace.kubelet.lifecycle import TRANSITIONS, PodPhase
from pinnace.kubelet.runtime.interface import read_clocks
from tests.builders import make_pod
from tests.unit.kubelet.fakeapi import FakeApi

CORES = 4
seconds = st.sampled_from(["0", "1", "7"])
behaviours = st.fixed_dictionaries(
    {},
    optional={
        "pinnace.io/start-seconds": seconds,
        "pinnace.io/run-seconds": seconds,
        "pinnace.io/stop-seconds": seconds,
        "pinnace.io/exit-code": st.sampled_from(["0", "1"]),
    },
)
Event = Callable[[FakeApi], None]


@st.composite
def creations(draw: st.DrawFn) -> Event:
    policy, cores = draw(st.sampled_from(["Always", "OnFailure", "Never"])), draw(st.integers(1, 3))
    annotations, init = draw(behaviours), draw(st.lists(st.booleans(), max_size=2))

    def create(api: FakeApi) -> None:
        builder = make_pod(f"p{len(api.created)}").restart_policy(policy).req(cpu=cores).req(cpu="0")
        for sidecar in init:
            builder.init(sidecar=sidecar)
        for key, value in annotations.items():
            builder.annotation(key, value)
        api.create(builder)

    return create


def on_any_pod(draw_index: int, change: Callable[[FakeApi, str], None]) -> Event:
    """Apply the change to one of the existing pods."""

    def event(api: FakeApi) -> None:
        if api.pods:
            names = [pod.metadata.name for pod in api.pods.values()]
            change(api, names[draw_index % len(names)])

    return event


def on_pods(change: Callable[[FakeApi, str], None]) -> st.SearchStrategy[Event]:
    return st.integers(0, 9).map(lambda index: on_any_pod(index, change))


def flip(name: str) -> Event:
    return lambda api: setattr(api, name, not getattr(api, name))


def restart(api: FakeApi) -> None:
    api.restarts = True


events = st.one_of(
    creations(),
    on_pods(lambda api, name: api.delete(name, grace=30)),
    on_pods(lambda api, name: api.delete(name, grace=0)),
    on_pods(lambda api, name: api.remove(name)),
    on_pods(lambda api, name: api.touch(name)),
    st.sampled_from([flip("down"), flip("deaf"), restart]),
)
steps = st.lists(st.tuples(events, st.sampled_from([0.0, 0.5, 1.0, 12.0])), max_size=25)


@given(steps)
@settings(deadline=None)
def test_invariants_hold_after_any_sequence_of_events(sequence: list[tuple[Event, float]]) -> None:
    asyncio.run(play(sequence))


async def play(sequence: list[tuple[Event, float]]) -> None:
    api = FakeApi()
    await api.start_fleet()
    for event, pause in sequence:
        event(api)
        if api.restarts:
            await api.start_fleet()
        await api.clock.advance(pause)
        check(api)
    api.down = False
    api.deliver()
    await api.clock.advance(60.0)
    check(api)
    assert api.fleet.unreported_pod_count == 0
    for pod in api.pods.values():
        assert pod.status.HasField("startTime"), "every pod was admitted or rejected"
        assert not pod.metadata.HasField("deletionTimestamp"), "every deleted pod is removed"
    for uid in api.written.keys() - api.pods.keys():
        assert not api.runtime.observe_containers(uid, read_clocks(api.clock)), "a container of a removed pod is left"
    await api.stop_fleet()


def check(api: FakeApi) -> None:
    for uid, phases in api.written.items():
        for before, after in pairwise([PodPhase.PENDING, *phases]):
            assert after is before or after in TRANSITIONS[before], f"{uid}: {phases}"
    used = sum(
        int(pod.spec.containers[0].resources.requests["cpu"].string)
        for pod in api.pods.values()
        if pod.status.HasField("startTime") and not ended(pod)
    )
    assert used <= CORES
