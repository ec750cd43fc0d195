"""What ends a stream that was opened rightfully."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import ExitStack, aclosing, suppress
from typing import Any

import pytest

from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.status import Code, Refusal
from pinnace.api.users import AUTHENTICATED
from pinnace.api.verbs_pb2 import DeleteRequest, WatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services import methods
from pinnace.apiserver.services.methods import CHECK_INTERVAL, MIN_TIMEOUT, StreamAuthorization, StreamReauthorizer
from pinnace.apiserver.storage.interface import StorageUnavailable
from tests.clock import FakeClock
from tests.contract.servers import AlwaysAllow
from tests.credentials import Shown
from tests.unit.auth.matrix import OTHER, OWN, PEOPLE, Caller, serving

PATIENCE = 10.0
WATCH = ResourceAction("watch", "pods")
EVE, VERA = (User(name, (AUTHENTICATED,)) for name in ("eve", "vera"))
FORBIDDEN = Refusal(Code.PERMISSION_DENIED, "Forbidden", "not any more")
UNKNOWN = Refusal(Code.UNAUTHENTICATED, "BadToken", "not any more")


class Renamed:
    """A Credential whose owner changes."""

    def __init__(self, owner: User | Refusal) -> None:
        self.owner = owner
        self.looks = 0

    def user(self) -> User:
        self.looks += 1
        if isinstance(self.owner, Refusal):
            raise Rejected(self.owner)
        return self.owner


class Scene:
    """Streams that wait for ever, and an authorizer that denies what it is told to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.roles: int | None = 1
        self.denied: set[User] = set()
        self.error: Exception | None = None
        self.asked: list[User] = []
        self.authorizations = StreamReauthorizer(self, lambda: self.roles, MIN_TIMEOUT, self.clock, random.Random(1))
        self.stack = ExitStack()
        self.running: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.authorizations.run())]

    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        self.asked.append(user)
        assert action == WATCH and list(targets()) == [ActionTarget("mine")]
        if self.error is not None:
            raise self.error
        if user in self.denied:
            raise Rejected(FORBIDDEN)

    async def open(self, user: User, credential: Any = None, seconds: float | None = None) -> asyncio.Future[list[bytes]]:
        """The stream's reader; it has read b"first"."""
        questions = [(WATCH, (ActionTarget("mine"),))]
        held = self.stack.enter_context(
            self.authorizations.authorize_stream(credential or Shown(user), user, seconds, questions)
        )
        reader = asyncio.ensure_future(read(held))
        self.running.append(reader)
        await asyncio.sleep(0.01)
        return reader

    async def tick(self) -> None:
        await self.clock.advance(CHECK_INTERVAL)
        for _ in range(10):
            await asyncio.sleep(0)


async def waiting() -> AsyncGenerator[bytes, None]:
    yield b"first"
    await asyncio.get_running_loop().create_future()


async def read(held: StreamAuthorization) -> list[bytes]:
    async with aclosing(waiting()) as responses:
        return [response async for response in held.wrap_responses(responses)]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for task in scene.running:
        task.cancel()
    await asyncio.gather(*scene.running, return_exceptions=True)
    scene.stack.close()


async def test_stream_ends_when_permission_is_revoked(scene: Scene) -> None:
    eve, vera = await scene.open(EVE), await scene.open(VERA)
    scene.denied = {EVE}
    await scene.tick()
    assert not eve.done(), "roles have not changed"
    scene.roles = 2
    await scene.tick()
    with pytest.raises(Rejected, match="not any more") as caught:
        await eve
    assert caught.value.refusal.code is Code.PERMISSION_DENIED
    assert not vera.done()


async def test_permission_is_checked_once_for_all_streams_of_a_user(scene: Scene) -> None:
    for user in (EVE, EVE, VERA, EVE):
        await scene.open(user)
    scene.roles = 2
    await scene.tick()
    await scene.tick()
    assert sorted(user.name for user in scene.asked) == ["eve", "vera"]


@pytest.mark.parametrize("error", [StorageUnavailable("no etcd"), Rejected(Refusal(Code.UNAVAILABLE, "CacheBehind", "wait"))])
async def test_failed_permission_check_is_repeated(scene: Scene, error: Exception) -> None:
    eve = await scene.open(EVE)
    scene.roles, scene.error, scene.denied = 2, error, {EVE}
    await scene.tick()
    assert not eve.done()
    scene.error = None
    await scene.tick()
    with pytest.raises(Rejected):
        await eve


