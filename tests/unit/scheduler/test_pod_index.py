"""The index of pods: its columns, however they came about, equal those made from scratch."""

import random
from collections.abc import Mapping

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.selectors import parse_labels
from pinnace.scheduler.cache import pod_index
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_index import (
    AffinityTerm,
    PodIndex,
    Selection,
    TermKind,
    controller_of,
    pod_terms,
    selector_of_controller,
)
from pinnace.scheduler.cache.pod_info import PodInfo
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of

WEB = Selection(frozenset(("default",)), parse_labels("app=web"))


def counts(cache: Cache, of: Selection | AffinityTerm) -> dict[str, float]:
    return dict(zip(cache.nodes.names, cache.nodes.pods.count_pods(of).tolist(), strict=True))


def web(name: str, node: str = "n", namespace: str = "default") -> PodBuilder:
    return make_pod(name, namespace).label("app", "web").node(node)


def test_column_is_right_when_it_is_made_and_follows_what_happens() -> None:
    cache = cache_of(make_node("n"), make_node("m"), placed=[web("a"), web("b", namespace="other"), make_pod("c").node("n")])
    assert counts(cache, WEB) == {"n": 1, "m": 0}
    cache.assume_pod(PodInfo(web("d").build()), "m")
    assert counts(cache, WEB) == {"n": 1, "m": 1}
    cache.add_pod(PodInfo(web("a").build()), "m")
    assert counts(cache, WEB) == {"n": 0, "m": 2}
    cache.remove_pod(web("a").build().metadata.uid)
    assert counts(cache, WEB) == {"n": 0, "m": 1}


def test_pods_of_a_node_that_comes_back_are_counted() -> None:
    cache = cache_of(make_node("n"), make_node("m"), placed=[web("a"), web("b")])
    counts(cache, WEB)
    cache.remove_node("n")
    cache.add_pod(PodInfo(web("c").build()), "n")
    assert counts(cache, WEB) == {"m": 0}
    cache.set_node(make_node("n").build())
    assert counts(cache, WEB) == {"m": 0, "n": 3}


def test_pods_that_are_being_deleted_can_be_left_out() -> None:
    cache = cache_of(make_node("n"), placed=[web("a"), web("b").terminating()])
    assert counts(cache, WEB) == {"n": 2}
    assert counts(cache, Selection(WEB.namespaces, WEB.labels, living=True)) == {"n": 1}


def test_pods_of_one_controller() -> None:
    mine = make_pod("a").owner("ReplicaSet", "rs", uid="u1").node("n")
    cache = cache_of(make_node("n"), placed=[mine, make_pod("b").owner("ReplicaSet", "rs", uid="u2").node("n"), web("c")])
    assert counts(cache, Selection(None, selector_of_controller("u1"))) == {"n": 1}


def test_term_is_known_as_long_as_a_pod_states_it() -> None:
    cache = cache_of(make_node("n"))
    loner = web("a").anti_affinity("app=web", "zone")
    (term,) = pod_terms(loner.build())
    assert not cache.nodes.pods.has_terms(TermKind.ANTI_AFFINITY)
    cache.add_pod(PodInfo(loner.build()), "n")
    assert cache.nodes.pods.has_terms(TermKind.ANTI_AFFINITY) and not cache.nodes.pods.has_terms(TermKind.AFFINITY)
    assert list(cache.nodes.pods.terms_for(TermKind.ANTI_AFFINITY, "default", {"app": "web"})) == [term]
    assert list(cache.nodes.pods.terms_for(TermKind.ANTI_AFFINITY, "default", {"app": "db"})) == []
    assert list(cache.nodes.pods.terms_for(TermKind.ANTI_AFFINITY, "other", {"app": "web"})) == []
    assert counts(cache, term) == {"n": 1}
    cache.remove_pod(loner.build().metadata.uid)
    assert not cache.nodes.pods.has_terms(TermKind.ANTI_AFFINITY)
    assert counts(cache, term) == {"n": 0}


def test_column_that_was_asked_for_least_recently_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_index, "_COLUMNS", 2)
    index = PodIndex({"n": 0})
    group = index.add_pod(web("a").build(), "n")
    other = Selection(None, parse_labels("!gone"))
    for selection in (WEB, other, WEB, Selection(None, parse_labels("app"))):
        assert index.count_pods(selection).tolist() == [1]
    assert len(group.columns) == 2
    index.remove_pod(group, "n")
    assert index.count_pods(WEB).tolist() == index.count_pods(other).tolist() == [0]


