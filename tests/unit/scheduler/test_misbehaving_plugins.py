"""Every extension point x everything bad that a plugin may do there: a defined end that names the plugin, and the scheduler and
all other pods go on.

A pod's label `does` says what the plugin does about it. Each test has one scheduler with one plugin at one point, one pod for
each kind of misbehaviour, and pods for which the plugin behaves.
"""

import asyncio
import itertools
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from pinnace.client.standby import ProgressTimeout
from pinnace.runtime.logs import LeadershipAbandoned, PluginFailed
from pinnace.runtime.stalls import LoopWatchdog
from pinnace.scheduler.config import parse_configuration
from pinnace.scheduler.framework import SKIP, Change, FilterResult, NodeReasons, Nominated, Status, Wait
from pinnace.scheduler.framework.plugin_errors import bounded_calls, call_plugin, plugin_on_stack
from pinnace.scheduler.framework.results import Cost, PluginError
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.logged import logged
from tests.unit.scheduler.cluster import Cluster

pytestmark = pytest.mark.slow

STALL = 0.2
"""Seconds after which what holds the event loop is interrupted here."""


def _raise(error: BaseException) -> Any:
    raise error


def _cancel() -> Any:
    asyncio.current_task().cancel()


def _spin() -> None:
    while True:
        pass


def _swallow_exceptions() -> None:
    while True:
        try:
            time.sleep(60.0)
        except Exception:
            continue


RAISES: dict[str, Callable[[], Any]] = {
    "value-error": lambda: _raise(ValueError("no")),
    "cancelled-error": lambda: _raise(asyncio.CancelledError()),
    "generator-exit": lambda: _raise(GeneratorExit()),
    "system-exit": lambda: sys.exit(3),
    "keyboard-interrupt": lambda: _raise(KeyboardInterrupt()),
    "stop-iteration": lambda: _raise(StopIteration()),
}
CANCELS: dict[str, Callable[[], Any]] = {"cancels-the-task": _cancel}
HANGS: dict[str, Callable[[], Any]] = {
    "sleeps": lambda: time.sleep(60.0),
    "spins": _spin,
    "swallows": _swallow_exceptions,
}
NONSENSE: dict[str, Callable[[], Any]] = {
    "text": lambda: "text",
    "number": lambda: 7,
    "array": lambda: np.ones(7),
    "coroutine-function": lambda: _raise,
}
NOTHING: dict[str, Callable[[], Any]] = {"none": lambda: None}
SCORES: dict[str, Callable[[], Any]] = {
    "nan": lambda: np.full(2, np.nan),
    "inf": lambda: np.full(2, np.inf),
    "too-high": lambda: np.full(2, 101.0),
    "matrix": lambda: np.ones((2, 1)),
    "complex": lambda: np.ones(2, np.complex128),
    "objects": lambda: np.array([None, {}]),
    "list": lambda: [1.0, 2.0],
}
FILTERED: dict[str, Callable[[], Any]] = {
    "too-short": lambda: FilterResult.refusing(np.zeros(1, np.bool_), "no"),
    "numbers": lambda: FilterResult(np.ones(2), lambda: NodeReasons(np.ones(2), lambda code: ("no",))),
    "passed-none": lambda: FilterResult(None, lambda: None),
}
EXPLAINED: dict[str, Callable[[], Any]] = {
    "explain-raises": lambda: FilterResult(np.zeros(2, np.bool_), lambda: sys.exit(1)),
    "explain-none": lambda: FilterResult(np.zeros(2, np.bool_), lambda: None),
    "explain-short": lambda: FilterResult(
        np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(1, np.int64), lambda code: ("no",))
    ),
    "reasons-none": lambda: FilterResult(np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(2, np.int64), lambda code: None)),
    "reasons-text": lambda: FilterResult(
        np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(2, np.int64), lambda code: "no")
    ),
    "reasons-hang": lambda: FilterResult(np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(2, np.int64), lambda _: _spin())),
    "hopeless-raises": lambda: FilterResult(
        np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(2, np.int64), lambda code: ("no",)), lambda: _raise(SystemExit())
    ),
    "hopeless-none": lambda: FilterResult(
        np.zeros(2, np.bool_), lambda: NodeReasons(np.ones(2, np.int64), lambda code: ("no",)), lambda: None
    ),
}  # fmt: skip
EMPTY_STATUS: dict[str, Callable[[], Any]] = {"reason-none": lambda: Status(None)}
WAITS: dict[str, Callable[[], Any]] = {
    "wait-nan": lambda: Wait(float("nan")),
    "wait-negative": lambda: Wait(-1.0),
    "wait-text": lambda: Wait("long"),
}
NOMINATES: dict[str, Callable[[], Any]] = {
    "unknown-node": lambda: Nominated("nowhere"),
    "node-number": lambda: Nominated(7),
}
COSTS: dict[str, Callable[[], Any]] = {"cost-nan": lambda: [Cost(float("nan"), 1, "labels")]}
AWAITED: dict[str, Callable[[], Any]] = {"waits-for-ever": lambda: None, "cancels-itself": lambda: None}
"""See `does_later`."""
SORTS: dict[str, Callable[[], Any]] = {"key-nan": lambda: (float("nan"),), "key-text": lambda: ("a",)}
ALL = {
    **RAISES, **CANCELS, **HANGS, **NONSENSE, **NOTHING, **SCORES, **FILTERED, **EXPLAINED, **EMPTY_STATUS, **WAITS,
    **NOMINATES, **SORTS, **COSTS, **AWAITED,
}  # fmt: skip


