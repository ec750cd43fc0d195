"""Who may hold the leases of nodes, and give them up: heartbeats through the same door as gRPC's, as everybody."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest

from pinnace.api.names import NodeNames
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.rbac_v1_pb2 import PolicyRule, Role, RoleBinding, RoleRef, Subject
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import NODES_GROUP, User
from pinnace.apiserver.auth.authorizer import NodeAuthorizer
from pinnace.apiserver.auth.permissions import HEARTBEAT, ActionTarget, AuthorizationDecision, ResourceAction
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.nodes import MAX_NODES, PERMISSION_CHUNK
from pinnace.apiserver.storage.interface import Committed, CompareFailed, KeyValue, Write
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

PATIENCE = 10.0
CORE = User("system:node:core", (NODES_GROUP, AUTHENTICATED), NodeNames.parse(["core-*"]))
CORE_WITHOUT = User("system:node:core", (NODES_GROUP, AUTHENTICATED), NodeNames.parse([]))
"""The same fleet, when the node is not its own any more."""
EDGE, ADMIN, NOBODY = PEOPLE["fleet"], PEOPLE["admin"], PEOPLE["nobody"]


class Counting(MemoryStorage):
    """Counts the leases that it grants, and knows what was written to those of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.granted = 0
        self.written: list[str] = []

    async def grant_lease(self, ttl: int) -> int:
        self.granted += 1
        return await super().grant_lease(ttl)

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        self.written += [write.key for write in writes if write.key.startswith(LEASES.prefix)]
        return await super().transact(writes)


class Door:
    """An API server without a transport, and the sessions that are open with it."""

    def __init__(self, assembly: Assembly, storage: Counting) -> None:
        self.assembly = assembly
        self.storage = storage
        self.talks: list[Talk] = []

    async def open(self, user: User, holder: str, nodes: Sequence[str], session: int = 0) -> "Talk":
        """Raises Rejected."""
        talk = Talk(self.assembly, user, HeartbeatRequest.Open(holder=holder, nodes=nodes, session=session))
        self.talks.append(talk)
        opened = await talk.hear()
        assert opened.HasField("opened"), opened
        talk.session = opened.opened.session
        return talk

    async def lease(self, node: str) -> KeyValue | None:
        return await self.storage.get(LEASES.key(NODE_LEASE_NAMESPACE, node))

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 (the storage in memory has no event to wait for)
                await asyncio.sleep(0.001)

    async def held(self, node: str) -> KeyValue:
        """Its Lease object, once it is there."""

        async def there() -> bool:
            return await self.lease(node) is not None

        await self.until(there)
        result = await self.lease(node)
        assert result is not None
        return result

    async def free(self, node: str) -> None:
        """Returns once the Lease object is gone."""

        async def gone() -> bool:
            return await self.lease(node) is None

        await self.until(gone)


class Talk:
    """One stream of heartbeats. `acked`: the last beat that was answered."""

    def __init__(self, assembly: Assembly, user: User, opening: HeartbeatRequest.Open) -> None:
        self.session = 0
        self.acked = 0
        self.error: Rejected | None = None
        self._requests: asyncio.Queue[HeartbeatRequest] = asyncio.Queue()
        self._responses: asyncio.Queue[HeartbeatResponse | None] = asyncio.Queue()
        self._requests.put_nowait(HeartbeatRequest(open=opening))
        self.running = asyncio.ensure_future(self._run(assembly, user))

    def say(self, request: HeartbeatRequest) -> None:
        self._requests.put_nowait(request)

    def release(self, *nodes: str) -> None:
        self.say(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=nodes)))

    async def hear(self) -> HeartbeatResponse:
        """Raises Rejected when that is how the stream ends."""
        response = await asyncio.wait_for(self._responses.get(), PATIENCE)
        if response is None:
            assert self.error is not None
            raise self.error
        return response

    async def beat(self, sequence: int = 1) -> None:
        """Returns when it was answered: all that was said before was heard."""
        self.say(HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=sequence)))
        while (response := await self.hear()).ack.sequence < sequence:
            assert not response.HasField("lost"), response

    async def _run(self, assembly: Assembly, user: User) -> None:
        method = assembly.methods["/pinnace.v1.Nodes/Heartbeat"]
        try:
            async with aclosing(method.stream(self._said(), Caller(user))) as responses:
                async for response in responses:
                    self._responses.put_nowait(HeartbeatResponse.FromString(response))
        except Rejected as rejected:
            self.error = rejected
        self._responses.put_nowait(None)

    async def _said(self) -> AsyncIterator[HeartbeatRequest]:
        while True:
            yield await self._requests.get()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    storage = Counting()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    async with asyncio.timeout(PATIENCE):
        await assembly.opening.bootstrapped.wait()
    door = Door(assembly, storage)
    yield door
    ending = [running, *(talk.running for talk in door.talks)]
    for task in ending:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*ending, return_exceptions=True)


