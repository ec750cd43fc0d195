"""Keys of several control planes in one etcd: what the contract of storages does not say about prefixes."""

from contextlib import aclosing

import pytest

from pinnace.apiserver.storage.interface import OUTSIDE, KeyChange, PrefixedStorage, Write, check_prefix
from tests.contract.steps import put, take
from tests.storage.memory import MemoryStorage

KEY = "/registry/pods/default/a"


async def test_keys_are_stored_below_the_prefix() -> None:
    shared = MemoryStorage()
    await put(PrefixedStorage(shared, "/staging"), KEY)
    assert [item.key for item in (await shared.page("/")).items] == ["/staging" + KEY]


async def test_two_prefixes_do_not_see_each_other() -> None:
    """`/a` is no prefix of `/ab` either."""
    shared = MemoryStorage()
    first, second = PrefixedStorage(shared, "/a"), PrefixedStorage(shared, "/ab")
    await put(first, KEY, b"first")
    await put(second, KEY, b"second")
    for storage, value in ((first, b"first"), (second, b"second")):
        assert [(item.key, item.value) for item in (await storage.page("/registry/")).items] == [(KEY, value)]


async def test_watch_keeps_revisions_of_foreign_keys() -> None:
    shared = MemoryStorage()
    own, other = PrefixedStorage(shared, "/own"), PrefixedStorage(shared, "/own2")
    first = await put(own, KEY, b"1")
    second = await put(other, KEY, b"2")
    third = await put(shared, KEY, b"3")
    async with aclosing(own.watch(first)) as watch:
        assert await take(watch, third) == [
            KeyChange(KEY, b"1", first, first),
            KeyChange(f"{OUTSIDE}/own2{KEY}", b"2", second, second),
            KeyChange(OUTSIDE + KEY, b"3", third, third),
        ]


async def test_refused_transaction_names_own_keys() -> None:
    storage = PrefixedStorage(MemoryStorage(), "/staging")
    revision = await put(storage, KEY)
    answer = await storage.transact([Write(KEY, b"", 0)])
    result = await storage.get(KEY)
    assert answer.current == {KEY: result} and result is not None and result.mod_revision == revision


@pytest.mark.parametrize("prefix", ["", "/staging", "/clusters/eu-1"])
def test_prefix_is_taken(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix", ["/", "staging", "/staging/", "//staging", "/a//b", "/a b", "/a\n", "/registry", "/a/pinnace.io"]
)
def test_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"is not a prefix|cannot contain the segment"):
        check_prefix(prefix)
