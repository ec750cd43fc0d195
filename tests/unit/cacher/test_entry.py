from pinnace.api.core_v1_pb2 import Pod
from pinnace.apiserver.cacher.store import CacheEntry
from tests.unit.cacher.world import pod


def entry() -> CacheEntry[Pod]:
    return CacheEntry(Pod, "/registry/pods/default/a", pod("a", app="web").SerializeToString(), 3, 812)


def test_object_has_its_resource_version() -> None:
    assert entry().obj.metadata.resourceVersion == "812"
    assert Pod.FromString(entry().encoded_with_revision) == entry().obj


def test_it_is_parsed_once() -> None:
    one = entry()
    assert one.obj is one.obj
    assert one.parse_uncached() is one.obj


def test_peek_is_not_kept() -> None:
    one = entry()
    assert one.parse_uncached() is not one.parse_uncached()
    one.cache_object()
    assert one.parse_uncached() is one.parse_uncached()


def test_released_entry_is_parsed_again() -> None:
    one = entry()
    before = one.obj
    one.release_object()
    assert one.obj is not before
    assert one.obj == before
