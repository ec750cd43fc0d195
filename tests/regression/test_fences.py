"""Writes of a leader that was deposed in the meantime fail."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.resources import PODS, election_key
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.registry.fencing import MAX_FENCES, hash_secret
from pinnace.apiserver.storage.interface import Committed, Write
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Fenced, Invalid, from_status
from pinnace.client.resource import delete_request
from tests.builders import make_pod
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.client.fakeserver import connect

ELECTION = "controllers"
KEY = election_key(ELECTION)
SECRET = b"what the leader knows"
Verb = Callable[[Client, Pod], Awaitable[object]]


@pytest.fixture
async def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
async def client(storage: MemoryStorage) -> AsyncIterator[Client]:
    async with serving(storage) as address:
        client = Client(connect(address))
        yield client
        await client.connection.close()


async def elected(storage: MemoryStorage) -> Fence:
    """Elect a leader and return its fence."""
    election = Election(name=ELECTION, user=UNSECURED.name, secret_hash=hash_secret(SECRET))
    answer = await storage.transact([Write(KEY, election.SerializeToString(), expected=0)])
    assert isinstance(answer, Committed)
    return Fence(election=ELECTION, token=answer.revision, secret=SECRET)


def new(name: str) -> Pod:
    return make_pod(name).req(cpu="1m").new()


async def single(items: Awaitable[Sequence[BatchItem]]) -> None:
    (item,) = await items
    if item.HasField("error"):
        raise from_status(item.error)


def labelled(pod: Pod) -> Pod:
    pod.metadata.labels["new"] = "label"
    return pod


def failed(pod: Pod) -> Pod:
    pod.status.reason = "Gone"
    return pod


WRITES: dict[str, Verb] = {
    "create": lambda client, pod: client.pods.create(new("other")),
    "create_batch": lambda client, pod: single(client.pods.create_batch([new("other")])),
    "update": lambda client, pod: client.pods.update(labelled(pod)),
    "update_status_batch": lambda client, pod: single(client.pods.update_status_batch([failed(pod)])),
    "patch": lambda client, pod: client.pods.patch("pod", "default", {"metadata": {"labels": {"new": "label"}}}),
    "delete": lambda client, pod: client.pods.delete("pod", "default"),
    "delete_batch": lambda client, pod: single(client.pods.delete_batch([delete_request("pod", "default")])),
    "evict": lambda client, pod: single(
        client.pods.evict_batch([Eviction(metadata=ObjectMeta(name="pod", namespace="default"))])
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_deposed_leader_cannot_write(storage: MemoryStorage, client: Client, write: Verb) -> None:
    pod = await client.pods.create(new("pod"))
    fence = await elected(storage)
    guarded = client.with_fence(lambda: fence)
    await storage.transact([Write(KEY, None, fence.token)])
    before = [await storage.get(PODS.key("default", name)) for name in ("pod", "other")]
    with pytest.raises(Fenced, match="stop leading"):
        await write(guarded, pod)
    await elected(storage)
    with pytest.raises(Fenced, match="stop leading"):
        await write(guarded, pod)
    assert [await storage.get(PODS.key("default", name)) for name in ("pod", "other")] == before
    key = await storage.get(KEY)
    assert key is not None
    await write(client.with_fence(lambda: Fence(election=ELECTION, token=key.create_revision, secret=SECRET)), pod)
    assert [await storage.get(PODS.key("default", name)) for name in ("pod", "other")] != before


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_write_needs_all_of_its_fences_to_hold(storage: MemoryStorage, client: Client, order: tuple[int, int]) -> None:
    fence = await elected(storage)
    headers = [fences.encode_header(fence), f"{ELECTION}/{fence.token + 1}/{SECRET.hex()}"]
    both = Connection([client.connection.endpoint], metadata=[(fences.KEY, headers[number]) for number in order])
    with pytest.raises(Fenced):
        await Client(both).pods.create(new("pod"))
    await both.close()


async def test_number_of_fences_per_call_is_limited(client: Client) -> None:
    """Each fence uses an operation of the transaction, which has a size limit."""
    many = Connection(
        [client.connection.endpoint], metadata=[(fences.KEY, f"e{index}/1/00") for index in range(MAX_FENCES + 1)]
    )
    with pytest.raises(Invalid, match=f"at most {MAX_FENCES} per call"):
        await Client(many).pods.create(new("pod"))
    await many.close()


async def test_reads_ignore_fences(client: Client) -> None:
    await client.pods.create(new("pod"))
    pod = await client.with_fence(lambda: Fence(election=ELECTION, token=1)).pods.get("pod", "default")
    assert pod.metadata.name == "pod"


@pytest.mark.parametrize(
    "header",
    ["", "controllers", "controllers/", "controllers/x", "/7", "controllers/0", "a/../b/7", "controllers/7/xy", "x" * 999],
)
async def test_malformed_fence_is_refused_with_a_reason(client: Client, header: str) -> None:
    connection = Connection([client.connection.endpoint], metadata=[(fences.KEY, header)])
    with pytest.raises(Invalid, match="fence"):
        await Client(connection).pods.create(new("pod"))
    await connection.close()