def does(pod: Any) -> Any:
    """What its label says; None: nothing."""
    wanted = pod.pod.metadata.labels.get("does")
    return ALL[wanted]() if wanted is not None else None


def bad(pod: Any) -> bool:
    return "does" in pod.pod.metadata.labels


class Bad:
    name = "Bad"


class BadPreEnqueue(Bad):
    def pre_enqueue(self, pod: Any) -> Any:
        return does(pod) if bad(pod) else True


class BadQueueSort(Bad):
    def sort_key(self, pod: Any, since: float) -> Any:
        return does(pod) if bad(pod) else (since,)


class BadCost(Bad):
    def cost(self, pod: Any, nodes: Any) -> Any:
        return does(pod) if bad(pod) else []

    def filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        return FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")


class BadPreFilter(Bad):
    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        state[7] = "keys should be text"
        return does(pod)

    def filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        return FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")


class BadFilter(Bad):
    def filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        return does(pod) if bad(pod) else FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")


class BadPostFilter(Bad):
    def post_filter(self, state: Any, pod: Any, nodes: Any, diagnosis: Any) -> Any:
        return does(pod)


class BadPreScore(Bad):
    def pre_score(self, state: Any, pod: Any, nodes: Any, feasible: Any) -> Any:
        return does(pod)

    def score(self, state: Any, pod: Any, nodes: Any, feasible: Any) -> Any:
        return np.zeros(len(nodes))


class BadScore(Bad):
    def score(self, state: Any, pod: Any, nodes: Any, feasible: Any) -> Any:
        return does(pod) if bad(pod) else np.zeros(len(nodes))


class BadNormalizeScore(Bad):
    def score(self, state: Any, pod: Any, nodes: Any, feasible: Any) -> Any:
        state["Bad.pod"] = pod
        return np.zeros(len(nodes))

    def normalize(self, state: Any, scores: Any, feasible: Any) -> Any:
        return does(state["Bad.pod"]) if bad(state["Bad.pod"]) else scores


class BadReserve(Bad):
    def reserve(self, state: Any, pod: Any, node: str) -> Any:
        return does(pod)

    def unreserve(self, state: Any, pod: Any, node: str) -> None:
        """It has nothing."""