async def test_permissions_are_not_checked_before_the_roles_are_known(scene: Scene) -> None:
    """An etcd that was restored from a backup may have none for a moment."""
    eve = await scene.open(EVE)
    scene.roles, scene.denied = None, {EVE}
    await scene.tick()
    assert not scene.asked
    assert not eve.done()


async def test_revoked_credential_ends_its_streams(scene: Scene) -> None:
    credential = Renamed(EVE)
    streams = [await scene.open(EVE, credential) for _ in range(3)]
    await scene.tick()
    assert credential.looks == 1
    credential.owner = UNKNOWN
    await scene.tick()
    for stream in streams:
        with pytest.raises(Rejected) as caught:
            await stream
        assert caught.value.refusal == UNKNOWN


async def test_changed_groups_require_a_new_stream(scene: Scene) -> None:
    credential = Renamed(EVE)
    stream = await scene.open(EVE, credential)
    credential.owner = User("eve", ("developers", AUTHENTICATED))
    await scene.tick()
    assert await stream == [b"first"]


async def test_stream_ends_without_error_at_its_timeout(scene: Scene) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await (await scene.open(EVE, seconds=0.05)) == [b"first"]


async def test_stream_that_ends_while_it_is_read_tells_nothing_more(scene: Scene) -> None:
    with scene.authorizations.authorize_stream(Shown(EVE), EVE, None, ()) as held:
        responses = held.wrap_responses(waiting())
        assert await anext(responses) == b"first"
        held.end()
        with pytest.raises(StopAsyncIteration):
            await anext(responses)


async def test_caller_that_disconnects_at_the_same_time_is_gone(scene: Scene) -> None:
    reader = await scene.open(EVE)
    held = next(iter(scene.authorizations._open))
    held.end(FORBIDDEN)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


def test_watches_that_begin_together_do_not_end_together() -> None:
    authorizations = StreamReauthorizer(AlwaysAllow(), lambda: None, MIN_TIMEOUT, FakeClock(), random.Random(1))
    drawn = [authorizations.watch_timeout(0) for _ in range(100)]
    assert MIN_TIMEOUT <= min(drawn) < 1.2 * MIN_TIMEOUT and 1.8 * MIN_TIMEOUT < max(drawn) <= 2 * MIN_TIMEOUT
    assert authorizations.watch_timeout(7) == 7
    assert authorizations.watch_timeout(10**6) <= 2 * MIN_TIMEOUT


class Follower:
    """A watch of the pods of a namespace, as somebody."""

    def __init__(self, server: Assembly, person: str, namespace: str, **options: Any) -> None:
        self._request = WatchRequest(namespace=namespace, options=ListOptions(**options))
        self._method = server.methods["/pinnace.v1.Pods/Watch"]
        self._caller = Caller(PEOPLE[person])
        self.heard = asyncio.Event()
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> int:
        """The revision to resume from."""
        revision = 0
        async with aclosing(self._method.stream(self._request, self._caller)) as responses:
            async for response in responses:
                revision = int(PodWatchResponse.FromString(response).resourceVersion or revision)
                self.heard.set()
        return revision


async def test_watch_ends_with_the_role_that_it_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "CHECK_INTERVAL", 0.05)
    async with serving() as server, asyncio.timeout(PATIENCE):
        eve, vera = (Follower(server, person, OWN) for person in ("editor", "viewer"))
        admin = Follower(server, "admin", OTHER)
        for item in (eve, vera, admin):
            await item.heard.wait()
        unbind = server.methods["/pinnace.v1.RoleBindings/Delete"]
        await unbind.call(DeleteRequest(namespace=OWN, name="eve"), Caller(PEOPLE["admin"]))
        with pytest.raises(Rejected, match='User "eve" cannot watch resource "pods"'):
            await eve.task
        await asyncio.sleep(0.2)
        for item in (vera, admin):
            assert not item.task.done()
            item.task.cancel()
            with suppress(asyncio.CancelledError):
                await item.task


async def test_watch_ends_when_its_caller_wants_it_to() -> None:
    async with serving() as server, asyncio.timeout(PATIENCE):
        assert await Follower(server, "viewer", OWN, timeoutSeconds=1).task > 0