@pytest.mark.parametrize("user", [NOBODY, *(PEOPLE[name] for name in ("scheduler", "controllers", "editor"))])
async def test_only_fleets_open_sessions_without_permission(door: Door, user: User) -> None:
    """A session is a lease of etcd's, and a stream that keeps it alive; and who has one may say what is to be done with it."""
    before = door.storage.granted
    with pytest.raises(Rejected, match='cannot update resource "leases"'):
        await door.open(user, "eve", [])
    assert door.storage.granted == before


@pytest.mark.parametrize(("user", "holder"), [(EDGE, "edge-1"), (ADMIN, "anything")])
async def test_user_with_lease_permission_opens_an_empty_session(door: Door, user: User, holder: str) -> None:
    assert (await door.open(user, holder, [])).session


async def test_fleet_releases_nothing_of_another_even_on_its_session(door: Door) -> None:
    victim = await door.open(CORE, "core", ["core-0"])
    before = await door.held("core-0")
    other = await door.open(EDGE, "edge", [], session=victim.session)
    for _ in range(3):
        other.release("core-0")
    await other.beat()
    other.release("core-0")
    await other.beat(2)
    assert await door.lease("core-0") == before


async def test_release_of_unheld_lease_writes_nothing(door: Door) -> None:
    """A write that fails sends all that share its transaction around again."""
    await door.open(CORE, "core", ["core-0"])
    await door.held("core-0")
    other = await door.open(EDGE, "edge", [])
    door.storage.written.clear()
    other.release("core-0", *(f"n{number}" for number in range(1000)))
    await other.beat()
    other.release("core-0")
    await other.beat(2)
    assert door.storage.written == []


async def test_fleet_gives_up_what_is_not_its_own_any_more(door: Door) -> None:
    """Also with another server than the one that wrote the Lease object: else its session would keep the node alive."""
    fleet = await door.open(CORE, "core", ["core-0", "core-1"])
    await door.held("core-0")
    await door.held("core-1")
    fleet.release("core-1")
    await door.free("core-1")
    again = await door.open(CORE_WITHOUT, "core", [], session=fleet.session)
    again.release("core-0")
    await door.free("core-0")


async def test_user_releases_leases_with_permission(door: Door) -> None:
    """He says himself what his name is."""
    someone = await door.open(ADMIN, "core", ["core-0"])
    await door.held("core-0")
    again = await door.open(ADMIN, "core", [], session=someone.session)
    again.release("core-0")
    await door.free("core-0")


async def test_user_cannot_release_leases_without_permission(door: Door) -> None:
    await allow(door, NOBODY, "core-1")
    await door.open(CORE, "core", ["core-0"])
    before = await door.held("core-0")
    with pytest.raises(Rejected, match='leases "core-0" is forbidden'):
        await door.open(NOBODY, "core", ["core-0"])
    someone = await door.open(NOBODY, "core", ["core-1"])
    someone.release("core-0")
    with pytest.raises(Rejected, match='leases "core-0" is forbidden'):
        await someone.beat()
    assert await door.lease("core-0") == before


async def allow(door: Door, user: User, node: str) -> None:
    """Gives the user the right to hold the lease of this node alone."""
    rule = PolicyRule(verbs=[HEARTBEAT.verb], apiGroups=[HEARTBEAT.group], resources=[HEARTBEAT.resource], resourceNames=[node])
    binding = RoleBinding(subjects=[Subject(kind="User", name=user.name)], roleRef=RoleRef(kind="Role", name="one"))
    for kind, obj in (("Roles", Role(rules=[rule])), ("RoleBindings", binding)):
        obj.metadata.name, obj.metadata.namespace = "one", NODE_LEASE_NAMESPACE
        method = door.assembly.methods[f"/pinnace.v1.{kind}/Create"]
        request: Any = method.parse(b"")
        request.object.CopyFrom(obj)
        await method.call(request, Caller(ADMIN))


async def test_refusal_names_the_first_forbidden_node(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them are 30 KB, and were asked about twice, in one turn, with a line in the audit log for each."""
    asked: list[str] = []
    decide = NodeAuthorizer.decide

    def counted(self: NodeAuthorizer, user: User, action: ResourceAction, target: ActionTarget) -> AuthorizationDecision:
        asked.append(target.name)
        return decide(self, user, action, target)

    monkeypatch.setattr(NodeAuthorizer, "decide", counted)
    with pytest.raises(Rejected, match='cannot update resource "leases"'):
        await door.open(NOBODY, "eve", [f"core-{number}" for number in range(MAX_NODES)])
    assert len(asked) <= 2 * PERMISSION_CHUNK
    asked.clear()
    await door.open(CORE, "core", nodes := [f"core-{number}" for number in range(PERMISSION_CHUNK + 1)])
    assert set(asked) == set(nodes)