class BadUnreserve(Bad):
    def reserve(self, state: Any, pod: Any, node: str) -> Any:
        return Status("node(s) were refused") if bad(pod) else None

    def unreserve(self, state: Any, pod: Any, node: str) -> None:
        does(pod)


class BadPermit(Bad):
    def permit(self, state: Any, pod: Any, node: str) -> Any:
        return does(pod)


class BadPreFlight(Bad):
    def pre_flight(self, state: Any, pod: Any, node: str) -> Any:
        return does(pod) if bad(pod) else SKIP

    async def pre_bind(self, state: Any, pod: Any, node: str) -> Any:
        return None


async def does_later(pod: Any) -> Any:
    match pod.pod.metadata.labels.get("does"):
        case "waits-for-ever":
            await asyncio.get_running_loop().create_future()
        case "cancels-itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
    return does(pod)


class BadPreBind(Bad):
    pre_bind_timeout = 0.2

    async def pre_bind(self, state: Any, pod: Any, node: str) -> Any:
        return await does_later(pod)


class BadBind(Bad):
    async def bind(self, state: Any, pod: Any, node: str, fence: Any) -> Any:
        return await does_later(pod) if bad(pod) else SKIP


class BadPostBind(Bad):
    def post_bind(self, state: Any, pod: Any, node: str) -> None:
        does(pod)


class BadHint(Bad):
    helped_by = Change.NODE_ADDED

    def filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        refused = np.full(len(nodes), bad(pod) and len(nodes) < 3)
        return FilterResult.refusing(refused, "node(s) were too few")

    def helps(self, event: Any, pod: Any, nodes: Any) -> Any:
        return does(pod)


FAILS = [
    # (plugin, the point that is told, what it does there): the attempt fails, and an event of the pod names the plugin
    (BadCost, "Cost", [RAISES, CANCELS, HANGS, NONSENSE, NOTHING, COSTS]),
    (BadPreFilter, "PreFilter", [RAISES, CANCELS, HANGS, NONSENSE, EMPTY_STATUS]),
    (BadFilter, "Filter", [RAISES, CANCELS, HANGS, NONSENSE, NOTHING, FILTERED, EXPLAINED]),
    (BadPostFilter, "PostFilter", [RAISES, CANCELS, HANGS, NONSENSE, EMPTY_STATUS, NOMINATES]),
    (BadPreScore, "PreScore", [RAISES, CANCELS, HANGS, NONSENSE, EMPTY_STATUS]),
    (BadScore, "Score", [RAISES, CANCELS, HANGS, NONSENSE, NOTHING, SCORES]),
    (BadNormalizeScore, "NormalizeScore", [RAISES, CANCELS, HANGS, NONSENSE, NOTHING, SCORES]),
    (BadReserve, "Reserve", [RAISES, CANCELS, HANGS, NONSENSE, EMPTY_STATUS]),
    (BadPermit, "Permit", [RAISES, CANCELS, HANGS, NONSENSE, EMPTY_STATUS, WAITS]),
    (BadPreFlight, "PreFlight", [RAISES, CANCELS, HANGS, NONSENSE]),
    (BadPreBind, "PreBind", [RAISES, HANGS, NONSENSE, EMPTY_STATUS, AWAITED]),
    (BadBind, "Bind", [RAISES, HANGS, NONSENSE, EMPTY_STATUS]),
]
GOES_ON = [
    # the pods are bound as if the plugin were not there, and the log names it
    (BadPreEnqueue, "PreEnqueue", [RAISES, CANCELS, HANGS, NONSENSE, NOTHING]),
    (BadQueueSort, "QueueSort", [RAISES, CANCELS, HANGS, NOTHING, SORTS]),
    (BadPostBind, "PostBind", [RAISES, CANCELS, HANGS]),
]


