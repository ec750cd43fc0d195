from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import NODES, PODS
from pinnace.apiserver.cacher.store import CacheStore, SelectionPredicate
from pinnace.apiserver.storage.interface import KeyChange, KeyValue
from tests.builders import make_node
from tests.unit.cacher.world import CASES, pod, pod_change

ALL_PODS = SelectionPredicate.parse(PODS, "", "", "")


def store_of(*pods: Pod) -> CacheStore[Pod]:
    store = CacheStore(PODS)
    store.reset(5, [KeyValue(PODS.key_of(item), item.SerializeToString(), 5, 5, 1) for item in pods])
    return store


def names(
    store: CacheStore[Pod], selection: SelectionPredicate = ALL_PODS, after: str = "", limit: int | None = None
) -> list[str]:
    return [entry.key.removeprefix("/registry/pods/") for entry in store.candidates(selection, after, limit)]


def test_entries_come_in_key_order() -> None:
    store = store_of(pod("b"), pod("c", "a"), pod("a"))
    assert names(store) == ["a/c", "default/a", "default/b"]
    assert names(store, after=PODS.key("default", "a")) == ["default/b"]
    assert names(store, limit=2) == ["a/c", "default/a"]
    assert store.changed == 5


def test_namespace_is_not_the_beginning_of_another() -> None:
    store = store_of(pod("a"), pod("b", "default2"), pod("c", "defaul"))
    assert names(store, SelectionPredicate.parse(PODS, "default", "", "")) == ["default/a"]
    assert store.count("/registry/pods/default/", "") == 1


def test_list_of_one_name_reads_one_object() -> None:
    store = store_of(pod("a"), pod("b"), pod("a", "other"))
    of_a = SelectionPredicate.parse(PODS, "default", "", "metadata.name=a")
    assert names(store, of_a) == ["default/a"]
    assert names(store, of_a, after=PODS.key("default", "a")) == []
    assert names(store, SelectionPredicate.parse(PODS, "default", "", "metadata.name=z")) == []
    assert names(store, SelectionPredicate.parse(PODS, "", "", "metadata.name=a")) == ["default/a", "default/b", "other/a"]


def test_counting() -> None:
    store = store_of(pod("a"), pod("b"), pod("c"), pod("d", "other"))
    assert store.count(PODS.prefix, "") == 4
    assert store.count(PODS.prefix, PODS.key("default", "b")) == 2
    assert store.count(PODS.prefix + "default/", PODS.key("default", "b")) == 1
    assert store.count(PODS.prefix + "default/", PODS.key("default", "z")) == 0


def test_events_have_the_state_before_and_after() -> None:
    store = CacheStore(PODS)
    created = store.apply(pod_change(7, pod("a")))
    assert created is not None
    assert created.old is None
    assert created.new is store.entries[PODS.key("default", "a")]
    updated = store.apply(pod_change(8, pod("a", node="n1"), created=7))
    assert updated is not None
    assert updated.old is created.new
    assert updated.new is not None
    assert (updated.new.node, updated.new.create_revision, updated.new.mod_revision) == ("n1", 7, 8)
    deleted = store.apply(KeyChange(PODS.key("default", "a"), None, 0, 9))
    assert deleted is not None
    assert (deleted.old, deleted.new, deleted.revision) == (updated.new, None, 9)
    assert store.changed == 9
    assert store.entries == {}


def test_delete_of_what_is_not_there_is_no_event() -> None:
    assert CacheStore(PODS).apply(KeyChange(PODS.key("default", "a"), None, 0, 9)) is None


def test_only_pods_are_indexed_by_node() -> None:
    store = CacheStore(NODES)
    store.reset(1, [KeyValue(NODES.key("", "n1"), make_node("n1").build().SerializeToString(), 1, 1, 1)])
    assert [entry.node for entry in store.candidates(SelectionPredicate.parse(NODES, "", "", ""))] == [""]


def test_nodes_whose_pods_are_gone_leave_nothing_behind() -> None:
    store = store_of(pod("a", node="n0"))
    store.apply(pod_change(6, pod("a", node="n1"), created=5))
    store.apply(pod_change(7, pod("b", node="n2")))
    store.apply(KeyChange(PODS.key("default", "b"), None, 0, 8))
    assert set(vars(store)["_by_node"]) == {"n1"}


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n1", "n2", None]), st.sampled_from(["", "web"])), max_size=30
)


@given(STEPS)
def test_candidates_that_match_are_the_state(steps: list[tuple[str, str | None, str]]) -> None:
    store, state = CacheStore(PODS), dict[str, Pod]()
    for revision, (name, node, app) in enumerate(steps, 1):
        key = PODS.key("default", name)
        if node is None:
            state.pop(key, None)
            store.apply(KeyChange(key, None, 0, revision))
        else:
            state[key] = pod(name, node=node, app=app)
            store.apply(pod_change(revision, state[key]))
    for case in CASES:
        candidates = [candidate for candidate in store.candidates(case.selection) if case.selection.matches(candidate)]
        assert [item.key for item in candidates] == sorted(key for key, obj in state.items() if case.predicate(obj))
        assert all(item.value == state[item.key].SerializeToString() for item in candidates)
