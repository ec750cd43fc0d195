"""Caches of custom kinds, which the watch cache makes when it meets their keys."""

import pytest

from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CustomResource, custom_row
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import RevisionExpired, SelectionPredicate
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange, KeyValue
from tests.storage.memory import MemoryStorage

PREFIX = "/registry/widgets.example.com/"
KEY = f"{PREFIX}default/a"
VALUE = CustomObject(kind="Widget", apiVersion="example.com/v1").SerializeToString()


def selection_of(resource: CustomResource) -> SelectionPredicate:
    return SelectionPredicate.parse(resource, "", "", "")


def make_cacher(*keys: str, revision: int = 5) -> Cacher:
    cacher = Cacher(MemoryStorage())
    cacher.install_state(revision, [KeyValue(key, VALUE, 3, 3, 1) for key in keys])
    return cacher


def test_loaded_objects_of_custom_kinds_are_cached_without_their_definition() -> None:
    cacher = make_cacher(KEY, "/registry/gadgets.example.com/b")
    assert [cache.resource.stored_name for cache in cacher.custom_caches()] == ["widgets.example.com", "gadgets.example.com"]
    assert cacher.cache_of(custom_row(PREFIX)).count("default") == 1


def test_object_of_a_new_kind_is_cached() -> None:
    cacher = make_cacher()
    cacher.apply_changes(ChangeBatch(6, [KeyChange(KEY, VALUE, 6, 6)]))
    assert cacher.cache_of(custom_row(PREFIX)).get(KEY) is not None


def test_keys_outside_of_the_registry_are_no_custom_objects() -> None:
    cacher = make_cacher("/pinnace.io/other", "/registry/elections/x.y")
    assert cacher.custom_caches() == []


def test_watch_from_before_the_history_of_a_kind_is_expired() -> None:
    cacher, resource = make_cacher(), custom_row(PREFIX)
    cacher.apply_changes(ChangeBatch(7, []))
    cacher.begin_custom_resource(resource, 7)
    with pytest.raises(RevisionExpired):
        cacher.cache_of(resource).watch(selection_of(resource), 6)
    cacher.cache_of(resource).watch(selection_of(resource), 7).close()


def test_empty_cache_of_a_removed_kind_is_dropped() -> None:
    cacher, resource = make_cacher(KEY), custom_row(PREFIX)
    cacher.end_custom_resource(resource)
    assert cacher.custom_caches(), "an object without a definition stays in etcd, and in the cache"
    cacher.apply_changes(ChangeBatch(8, [KeyChange(KEY, None, 0, 8)]))
    cacher.end_custom_resource(resource)
    assert cacher.custom_caches() == []