@pytest.fixture(autouse=True)
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The event loop is that of a component: it is watched, and handles SIGINT itself."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    watch = LoopWatchdog(loop, plugin_on_stack, stall=STALL)
    watch.start()
    yield
    watch.stop()
    loop.remove_signal_handler(signal.SIGINT)


def configuration(plugin: type) -> Any:
    """`plugin` comes first everywhere. An attempt that fails is not made again soon."""
    spec = f"{__name__}:{plugin.__name__}"
    point = next((point for method, point in (("sort_key", "queueSort"), ("bind", "bind")) if hasattr(plugin, method)), "")
    own = f"{point}: {{enabled: [{{name: '{spec}'}}], disabled: [{{name: PrioritySort}}]}}" if point == "queueSort" else ""
    if point == "bind":
        own = f"bind: {{enabled: [{{name: '{spec}'}}, {{name: DefaultBinder}}], disabled: [{{name: '*'}}]}}"
    return parse_configuration(
        f"""
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        podInitialBackoffSeconds: 60
        podMaxBackoffSeconds: 60
        profiles:
        - plugins: {{multiPoint: {{enabled: [{{name: '{spec}'}}]}}, {own}}}
        """,
        seed=0,
    )


async def play(cluster: Cluster, plugin: type, kinds: list[Any], cpu: int = 1) -> list[str]:
    """A scheduler with this plugin, and a pod for each misbehaviour; the pods' names. Pods that are behaved are bound before
    and afterwards."""
    names = list(itertools.chain(*kinds))
    await cluster.create(make_node("m"), make_node("n"), make_pod("before").req(cpu="1m"))
    cluster.schedule("s0", configuration=configuration(plugin))
    await cluster.bound("before")
    for name in names:
        pod = make_pod(name).req(cpu=f"{cpu}m").label("does", name)
        for number in range(300 if hasattr(plugin, "cost") else 0):  # only large pods are asked about
            pod = pod.label(f"label-{number}", "")
        await cluster.create(pod)
    await cluster.create(make_pod("after").req(cpu="1m"))
    assert await cluster.bound("after") in ("m", "n")
    return names


@pytest.mark.parametrize(("plugin", "point", "kinds"), FAILS, ids=[fail[1] for fail in FAILS])
async def test_attempt_fails_and_an_event_names_the_plugin(cluster: Cluster, plugin: type, point: str, kinds: Any) -> None:
    names = await play(cluster, plugin, kinds, cpu=100_000 if point == "PostFilter" else 1)

    async def told() -> bool:
        said = await cluster.events()
        missing = [name for name in names if not any(item.startswith(f"{name} FailedScheduling: ") for item in said)]
        return not missing

    async with asyncio.timeout(10.0):
        await cluster.until(told)
    said = [event for event in await cluster.events() if "FailedScheduling" in event]
    for item in said:
        # "Filter" also of what a result is asked later
        assert f'plugin "Bad" failed in {point}: ' in item, item
    assert not [name for name in names if (await cluster.pod(name)).spec.nodeName]


@pytest.mark.parametrize(("plugin", "point", "kinds"), GOES_ON, ids=[case[1] for case in GOES_ON])
async def test_pod_is_bound_all_the_same_and_the_log_names_the_plugin(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, plugin: type, point: str, kinds: Any
) -> None:
    names = await play(cluster, plugin, kinds)
    for name in names:
        await cluster.bound(name)
    assert ("Bad", point) in {(item.plugin, item.point) for item in logged(caplog, PluginFailed)}


async def test_error_of_unreserve_is_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    names = await play(cluster, BadUnreserve, [RAISES, CANCELS, HANGS])
    failed = {item.pod for item in logged(caplog, PluginFailed) if (item.plugin, item.point) == ("Bad", "Unreserve")}
    assert failed >= {f"default/{name}" for name in names}


