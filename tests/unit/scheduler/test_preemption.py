"""Who is preempted, and where: the rules one by one."""

import pytest

from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import NodeTable, Nominated, Status
from pinnace.scheduler.framework.filtering import SingleNodeFilter
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.preempting import Bench, budget, settled

MESSAGE = "preemption: 0/{} nodes are available: {}."


def node(name: str, cpu: int = 4) -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="4Gi", pods=10)


def low(name: str, on: str, cpu: int = 4, priority: int = 0, started: float = 100) -> PodBuilder:
    return make_pod(name).req(cpu=cpu).node(on).priority(priority).started(started)


HIGH = make_pod("high").req(cpu=4).priority(1000)


def chosen(cache: Cache, pod: PodBuilder = HIGH) -> tuple[str, list[str]]:
    bench = Bench(cache)
    answer = bench.preempt(pod)
    assert isinstance(answer, Nominated), answer
    return answer.node, bench.evicted


def test_lower_priorities_only() -> None:
    cache = cache_of(node("a"), node("b"), placed=[low("equal", "a", priority=1000), low("less", "b", priority=999)])
    assert chosen(cache) == ("b", ["less"])


def test_preemption_takes_the_fewest_and_least_important_victims() -> None:
    placed = [low(f"p{i}", "a", cpu=1, priority=i) for i in range(4)]
    assert chosen(cache_of(node("a"), placed=placed), make_pod("high").req(cpu=2).priority(10)) == ("a", ["p1", "p0"])


def test_longest_running_of_equal_victims_is_kept() -> None:
    placed = [low(f"p{i}", "a", cpu=2, started=100 + i) for i in range(2)]
    assert chosen(cache_of(node("a"), placed=placed), make_pod("high").req(cpu=2).priority(10)) == ("a", ["p1"])


