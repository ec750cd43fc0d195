"""Whose fence it is: judged from a cache that may be behind, and never wrong."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import election_key
from pinnace.api.status import Code
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.errors import Rejected, forbidden
from pinnace.apiserver.registry.fencing import FencedTerm, FenceVerifier, hash_secret
from pinnace.apiserver.storage.interface import Guard, KeyValue, StorageUnavailable

KEY = election_key("scheduler")
SECRET, OTHER_SECRET = b"sixteen bytes ..", b"sixteen others.."
USER = User("system:kube-scheduler", ())
HELD = FencedTerm("scheduler/7", Guard(KEY, 7), ("default-scheduler",))


class FakeCacher:
    """Has the election's key, at a revision. It is etcd, too: `etcd` are its answers, of which the last one comes again."""

    def __init__(self, revision: int, record: KeyValue | None) -> None:
        self.revision = revision
        self.record = record
        self.etcd = [(revision, record)]
        self.asked = 0
        self.failure: Exception | None = None

    def _answer(self) -> tuple[int, KeyValue | None]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.etcd.pop(0) if len(self.etcd) > 1 else self.etcd[0]

    async def get(self, key: str) -> KeyValue | None:
        return self._answer()[1]

    def raw_key(self, key: str) -> KeyValue | None:
        return self.record if key == KEY else None

    async def wait_until_fresh(self, timeout: float) -> int:
        self.revision, self.record = self._answer()
        return self.revision


class OnlyScheduler:
    """Lets USER campaign in the election "scheduler"."""

    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        assert (action.verb, action.resource, action.group) == ("campaign", "elections", "pinnace.io")
        if user is not USER or [*targets()] != [ActionTarget("", "scheduler")]:
            raise Rejected(forbidden("no"))


def record(token: int = 7, secret: bytes = SECRET, user: str = USER.name, value: bytes | None = None) -> KeyValue:
    election = Election(name="scheduler", user=user, secret_hash=hash_secret(secret), scheduler_names=["default-scheduler"])
    return KeyValue(KEY, election.SerializeToString() if value is None else value, token, token + 1, 1)


def term(
    cacher: FakeCacher, token: int = 7, secret: bytes = SECRET, user: User = USER, election: str = "scheduler"
) -> FencedTerm | None:
    fences = FenceVerifier(cacher, cacher, OnlyScheduler())
    return asyncio.run(fences.verify(Fence(election=election, token=token, secret=secret), user))


def test_holder_has_the_term_and_etcd_is_not_asked() -> None:
    cacher = FakeCacher(100, record())
    assert term(cacher) == HELD
    assert not cacher.asked


@pytest.mark.parametrize(
    "stored",
    [
        None,
        record(token=8),
        record(token=6),
        record(secret=OTHER_SECRET),
        record(user="another"),
        record(value=b""),
        record(value=b"\xff\xff"),
        record(value=Election(name="scheduler", user=USER.name).SerializeToString()),
    ],
    ids=["absent", "later", "earlier", "secret", "user", "empty", "unreadable", "of an older server"],
)
def test_only_the_leader_holds_the_token(stored: KeyValue | None) -> None:
    cacher = FakeCacher(100, stored)
    assert term(cacher) is None
    assert not cacher.asked, "the cache has seen the revision of the token, and so the end of its term"


def test_empty_secret_is_not_the_absence_of_a_hash() -> None:
    stored = record(value=Election(name="scheduler", user=USER.name).SerializeToString())
    assert term(FakeCacher(100, stored), secret=b"") is None


@pytest.mark.parametrize(("etcd", "expected"), [(record(), HELD), (None, None), (record(secret=OTHER_SECRET), None)])
def test_token_newer_than_the_cache_is_checked_in_etcd(etcd: KeyValue | None, expected: FencedTerm | None) -> None:
    for before in (None, record(token=3)):
        cacher = FakeCacher(6, before)
        cacher.etcd = [(7, etcd)]
        assert term(cacher) == expected
        assert cacher.asked <= 2


def test_leader_is_known_although_the_cache_does_not_follow() -> None:
    """As while the watch of etcd is broken: etcd is read."""
    cacher = FakeCacher(6, None)
    cacher.etcd = [(7, record())]
    assert term(cacher) == HELD
    assert (cacher.revision, cacher.asked) == (6, 1)


@pytest.mark.parametrize("stale", [1, 2])
def test_stale_answer_of_etcd_does_not_depose(stale: int) -> None:
    """https://github.com/etcd-io/etcd/issues/20418"""
    cacher = FakeCacher(6, None)
    cacher.etcd = [(6, None)] * stale + [(7, record())]
    assert term(cacher) == HELD


def test_future_token_is_fenced() -> None:
    cacher = FakeCacher(50, record())
    assert term(cacher, token=51) is None
    assert cacher.asked == 3


def test_without_an_answer_of_etcd_nothing_is_decided() -> None:
    cacher = FakeCacher(6, None)
    cacher.failure = StorageUnavailable("away")
    with pytest.raises(StorageUnavailable):
        term(cacher)


@pytest.mark.parametrize(("user", "election"), [(User("eve", ()), "scheduler"), (USER, "controllers")])
def test_fence_requires_permission_to_campaign(user: User, election: str) -> None:
    """Before anything is looked up: a caller without it learns nothing, not even whether a token is valid."""
    cacher = FakeCacher(6, None)
    with pytest.raises(Rejected) as caught:
        term(cacher, user=user, election=election)
    assert caught.value.refusal.code == Code.PERMISSION_DENIED
    assert not cacher.asked


@pytest.mark.parametrize(("election", "token"), [("scheduler", 0), ("e" * 254, 42), ("", 3), ("a/../b", 3), ("scheduler", -1)])
def test_fence_that_cannot_be(election: str, token: int) -> None:
    with pytest.raises(Rejected) as caught:
        term(FakeCacher(100, None), election=election, token=token)
    assert caught.value.refusal.code == Code.INVALID_ARGUMENT