SELECTORS = [
    "",
    "app=a",
    "app in (a,b)",
    "app notin (a)",
    "!app",
    "tier",
    "app=a,tier=x",
    "app!=b,tier",
    "app in (b,c),tier in (x)",
]
SELECTIONS = [
    Selection(namespaces, parse_labels(text), living)
    for text in SELECTORS
    for namespaces in (None, frozenset(("n1",)), frozenset(("n1", "n2")), frozenset[str]())
    for living in (False, True)
] + [Selection(None, selector_of_controller("u1")), Selection(frozenset(("n1",)), selector_of_controller("u2"))]


def any_pod(rng: random.Random, uid: str) -> Pod:
    pod = make_pod(uid, rng.choice(["n1", "n2"])).uid(uid)
    for key, values in (("app", "abc"), ("tier", "xy")):
        if rng.random() < 0.7:
            pod.label(key, rng.choice(values))
    if rng.random() < 0.3:
        pod.owner("ReplicaSet", "rs", uid=rng.choice(["u1", "u2"]))
    if rng.random() < 0.2:
        pod.terminating()
    if rng.random() < 0.3:
        pod.anti_affinity(rng.choice(SELECTORS), rng.choice(["zone", "host"]))
    if rng.random() < 0.3:
        pod.affinity(rng.choice(SELECTORS), rng.choice(["zone", "host"]), weight=rng.choice([0, 1, 2]))
    return pod.build()


def matches(pod: Pod, of: Selection | AffinityTerm) -> bool:
    if isinstance(of, AffinityTerm):
        return of in pod_terms(pod)
    labels = {**pod.metadata.labels, "": controller_of(pod)}
    alive = not pod.metadata.HasField("deletionTimestamp")
    return (
        (alive or not of.living)
        and (of.namespaces is None or pod.metadata.namespace in of.namespaces)
        and of.labels.matches(labels)
    )


@pytest.mark.parametrize("seed", range(15))
def test_any_history_leaves_what_a_new_index_would_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_index, "_COLUMNS", 20)
    rng = random.Random(seed)
    cache, placed = Cache(), dict[str, tuple[Pod, str]]()
    for _ in range(400):
        uid, node = f"p{rng.randrange(30)}", f"n{rng.randrange(6)}"
        match rng.choice(["place", "place", "place", "remove", "node", "no node", "what if", "ask", "ask", "ask"]):
            case "place":
                pod = placed[uid][0] if uid in placed else any_pod(rng, uid)
                cache.add_pod(PodInfo(pod), node)
                placed[uid] = pod, node
            case "remove":
                cache.remove_pod(uid)
                placed.pop(uid, None)
            case "node":
                cache.set_node(make_node(node).build())
            case "no node":
                cache.remove_node(node)
            case "what if" if node in cache.nodes.names:
                with cache.what_if() as what_if:
                    for item in list(cache.pods_on(node)):
                        what_if.remove_pod(item)
                    what_if.add_pod(PodInfo(any_pod(rng, "other")), node)
                    what_if.undo_adds()
            case "ask":
                check(cache, placed, rng.choice(SELECTIONS))
                check_terms(cache, placed, rng)
    for selection in SELECTIONS:
        check(cache, placed, selection)


def test_hypothetical_removal_survives_a_hypothetical_equal_pod() -> None:
    cache = cache_of(make_node("n"), placed=[web("a")])
    with cache.what_if() as what_if:
        what_if.remove_pod(*cache.pods_on("n"))
        what_if.add_pod(PodInfo(web("b").build()), "n")
        what_if.undo_adds()
    assert counts(cache, WEB) == {"n": 1}
    cache.remove_pod(web("a").build().metadata.uid)
    assert counts(cache, WEB) == {"n": 0}


def check(cache: Cache, placed: Mapping[str, tuple[Pod, str]], of: Selection | AffinityTerm) -> None:
    matching = [node for pod, node in placed.values() if matches(pod, of)]
    assert counts(cache, of) == {name: matching.count(name) for name in cache.nodes.names}


def check_terms(cache: Cache, placed: Mapping[str, tuple[Pod, str]], rng: random.Random) -> None:
    labels = dict(any_pod(rng, "other").metadata.labels)
    for kind in TermKind:
        stated = {term for pod, _ in placed.values() for term in pod_terms(pod) if term.kind is kind}
        result = list(cache.nodes.pods.terms_for(kind, "default", labels))
        about = {item for item in stated if item.namespace_selector is not None or "default" in item.namespaces}
        assert len(result) == len(set(result)) and set(result) == {term for term in about if term.labels.matches(labels)}
        assert cache.nodes.pods.has_terms(kind) is bool(stated)
        if stated:
            check(cache, placed, rng.choice(sorted(stated, key=str)))