@pytest.mark.parametrize(
    "worse",
    [
        [low("x", "b", priority=11)],
        [low("x", "b", cpu=2, priority=10), low("y", "b", cpu=2, priority=9)],
        [low("x", "b", priority=10, started=50)],
        [low("x", "b", cpu=2, priority=10, started=200), low("y", "b", cpu=2, priority=-(1 << 31), started=200)],
    ],
    ids=["highest priority", "sum of priorities", "latest start", "number"],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_best_node(worse: list[PodBuilder], swapped: bool) -> None:
    nodes = [node("b"), node("a")] if swapped else [node("a"), node("b")]
    assert chosen(cache_of(*nodes, placed=[low("best", "a", priority=10), *worse])) == ("a", ["best"])


def test_violations_of_budgets_come_first() -> None:
    cache = cache_of(node("a"), node("b"), placed=[low("kept", "a").label("app", "x"), low("lost", "b", priority=900)])
    bench = Bench(cache, budget("x", "app=x", 0))
    assert bench.preempt(HIGH) == Nominated("b") and bench.evicted == ["lost"]


def test_protected_pod_is_reprieved_first() -> None:
    placed = [low("kept", "a", cpu=2).label("app", "x"), low("lost", "a", cpu=2, priority=5)]
    bench = Bench(cache_of(node("a"), placed=placed), budget("x", "app=x", 0))
    assert bench.preempt(make_pod("high").req(cpu=2).priority(10)) == Nominated("a") and bench.evicted == ["lost"]


@pytest.mark.parametrize(("allowed", "disrupted", "evicted"), [(1, [], ["p0"]), (0, ["p0"], ["p0"]), (0, [], ["other"])])
def test_budgets_that_allow_it(allowed: int, disrupted: list[str], evicted: list[str]) -> None:
    placed = [low("p0", "a", cpu=2).label("app", "x"), low("other", "a", cpu=2, priority=5)]
    bench = Bench(cache_of(node("a"), placed=placed), budget("x", "app=x", allowed, *disrupted))
    bench.preempt(make_pod("high").req(cpu=2).priority(10))
    assert bench.evicted == evicted


def test_victims_of_the_other_filters() -> None:
    taken = make_pod("port").host_port(80).node("a")
    cache = cache_of(node("a"), placed=[taken, low("other", "a", cpu=1)])
    assert chosen(cache, make_pod("high").host_port(80).priority(10)) == ("a", ["port"])
    away = make_pod("high").req(cpu=1).priority(10).anti_affinity("app=x", "kubernetes.io/hostname")
    cache = cache_of(node("a"), placed=[low("x", "a", cpu=1).label("app", "x"), low("other", "a", cpu=1)])
    assert chosen(cache, away) == ("a", ["x"])


@pytest.mark.parametrize(
    ("nodes", "placed", "reasons"),
    [
        ([node("a")], [low("p", "a", priority=1000)], "1 No preemption victims found for incoming pod"),
        ([node("a").taint("gpu")], [low("p", "a")], "1 Preemption is not helpful for scheduling"),
        ([node("a")], [low("p", "a", cpu=1), low("q", "a", cpu=1, priority=1000)], "1 Insufficient cpu"),
        ([node("a", cpu=2)], [low("p", "a", cpu=1)], "1 Preemption is not helpful for scheduling"),
        (
            [node("a"), node("b").taint("gpu")],
            [low("p", "a", cpu=2, priority=1000), low("q", "a", cpu=1)],
            "1 Insufficient cpu, 1 Preemption is not helpful for scheduling",
        ),
        (
            [node("a"), node("b").taint("gpu")],
            [low("p", "a", priority=1000)],
            "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling",
        ),
    ],
)
def test_why_it_does_not_help(nodes: list[NodeBuilder], placed: list[PodBuilder], reasons: str) -> None:
    bench = Bench(cache_of(*nodes, placed=placed))
    assert bench.preempt(HIGH) == Status(MESSAGE.format(len(nodes), reasons)) and not bench.evicted


ALONE = make_pod("high").req(cpu=1).priority(1000).anti_affinity("app=x", "kubernetes.io/hostname")
PORT = make_pod("high").req(cpu=1).priority(1000).host_port(80)
NO_PORTS = "1 node(s) didn't have free ports for the requested pod ports"
NOT_ALONE = "1 node(s) didn't match pod anti-affinity rules"


def full(important: PodBuilder, cpu: int = 3) -> list[PodBuilder]:
    """A pod that cannot be a victim, and a pod that takes the rest of the node."""
    return [important.node("a").priority(1000).req(cpu=cpu), low("p", "a", cpu=4 - cpu)]


@pytest.mark.parametrize(
    ("pod", "placed", "reasons"),
    [
        (ALONE, full(make_pod("x").label("app", "x")), NOT_ALONE),
        (ALONE, full(make_pod("x").label("app", "x"), cpu=4), "1 Insufficient cpu"),
        (PORT, full(make_pod("x").host_port(80)), NO_PORTS),
        (PORT, full(make_pod("x").host_port(80), cpu=4), NO_PORTS),
        (PORT, [*full(make_pod("x"), cpu=4), low("y", "a", cpu=0).host_port(80)], "1 Insufficient cpu"),
    ],
    ids=["anti-affinity", "no room, then anti-affinity", "port", "port before room", "the port of a victim"],
)
def test_reason_is_what_remains_without_the_victims(pod: PodBuilder, placed: list[PodBuilder], reasons: str) -> None:
    """kubernetes#97182: "Insufficient cpu", which preemption would cure, hid the reason that it would not."""
    bench = Bench(cache_of(node("a").label("kubernetes.io/hostname", "a"), placed=placed))
    expected = Status(MESSAGE.format(1, reasons))
    assert bench.preempt(pod) == expected and not bench.evicted
    plugin, wanted = bench.plugin(), info(pod)
    for _ in range(2):  # the second search uses the results of the first one
        assert plugin.post_filter({}, wanted, bench.cache.nodes, bench.diagnose(wanted)) == expected


def test_reasons_of_a_dry_run_are_those_of_the_present_state() -> None:
    bench = Bench(cache_of(node("a"), placed=full(make_pod("x").host_port(80))))
    plugin, wanted = bench.plugin(), info(PORT)
    assert plugin.post_filter({}, wanted, bench.cache.nodes, bench.diagnose(wanted)) == Status(MESSAGE.format(1, NO_PORTS))
    bench.cache.remove_pod(info(make_pod("x")).uid)
    bench.cache.add_pod(info(low("y", "a", cpu=4, priority=1000)), "a")
    answer = plugin.post_filter({}, wanted, bench.cache.nodes, bench.diagnose(wanted))
    assert answer == Status(MESSAGE.format(1, "1 Insufficient cpu"))


def test_room_that_is_kept_for_another_pod_remains_as_the_reason() -> None:
    cache = cache_of(node("a"), placed=[low("p", "a", cpu=4)])
    cache.nominate_pod(info(make_pod("other").host_port(80).priority(1000)), "a")
    assert Bench(cache).preempt(PORT) == Status(MESSAGE.format(1, NO_PORTS))


WEB = make_pod("high").req(cpu=1).priority(1000).label("app", "web")
MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
HOPELESS = pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (WEB.affinity("app=db", "zone"), "node(s) didn't match pod affinity rules"),
        (make_pod("high").req(cpu=1).priority(1000).spread("app=web", "rack"), MISSING_LABEL),
        (make_pod("high").req(cpu=1).priority(1000).spread("app=web", "zone").spread("app=web", "rack"), MISSING_LABEL),
        (make_pod("high").req(cpu=5).priority(1000), "Preemption is not helpful for scheduling"),
    ],
    ids=["nobody to be near", "not in the topology", "too many, and not in another topology", "too small"],
)


