"""An index agrees with the store of its informer after any changes."""

import random

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta, Index, diff_stores
from tests.builders import make_pod


def by_app(pod: Pod) -> str:
    return pod.metadata.labels.get("app", "")


def pod(name: str, app: str = "", uid: str = "") -> Pod:
    builder = make_pod(name).uid(uid or name)
    return (builder.label("app", app) if app else builder).build()


def names(index: Index[Pod], app: str) -> list[str]:
    return [item.metadata.name for item in index.under(app).values()]


def test_index_follows_the_keys_of_objects() -> None:
    index = Index(by_app, [pod("a", "x"), pod("b", "y")])
    index.apply_deltas([Delta(ADDED, pod("c", "x"), None), Delta(ADDED, pod("d"), None)])
    assert names(index, "x") == ["a", "c"] and names(index, "") == names(index, "z") == []
    index.apply_deltas([Delta(MODIFIED, pod("a", "y"), pod("a", "x")), Delta(DELETED, pod("b", "y"), pod("b", "y"))])
    assert names(index, "x") == ["c"] and names(index, "y") == ["a"]
    index.apply_deltas([Delta(MODIFIED, pod("a"), pod("a", "y")), Delta(DELETED, pod("e", "x"), None)])
    assert names(index, "x") == ["c"] and names(index, "y") == []


def test_changed_object_keeps_its_position() -> None:
    index = Index(by_app, [pod("a", "x"), pod("b", "x")])
    index.apply_deltas([Delta(MODIFIED, pod("a", "x"), pod("a", "x"))])
    assert names(index, "x") == ["a", "b"]


def test_recreated_object_replaces_the_old_one() -> None:
    index = Index(by_app, [pod("a", "x", uid="1")])
    index.apply_deltas([Delta(ADDED, pod("a", "x", uid="2"), pod("a", "x", uid="1"))])
    assert list(index.under("x")) == ["2"]


def test_index_equals_a_rebuilt_index() -> None:
    rng = random.Random(1)
    state: dict[str, Pod] = {}
    index = Index(by_app)
    for _ in range(300):
        after = dict(state)
        for name in rng.sample("abcdef", 2):
            after.pop(name, None)
            if rng.random() < 0.7:
                changed = pod(name, rng.choice(["", "x", "y"]), f"{name}{rng.randrange(2)}")
                changed.metadata.resourceVersion = str(rng.random())
                after[name] = changed
        index.apply_deltas(diff_stores(state, after))
        state = after
        for app in "xy":
            assert index.under(app) == Index(by_app, state.values()).under(app)
