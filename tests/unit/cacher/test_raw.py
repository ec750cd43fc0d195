from hypothesis import given
from hypothesis import strategies as st

from pinnace.apiserver.cacher.reflector import RawKeys, state_difference
from pinnace.apiserver.storage.interface import KeyChange, KeyValue

KEY = "/registry/elections/scheduler"


def put(key: str, revision: int, created: int = 0) -> KeyChange:
    return KeyChange(key, b"v%d" % revision, created or revision, revision, 7)


def delete(key: str, revision: int) -> KeyChange:
    return KeyChange(key, None, 0, revision)


def test_key_as_it_is() -> None:
    raw = RawKeys()
    raw.apply(put(KEY, 5))
    assert raw.get(KEY) == KeyValue(KEY, b"v5", 5, 5, 1, 7)
    raw.apply(put(KEY, 6, created=5))
    assert raw.get(KEY) == KeyValue(KEY, b"v6", 5, 6, 2, 7)
    raw.apply(delete(KEY, 7))
    assert raw.get(KEY) is None


def test_keys_below_a_prefix_in_order() -> None:
    raw = RawKeys()
    for revision, key in enumerate(("/registry/b/2", "/registry/b/1", "/registry/c/1"), 1):
        raw.apply(put(key, revision))
    assert [item.key for item in raw.items("/registry/b/")] == ["/registry/b/1", "/registry/b/2"]


def test_subscribers_are_notified_after_apply_until_they_unsubscribe() -> None:
    raw, told = RawKeys(), list[tuple[int, KeyValue | None]]()
    leave = raw.subscribe("/registry/elections/", lambda change: told.append((change.mod_revision, raw.get(change.key))))
    raw.apply(put(KEY, 5))
    raw.apply(put("/registry/other/x", 5))
    assert told == []
    raw.flush()
    raw.flush()
    assert told == [(5, raw.get(KEY))]
    leave()
    leave()
    raw.apply(delete(KEY, 6))
    raw.flush()
    assert len(told) == 1


def test_subscriber_may_unsubscribe_during_notification() -> None:
    raw, told = RawKeys(), list[int]()

    def once(change: KeyChange) -> None:
        told.append(change.mod_revision)
        leave()

    leave = raw.subscribe(KEY, once)
    raw.apply(put(KEY, 5))
    raw.apply(put(KEY, 6, created=5))
    raw.flush()
    assert told == [5]


def test_reload_notifies_subscribers_of_differences() -> None:
    raw, told = RawKeys(), list[KeyChange]()
    raw.subscribe("/registry/", told.append)
    for revision, name in enumerate("abcd", 1):
        raw.apply(put(f"/registry/x/{name}", revision))
    raw.flush()
    told.clear()
    state = [
        KeyValue("/registry/x/b", b"v2", 2, 2, 1, 7),
        KeyValue("/registry/x/c", b"new", 3, 12, 2),
        KeyValue("/registry/x/d", b"reborn", 11, 11, 1),
        KeyValue("/registry/x/e", b"born", 10, 10, 1),
    ]
    raw.reset(20, state)
    raw.flush()
    assert [(change.key[-1], change.value, change.mod_revision) for change in told] == [
        ("a", None, 20),
        ("d", None, 20),
        ("e", b"born", 10),
        ("d", b"reborn", 11),
        ("c", b"new", 12),
    ]
    assert raw.items("/registry/") == state


STATES = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=4).map(
    lambda state: {
        key: KeyValue(key, b"%d" % (created + more), created, created + more, 1) for key, (created, more) in state.items()
    }
)


@given(STATES, STATES)
def test_difference_leads_from_one_state_to_the_other(old: dict[str, KeyValue], new: dict[str, KeyValue]) -> None:
    raw = RawKeys()
    raw.reset(10, old.values())
    for change in state_difference(old, new, 20):
        raw.apply(change)
    assert [(item.key, item.value) for item in raw.items("")] == [(key, new[key].value) for key in sorted(new)]