async def test_error_of_a_queueing_hint_wakes_the_pod(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A hint that fails counts as one that helps: the pod is tried again."""
    kinds = {**RAISES, **CANCELS, **NONSENSE, **NOTHING, "sleeps": None}
    await cluster.create(make_node("m"), make_node("n"))
    scheduler = cluster.schedule("s0", configuration=parse_configuration(_QUICK.format(f"{__name__}:BadHint"), seed=0))
    for number, name in enumerate(kinds, 1):  # of pods that are alike one is asked about
        await cluster.create(make_pod(name).req(cpu=f"{number}m").label("does", name))

    async def refused() -> bool:
        return scheduler.count_pending().get("unschedulable", 0) == len(kinds)

    await cluster.until(refused)
    await cluster.create(make_node("third"))
    for name in kinds:
        await cluster.bound(name)
    assert PluginFailed("Bad", "helps", "SystemExit") in logged(caplog, PluginFailed)


_QUICK = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- plugins: {{multiPoint: {{enabled: [{{name: '{}'}}]}}}}
"""


@pytest.mark.parametrize("kind", ["cancelled-error", "system-exit", "generator-exit", "sleeps"])
async def test_leader_all_of_whose_attempts_end_so_hands_the_election_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A plugin that cancelled the term's task, or raised CancelledError, ended the term without a log line; the leader kept the
    election, ready and idle."""
    await cluster.create(make_node("m"))
    bad = Scheduler(
        cluster.connect(),
        "bad",
        parse_configuration(_QUICK.format(f"{__name__}:BadFilter"), seed=0),
        patience=ProgressTimeout(first=1.0),
    )
    running = asyncio.ensure_future(bad.run())
    await cluster.until(cluster.leader)
    cluster.schedule("good")
    await cluster.create(*(make_pod(name).req(cpu="1m").label("does", kind) for name in "abc"))
    for name in "abc":
        assert await cluster.bound(name) == "m"
    assert await cluster.leader() == "good"
    assert logged(caplog, LeadershipAbandoned) or kind == "sleeps", "a leader that is silent is replaced anyway"
    assert ("Bad", "Filter") in {(item.plugin, item.point) for item in logged(caplog, PluginFailed)}
    running.cancel()
    await asyncio.wait((running,))


class Rounded(Bad):
    def score(self, state: Any, pod: Any, nodes: Any, feasible: Any) -> Any:
        values = np.array([0.1, 0.7])
        scores = 100 * values / values.max()
        return np.where(scores == 100.0, 100.00000000000001, scores)


async def test_scores_that_miss_the_range_by_rounding_are_clipped_and_that_is_said_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """100 * x / x.max() may be 100.00000000000001."""
    caplog.set_level(logging.WARNING)
    await cluster.create(make_node("m"), make_node("n"), make_pod("a").req(cpu="1m"), make_pod("b").req(cpu="1m"))
    cluster.schedule("s0", configuration=configuration(Rounded))
    assert await cluster.bound("a") and await cluster.bound("b")
    assert [message for message in caplog.messages if "clipped" in message] == [
        'plugin "Bad" in Score: scores from 14.285714285714286 to 100.00000000000001 are clipped to the range from 0 to 100'
    ]


class Forever:
    name = "Forever"

    def score(self) -> None:
        while True:  # polls for something that never happens; the test interrupts it
            time.sleep(0.01)


def test_program_without_a_stall_watch_interrupts_a_plugin_that_never_returns() -> None:
    """`pinnace why` and the comparison of policies did not return."""
    plugin = Forever()
    with (
        bounded_calls(0.05),
        pytest.raises(PluginError, match=r'plugin "Forever" failed in Score: Stalled: the code did not return'),
    ):
        call_plugin(plugin, "Score", plugin.score)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_many_short_plugin_calls_are_not_interrupted() -> None:
    plugin = Forever()
    ends = time.monotonic() + STALL / 2  # the loop is watched, too
    with bounded_calls(0.02):
        while time.monotonic() < ends:
            call_plugin(plugin, "Score", time.monotonic)