@HOPELESS
def test_where_no_pod_is_to_blame_nothing_is_tried(pod: PodBuilder, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although pods of a lower priority are there, and were they gone, there would be room."""
    wide = [make_node(name).capacity(cpu=4, memory="4Gi", pods=10).label("zone", name) for name in "ab"]
    bench = Bench(cache_of(*wide, placed=[low(f"p{name}", name).label("app", "web") for name in "ab"]))
    diagnosis, asked = bench.diagnose(info(pod)), []
    run_filters = bench.framework.run_filters
    monkeypatch.setattr(bench.framework, "run_filters", lambda *args: asked.append(args) or run_filters(*args))
    answer = bench.plugin().post_filter({}, info(pod), bench.cache.nodes, diagnosis)
    assert answer == Status(MESSAGE.format(2, f"2 {reason}")) and not asked


@HOPELESS
def test_nominated_node_cannot_take_the_pod_any_more(pod: PodBuilder, reason: str) -> None:
    """It does not wait until the victims there are gone."""
    cache = cache_of(node("a").label("zone", "a"), placed=[low("p", "a").label("app", "web")])
    cache.nominate_pod(info(pod), "a")
    bench = Bench(cache)
    bench.leaving = {info(make_pod("p")).uid}
    assert bench.preempt(pod) == Status(MESSAGE.format(1, f"1 {reason}"))


def test_anti_affinity_of_a_victim_does_not_prevent_preemption() -> None:
    """Neither are too many of them."""
    cache = cache_of(node("a").label("zone", "a"), placed=[low("p", "a").label("app", "db")])
    assert chosen(cache, make_pod("high").req(cpu=1).priority(10).anti_affinity("app=db", "zone")) == ("a", ["p"])
    cache.set_node(node("b").label("zone", "b").build())
    cache.add_pod(info(low("equal", "b", priority=10)), "b")
    spread = make_pod("high").req(cpu=1).priority(10).label("app", "db").spread("app=db", "zone")
    assert chosen(cache, spread) == ("a", ["p"])


def test_not_eligible() -> None:
    cache = cache_of(node("a"), placed=[low("p", "a")])
    bench = Bench(cache)
    never = make_pod("high").req(cpu=4).priority(1000).preemption_policy("Never")
    assert bench.preempt(never) == Status("preemption: not eligible due to preemptionPolicy=Never.")
    cache.nominate_pod(info(HIGH), "a")
    bench.leaving = {info(make_pod("p")).uid}
    assert bench.preempt(HIGH) == Nominated("a", "preemption: not eligible due to a terminating pod on the nominated node.")
    bench.leaving.clear()
    assert bench.preempt(HIGH) == Nominated("a") and bench.evicted == ["p"]


def test_room_that_is_kept_for_another_is_not_there() -> None:
    cache = cache_of(node("a"), node("b"), placed=[low("p", "a"), low("q", "b", priority=5)])
    cache.nominate_pod(info(make_pod("other").req(cpu=4).priority(1000)), "a")
    assert chosen(cache) == ("b", ["q"])
    assert chosen(cache, make_pod("higher").req(cpu=4).priority(1001)) == ("a", ["p"])


def test_dry_run_changes_nothing() -> None:
    cache = cache_of(node("a"), placed=[low(f"p{i}", "a", cpu=1).host_port(80 + i).label("app", "x") for i in range(4)])
    before = cache.nodes.free("cpu").tolist(), cache.node_version("a")
    chosen(cache)
    assert (cache.nodes.free("cpu").tolist(), cache.node_version("a")) == before
    assert cache.nodes.used_ports.taken(info(make_pod("b").host_port(81)).requests.ports) == {"a"}


def questions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of which is asked from now on whether the pod would fit there."""
    asked: list[int] = []
    passes = SingleNodeFilter.passes_filters

    def counted(self: SingleNodeFilter, pod: PodInfo, row: int, nodes: NodeTable) -> bool:
        asked.append(row)
        return passes(self, pod, row, nodes)

    monkeypatch.setattr(SingleNodeFilter, "passes_filters", counted)
    return asked


def test_number_of_dry_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{i}" for i in range(40)]
    cache = cache_of(*map(node, names), placed=[low(f"p-{name}", name) for name in names])
    bench, asked = Bench(cache), questions(monkeypatch)
    bench.preempt(HIGH, minCandidateNodesPercentage=10, minCandidateNodesAbsolute=1)
    assert len(asked) == 4 * 2, "for each candidate, without the pod and with it again"


def test_victims_are_cached_until_the_node_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{i}" for i in range(4)]
    cache = cache_of(*map(node, names), placed=[low(f"p-{name}", name) for name in names])
    bench = Bench(cache)
    plugin, pod = bench.plugin(), info(HIGH)
    diagnosis = bench.diagnose(pod)
    first = settled(plugin.post_filter({}, pod, cache.nodes, diagnosis))
    asked = questions(monkeypatch)
    assert settled(plugin.post_filter({}, pod, cache.nodes, diagnosis)) == first and not asked
    cache.set_start_time(info(make_pod("p-n1")).uid, 500)
    assert settled(plugin.post_filter({}, pod, cache.nodes, diagnosis)) == Nominated("n1") and len(asked) == 2


def test_failed_preemption_is_reused_for_the_same_diagnosis_only(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_of(node("small", cpu=2), placed=[low("p", "small", cpu=1)])
    bench, asked = Bench(cache), []
    plugin, pod = bench.plugin(), info(HIGH)
    diagnosis = bench.diagnose(pod)
    first = plugin.post_filter({}, pod, cache.nodes, diagnosis)
    assert isinstance(first, Status)
    ask = bench.framework.run_single_filter
    monkeypatch.setattr(bench.framework, "run_single_filter", lambda *args: asked.append(args) or ask(*args))
    assert plugin.post_filter({}, info(HIGH), cache.nodes, diagnosis) == first and not asked
    assert plugin.post_filter({}, pod, cache.nodes, bench.diagnose(pod)) == first and asked
    cache.set_node(node("small", cpu=4).build())
    assert settled(plugin.post_filter({}, pod, cache.nodes, bench.diagnose(pod))) == Nominated("small")


def test_failed_preemption_is_recomputed_after_a_change() -> None:
    """Why the node refuses the pod may be the same."""
    cache = cache_of(node("a"), placed=[low("equal", "a", priority=1000)])
    bench = Bench(cache)
    plugin, pod = bench.plugin(), info(HIGH)
    diagnosis = bench.diagnose(pod)
    assert isinstance(plugin.post_filter({}, pod, cache.nodes, diagnosis), Status)
    cache.remove_pod(info(make_pod("equal")).uid)
    cache.add_pod(info(low("p", "a")), "a")
    assert settled(plugin.post_filter({}, pod, cache.nodes, diagnosis)) == Nominated("a")


def test_args() -> None:
    bench = Bench(cache_of(node("a"), placed=[low("p", "a")]))
    with pytest.raises(ValueError, match="minCandidateNodesPercentage: expected a whole number from 0 to 100, got 101"):
        bench.preempt(HIGH, minCandidateNodesPercentage=101)
    with pytest.raises(ValueError, match="cannot be 0 together"):
        bench.preempt(HIGH, minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0)
