"""Reserve, Permit, PreBind, Bind, PostBind: called in order, undone in reverse order, blamed by name."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.pods_pb2 import Fence
from pinnace.runtime.logs import PluginFailed
from pinnace.scheduler.framework import SKIP, Status, Wait
from pinnace.scheduler.framework.profile import Enabled, profile_of
from pinnace.scheduler.framework.results import PluginError, PluginRejection
from pinnace.scheduler.framework.runtime import BindingCycle, Framework
from tests.builders import make_pod
from tests.logged import logged
from tests.unit.scheduler.pods import default_plugins, framework, info

POD = info(make_pod("a"))
NO = Status("node(s) said no")


class Scripted:
    """Takes part where it is given an answer, and writes down when it is asked."""

    def __init__(self, log: list[str], name: str, **answers: Any) -> None:
        self.name = name
        self._log = log
        for method, answer in answers.items():
            setattr(
                self, method, self._coroutine(method, answer) if method in ("pre_bind", "bind") else self._call(method, answer)
            )
            if method == "reserve":
                self.unreserve = self._call("unreserve", answers.get("unreserve"))

    def _call(self, method: str, answer: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._log.append(f"{self.name}.{method}")
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def _coroutine(self, method: str, answer: Any) -> Callable[..., Any]:
        call = self._call(method, answer)

        async def coroutine(*arguments: Any) -> Any:
            return call(*arguments)

        return coroutine


class World:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.plugins: list[Scripted] = []

    def plugin(self, name: str, **answers: Any) -> None:
        self.plugins.append(Scripted(self.log, name, **answers))

    @property
    def framework(self) -> Framework:
        return framework(*map(Enabled, self.plugins), first=True)

    def start(self) -> BindingCycle | PluginRejection | None:
        return self.framework.binding.run_reserve_and_permit({"A.x": 1, "Other.x": 2}, POD, "n")

    def started(self) -> BindingCycle:
        cycle = self.start()
        assert isinstance(cycle, BindingCycle)
        return cycle


@pytest.fixture
def world() -> World:
    return World()


def test_without_plugins_there_is_nothing_to_do(world: World) -> None:
    binder = [
        default_plugin
        for default_plugin in default_plugins()
        if default_plugin.plugin.name in ("PrioritySort", "DefaultBinder")
    ]
    assert Framework("bare", profile_of(binder)).binding.has_no_plugins
    world.plugin("A", post_bind=None)
    assert not Framework("more", profile_of([*binder, *map(Enabled, world.plugins)])).binding.has_no_plugins


def test_all_is_well(world: World) -> None:
    world.plugin("A", reserve=None, permit=None)
    world.plugin("B", reserve=None, permit=None, post_bind=None)
    cycle = world.started()
    assert cycle.needs_no_plugins and cycle.state == {"A.x": 1}, "nothing is kept of others"
    cycle.run_post_bind()
    assert world.log == ["A.reserve", "B.reserve", "A.permit", "B.permit", "B.post_bind"]


@pytest.mark.parametrize(("point", "name"), [("reserve", "Reserve"), ("permit", "Permit"), ("pre_flight", "PreFlight")])
def test_failing_plugin_is_named_and_reservations_are_undone(world: World, point: str, name: str) -> None:
    world.plugin("A", reserve=None)
    world.plugin("B", **({"reserve": None, "pre_bind": None} | {point: RuntimeError("boom")}))
    world.plugin("C", reserve=None)
    with pytest.raises(PluginError, match=f'plugin "B" failed in {name}: RuntimeError: boom'):
        world.start()
    assert world.log[-3:] == ["C.unreserve", "B.unreserve", "A.unreserve"]


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_rejecting_plugin_is_named_and_reservations_are_undone(world: World, point: str) -> None:
    world.plugin("A", reserve=None)
    world.plugin("B", **({"reserve": None} | {point: NO}))
    refused = world.start()
    assert isinstance(refused, PluginRejection) and refused == PluginRejection("B", "node(s) said no")
    assert refused.message == "0/1 nodes are available: 1 node(s) said no."
    assert world.log[-2:] == ["B.unreserve", "A.unreserve"]


def test_failing_unreserve_blocks_no_pod_and_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.plugin("A", reserve=None)
    world.plugin("B", reserve=None, unreserve=RuntimeError("boom"))
    world.started().run_unreserve()
    assert world.log[-2:] == ["B.unreserve", "A.unreserve"]
    assert "Traceback" in caplog.text
    assert PluginFailed("B", "Unreserve", "RuntimeError") in logged(caplog, PluginFailed)


def test_failing_post_bind_blocks_no_pod(world: World) -> None:
    world.plugin("A", post_bind=RuntimeError("boom"))
    world.plugin("B", post_bind=None)
    world.started().run_post_bind()
    assert world.log == ["A.post_bind", "B.post_bind"]


def test_plugins_that_wait(world: World) -> None:
    world.plugin("A", permit=Wait(5.0))
    world.plugin("B", permit=None)
    world.plugin("C", permit=Wait(3.0))
    cycle = world.started()
    assert cycle.waits == {"A": 5.0, "C": 3.0} and not cycle.needs_no_plugins


def test_waiting_permit_plugin_does_not_stop_another_from_rejecting(world: World) -> None:
    world.plugin("A", permit=Wait(5.0))
    world.plugin("B", permit=NO)
    assert world.start() == PluginRejection("B", "node(s) said no")


def test_pod_without_interested_plugins_costs_nothing(world: World) -> None:
    world.plugin("A", reserve=SKIP, permit=None, pre_flight=SKIP, pre_bind=None)
    world.plugin("B", pre_flight=SKIP, bind=None)
    assert world.start() is None
    world.plugin("C", pre_bind=None)
    assert [plugin.name for plugin in world.started().pre_binds] == ["C"]


def test_pre_flight_cannot_refuse(world: World) -> None:
    world.plugin("A", pre_flight=NO, pre_bind=None)
    with pytest.raises(PluginError, match="expected None or SKIP"):
        world.start()


async def test_pre_bind_stops_at_the_first_refusal(world: World) -> None:
    world.plugin("A", pre_bind=None)
    world.plugin("B", pre_bind=NO)
    world.plugin("C", pre_bind=None)
    assert await world.started().run_pre_bind() == PluginRejection("B", "node(s) said no")
    assert world.log == ["A.pre_bind", "B.pre_bind"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [((SKIP, None, SKIP), True), ((SKIP, SKIP), False), ((SKIP, NO, None), PluginRejection("B", "node(s) said no"))],
)
async def test_first_that_does_not_skip_binds(world: World, answers: tuple[Any, ...], expected: Any) -> None:
    for name, answer in zip("ABC", answers, strict=False):
        world.plugin(name, bind=answer)
    assert await world.started().run_bind(Fence()) == expected


@pytest.mark.parametrize(("method", "point"), [("pre_bind", "PreBind"), ("bind", "Bind")])
async def test_coroutine_that_fails_is_named(world: World, method: str, point: str) -> None:
    problem = RuntimeError("boom")
    world.plugin("A", **{method: problem})
    cycle = world.started()
    with pytest.raises(PluginError, match=f'plugin "A" failed in {point}: RuntimeError: boom') as raised:
        await (cycle.run_pre_bind() if method == "pre_bind" else cycle.run_bind(Fence()))
    assert raised.value.problem is problem
