"""A fence is only valid for the session that leads.

In issue 29, a client with a scheduler's certificate bound a pod with `Fence(election="controllers", token=N)` after 14 guesses
of N. A token was a small number that clients could read or guess, and the server accepted the token of any election. A deposed
scheduler could therefore continue to bind pods while the controllers had a leader."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from pinnace.api import fences
from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Election
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import PODS, election_key
from pinnace.api.status import Code, Refusal
from pinnace.api.users import AUTHENTICATED
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry import fencing
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import OWN, OWN_NODE, PATIENCE, PEOPLE, Caller, serving

SCHEDULER, CONTROLLERS, ADMIN = PEOPLE["scheduler"], PEOPLE["controllers"], PEOPLE["admin"]
FORBIDDEN = int(Code.PERMISSION_DENIED)
SECRET = bytes(range(16))
DEFAULT = "default-scheduler"


@pytest.fixture
async def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
async def server(storage: MemoryStorage) -> AsyncIterator[Assembly]:
    """A server with the pod "pending" in OWN, which the default scheduler has not bound."""
    async with serving(storage) as assembly:
        await call(assembly, "Pods/Create", ADMIN, object=make_pod("pending", namespace=OWN).req(cpu="1m").new())
        yield assembly


async def call(server: Assembly, method: str, user: User, metadata: Iterable[tuple[str, str]] = (), **fields: Any) -> bytes:
    """Call a method as the gRPC handler does. Raises Rejected."""
    result = server.methods[f"/pinnace.v1.{method}"]
    request: Any = result.parse(b"")
    request.MergeFrom(type(request)(**fields))

    async def handle() -> bytes:
        fencing.read_fences(metadata)
        return await result.call(request, Caller(user))

    return await asyncio.create_task(handle())


@dataclass
class Candidacy:
    session: int
    fence: Fence
    responses: AsyncIterator[bytes]

    async def hear(self) -> CampaignResponse:
        """Return the next response, or an empty one at the end of the stream."""
        async with asyncio.timeout(PATIENCE):
            return CampaignResponse.FromString(await anext(self.responses, b""))


@asynccontextmanager
async def campaigning(
    server: Assembly, user: User, election: str, schedulers: Iterable[str] = (), *, secret: bytes = SECRET, **opening: Any
) -> AsyncIterator[Candidacy]:
    """Run a candidate until the server reports the leader. Its fence has a token if it leads. It resigns at the end. Raises
    Rejected."""
    resigning = asyncio.Event()
    request = CampaignRequest.Open(election=election, secret=secret, scheduler_names=schedulers, **{"holder": "one"} | opening)

    async def requests() -> AsyncIterator[CampaignRequest]:
        yield CampaignRequest(open=request)
        sequence = 0
        while not resigning.is_set():
            sequence += 1
            yield CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=sequence))
            with suppress(TimeoutError):
                await asyncio.wait_for(resigning.wait(), 0.1)
        yield CampaignRequest(resign=CampaignRequest.Resign())
        await asyncio.Event().wait()

    method = server.methods["/pinnace.v1.Elections/Campaign"]
    async with aclosing(method.stream(requests(), Caller(user))) as responses:
        candidacy = Candidacy(0, Fence(election=election, secret=secret), responses)
        response = await candidacy.hear()
        candidacy.session = response.opened.session
        if response.HasField("opened"):
            while (response := await candidacy.hear()).WhichOneof("kind") not in ("elected", "observed"):
                pass
            candidacy.fence.token = response.elected.token
        yield candidacy
        resigning.set()
        while (await candidacy.hear()).WhichOneof("kind") not in ("resigned", "lost", None):
            pass


async def bind(server: Assembly, user: User, fence: Fence, name: str = "pending") -> Refusal | None:
    """Return the error of a bind, from the call or its item, or None if the pod is bound."""
    request: Any = server.methods["/pinnace.v1.Pods/BindBatch"].parse(b"")
    item = request.items.add()
    item.metadata.namespace, item.metadata.name, item.target.name = OWN, name, OWN_NODE
    try:
        answer = BatchResponse.FromString(await call(server, "Pods/BindBatch", user, items=request.items, fence=fence))
    except Rejected as rejected:
        return rejected.refusal
    (item,) = answer.items
    if not item.HasField("error"):
        return None
    reason = next((detail for detail in item.error.details if detail.type_url.endswith("ErrorInfo")), None)
    return Refusal(Code(item.error.code), "Fenced" if reason and b"Fenced" in reason.value else "", item.error.message)


async def node_of_pending(storage: MemoryStorage) -> str:
    record = await storage.get(PODS.key(OWN, "pending"))
    assert record is not None
    return PODS.message.FromString(record.value).spec.nodeName


async def test_scheduler_cannot_use_tokens_of_the_controllers_election(server: Assembly, storage: MemoryStorage) -> None:
    """The tokens range from 1 to values above the valid one."""
    async with campaigning(server, CONTROLLERS, "controllers") as leader:
        assert leader.fence.token
        for token in range(1, leader.fence.token + 20):
            for secret in (b"", SECRET):
                refusal = await bind(server, SCHEDULER, Fence(election="controllers", token=token, secret=secret))
                assert refusal is not None and refusal.code is Code.PERMISSION_DENIED
                assert 'cannot campaign resource "elections"' in refusal.message
    assert not await node_of_pending(storage)


async def test_valid_fence_of_another_election_does_not_bind(server: Assembly, storage: MemoryStorage) -> None:
    """The caller has all permissions and leads. A leader can only bind pods of the schedulers that it named in its campaign."""
    async with campaigning(server, ADMIN, "controllers") as leader:
        refusal = await bind(server, ADMIN, leader.fence)
        assert refusal is not None and refusal.code is Code.PERMISSION_DENIED
        assert 'scheduler is "default-scheduler", and the leader of election "controllers" did not campaign' in refusal.message
    async with campaigning(server, ADMIN, "cheap", ["cheap"]) as leader:
        refusal = await bind(server, ADMIN, leader.fence)
        assert refusal is not None and refusal.code is Code.PERMISSION_DENIED
    assert not await node_of_pending(storage)


async def test_campaign_needs_a_permission_for_each_scheduler_name(server: Assembly) -> None:
    with pytest.raises(Rejected, match=r'schedulers.pinnace.io "default-scheduler" is forbidden|cannot campaign'):
        async with campaigning(server, CONTROLLERS, "controllers", [DEFAULT]):
            pass
    async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT, "packed"]) as leader:
        assert await bind(server, SCHEDULER, leader.fence) is None


async def test_two_elections_cannot_claim_the_same_scheduler(server: Assembly) -> None:
    """A wrong leaderElection configuration could otherwise run two schedulers that do not know of each other."""
    async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT]):
        with pytest.raises(
            Rejected, match='scheduler "default-scheduler": its pods are bound by one, the leader of election "scheduler"'
        ):
            async with campaigning(server, ADMIN, "cheap", ["cheap", DEFAULT]):
                pass
        async with campaigning(server, ADMIN, "cheap", ["cheap"]) as other:
            assert other.fence.token
    async with campaigning(server, ADMIN, "cheap", ["cheap", DEFAULT]) as other:
        assert other.fence.token


async def test_token_is_useless_to_other_sessions_and_users(server: Assembly, storage: MemoryStorage) -> None:
    """The server returns the error for a stale token in all cases."""
    other = User("other-scheduler", (AUTHENTICATED,))
    await call(
        server,
        "ClusterRoleBindings/Create",
        ADMIN,
        object={
            "metadata": {"name": "other"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kube-scheduler"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": other.name}],
        },
    )
    async with (
        campaigning(server, SCHEDULER, "scheduler", [DEFAULT]) as leader,
        campaigning(server, SCHEDULER, "scheduler", [DEFAULT], secret=b"another session's", holder="two") as waiting,
    ):
        assert leader.fence.token and not waiting.fence.token
        token = leader.fence.token

        def with_secret(secret: bytes, token: int = token) -> Fence:
            return Fence(election="scheduler", token=token, secret=secret)

        attempts = [
            (SCHEDULER, with_secret(SECRET, token - 1)),  # stale
            (SCHEDULER, with_secret(SECRET, token + 1000)),  # too high
            (SCHEDULER, with_secret(b"")),  # read from Elections.Get with a stolen certificate
            (SCHEDULER, with_secret(b"another session's")),
            (SCHEDULER, with_secret(SECRET[:-1])),
            (other, with_secret(SECRET)),  # another user with permission to campaign and the secret
        ]
        for user, fence in attempts:
            for pod in ("pending", "absent"):
                refusal = await bind(server, user, fence, pod)
                stale = f'fencing token {fence.token} of election "scheduler" is not current: stop leading'
                assert refusal == Refusal(Code.FAILED_PRECONDITION, "Fenced", stale)
            with pytest.raises(Rejected) as caught:
                await call(
                    server, "Pods/Delete", user, [(fences.KEY, fences.encode_header(fence))], namespace=OWN, name="pending"
                )
            assert caught.value.refusal == Refusal(Code.FAILED_PRECONDITION, "Fenced", stale)
        assert not await node_of_pending(storage)
        assert await bind(server, SCHEDULER, leader.fence) is None
    assert await node_of_pending(storage) == OWN_NODE


async def test_fenced_writes_need_permission_to_campaign(server: Assembly) -> None:
    """The user has permissions for pods and obtains a fence of the controllers."""
    async with campaigning(server, CONTROLLERS, "controllers") as leader:
        metadata = [(fences.KEY, fences.encode_header(leader.fence))]
        with pytest.raises(Rejected) as caught:
            await call(server, "Pods/Delete", PEOPLE["editor"], metadata, namespace=OWN, name="pending")
        assert caught.value.refusal.code is Code.PERMISSION_DENIED
        await call(server, "Pods/Get", PEOPLE["editor"], metadata, namespace=OWN, name="pending")
        await call(server, "Pods/Delete", CONTROLLERS, metadata, namespace=OWN, name="pending")


async def test_fence_works_on_another_server_immediately(server: Assembly, storage: MemoryStorage) -> None:
    """The cache of the other server may not contain the election yet."""
    other = Assembly(storage)
    running = asyncio.ensure_future(other.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await other.opening.bootstrapped.wait()
        async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT]) as leader:
            assert await bind(other, SCHEDULER, leader.fence) is None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_session_cannot_be_resumed_without_its_secret(server: Assembly, storage: MemoryStorage) -> None:
    """The session number, which etcd and old logs contain, is not enough to resume the session, for any user."""
    key = election_key("scheduler")
    async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT]) as leader:
        before = await storage.get(key)
        resume = {"session": leader.session, "token": leader.fence.token}
        for user, secret in ((SCHEDULER, b"0123456789abcdef"), (ADMIN, SECRET)):
            async with campaigning(server, user, "scheduler", secret=secret, **resume) as other:
                assert not other.session and not other.fence.token
            forsaken = campaigning(server, user, "scheduler", secret=secret, forsaken=leader.session, holder="one")
            async with forsaken as other:
                assert other.session != leader.session and not other.fence.token
        assert await storage.get(key) == before
        async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT], **resume) as resumed:
            assert (resumed.session, resumed.fence.token) == (leader.session, leader.fence.token)
            assert await bind(server, SCHEDULER, resumed.fence) is None, "the resumed session cannot use its fence"


async def test_candidate_without_a_valid_secret_is_rejected(server: Assembly) -> None:
    for secret in (b"", bytes(15), bytes(65)):
        with pytest.raises(Rejected, match="secret must have 16 to 64 random bytes"):
            async with campaigning(server, SCHEDULER, "scheduler", secret=secret):
                pass


async def test_secret_does_not_appear_in_responses_logs_or_storage(
    server: Assembly, storage: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither do its hash and the session, for a user with all permissions. etcd contains only the hash."""
    caplog.set_level("DEBUG")
    async with campaigning(server, SCHEDULER, "scheduler", [DEFAULT]) as leader:
        assert await bind(server, SCHEDULER, leader.fence) is None
        assert await bind(server, SCHEDULER, Fence(election="scheduler", token=1, secret=SECRET)) is not None
        with pytest.raises(Rejected) as caught:
            await call(server, "Pods/Delete", SCHEDULER, [(fences.KEY, f"scheduler/x/{SECRET.hex()}")], namespace=OWN, name="a")
        outputs = [
            await call(server, "Elections/Get", ADMIN, name="scheduler"),
            await call(server, "Elections/List", ADMIN),
            await call(server, "Elections/History", ADMIN, name="scheduler"),
            await call(server, "Pods/Get", ADMIN, namespace=OWN, name="pending"),
            caplog.text.encode(),
            str(caught.value).encode(),
        ]
        election = Election.FromString(outputs[0])
        assert (election.holder, election.user, list(election.scheduler_names)) == ("one", SCHEDULER.name, [DEFAULT])
        for secret in (SECRET, fencing.hash_secret(SECRET)):
            assert not [output for output in outputs if secret in output or secret.hex().encode() in output]
        assert not election.session
        stored = [record for record in (await storage.page("/registry/")).items if SECRET in record.value]
        assert not stored
