"""The requests of the typed client, and which of them are retried."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Binding, Node, Pod, PodList
from pinnace.api.pods_pb2 import BindBatchRequest, CreatePodBatchRequest, CreatePodRequest, Fence, UpdatePodRequest
from pinnace.api.resources import ALL, NODES, Resource
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import (
    BatchResponse,
    DeleteCollectionRequest,
    DeleteRequest,
    GetRequest,
    ListRequest,
    PatchRequest,
    WatchRequest,
)
from pinnace.client import errors
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.client.resource import ATTEMPTS, delete_request
from tests.builders import make_pod
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer, WatchScript, events, lose, refuse

CONFLICT = Refusal(Code.ABORTED, "Conflict", "stale")
EXPIRED = Refusal(Code.OUT_OF_RANGE, "Expired", "list again")


class Answers:
    """Answers calls of a method of pods with the steps, in order; the last step repeats.

    `requests` has the received requests.
    """

    def __init__(self, server: FakeServer, verb: str, request: type[Message], *steps: Message | Refusal | Callable[[Any], Any]):
        self.requests: list[Any] = []
        self._steps = list(steps)
        server.on(f"/pinnace.v1.Pods/{verb}", request, self._answer)

    async def _answer(self, request: Any, context: Any) -> Message:
        self.requests.append(request)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Refusal):
            await refuse(context, step)
        if isinstance(step, Message):
            return step
        await step(context)
        raise AssertionError("unreachable")


@pytest.fixture
async def server(serve: Serve) -> FakeServer:
    return await serve()


@pytest.fixture
def client(server: FakeServer, connect: Connect) -> Client:
    return Client(connect(server))


def pod(name: str = "a", version: str = "") -> Pod:
    result = make_pod(name).build()
    result.metadata.resourceVersion = version
    return result


def page(names: str, token: str) -> PodList:
    answer = PodList(items=[pod(name) for name in names])
    answer.metadata.resourceVersion = "42"
    setattr(answer.metadata, "continue", token)
    return answer


async def test_create_sends_the_dry_run_option(server: FakeServer, client: Client) -> None:
    answers = Answers(server, "Create", CreatePodRequest, pod(version="7"))
    assert (await client.pods.create(pod())).metadata.resourceVersion == "7"
    await client.pods.create(pod(), dry_run=True)
    assert [list(request.options.dryRun) for request in answers.requests] == [[], ["All"]]


async def test_list_returns_all_pages(server: FakeServer, client: Client) -> None:
    answers = Answers(server, "List", ListRequest, page("ab", "next"), page("c", ""))
    listing = await client.pods.list("default", labels="app=web", fields="status.phase=Running", page_size=2)
    assert ([item.metadata.name for item in listing.items], listing.resource_version) == (["a", "b", "c"], 42)
    options = [request.options for request in answers.requests]
    assert [getattr(option, "continue") for option in options] == ["", "next"]
    assert {(option.labelSelector, option.fieldSelector, option.limit) for option in options} == {
        ("app=web", "status.phase=Running", 2)
    }


async def test_list_restarts_when_its_snapshot_expired(server: FakeServer, client: Client) -> None:
    Answers(server, "List", ListRequest, page("ab", "next"), EXPIRED, page("d", ""))
    assert [item.metadata.name for item in (await client.pods.list()).items] == ["d"]


async def test_list_fails_when_each_snapshot_expires(server: FakeServer, client: Client) -> None:
    Answers(server, "List", ListRequest, EXPIRED)
    with pytest.raises(errors.Expired):
        await client.pods.list()


async def test_partial_initial_state_has_no_revision(server: FakeServer, client: Client) -> None:
    script = WatchScript([events(None, (1, pod("a"))), events(5, (1, pod("b"))), events(6)])
    server.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, script.answer)
    watch = client.pods.watch("default")
    batches = [await anext(watch) for _ in range(3)]
    await watch.aclose()
    assert [(len(batch.events), batch.resource_version) for batch in batches] == [(1, 0), (1, 5), (0, 6)]


async def test_watch_ended_by_the_server_is_an_error(server: FakeServer, client: Client) -> None:
    async def nothing(request: Any, context: Any) -> Any:
        for _ in ():
            yield b""

    server.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, nothing)
    with pytest.raises(errors.Unavailable, match="ended the watch"):
        await anext(client.pods.watch())


async def test_silent_watch_is_an_error(server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.client.resource.WATCH_SILENCE", 0.05)
    server.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, WatchScript([]).answer)
    with pytest.raises(errors.Unavailable, match="sent nothing"):
        async with asyncio.timeout(5.0):
            await anext(client.pods.watch())


Write = Callable[[Client], Awaitable[object]]


@pytest.mark.parametrize(
    ("verb", "request_type", "write", "repeated"),
    [
        ("Create", CreatePodRequest, lambda client: client.pods.create(pod()), False),
        ("Update", UpdatePodRequest, lambda client: client.pods.update(pod(version="7")), True),
        ("Update", UpdatePodRequest, lambda client: client.pods.update(pod()), False),
        ("Update", UpdatePodRequest, lambda client: client.pods.update(pod(version="0")), False),
        ("UpdateStatus", UpdatePodRequest, lambda client: client.pods.update_status(pod(version="7")), True),
        (
            "Patch",
            PatchRequest,
            lambda client: client.pods.patch("a", "default", {"metadata": {"resourceVersion": "7"}}),
            False,
        ),
        ("Delete", DeleteRequest, lambda client: client.pods.delete("a", "default", uid="u"), True),
        ("Delete", DeleteRequest, lambda client: client.pods.delete("a", "default"), False),
        ("DeleteCollection", DeleteCollectionRequest, lambda client: client.pods.delete_collection("default"), False),
        ("Get", GetRequest, lambda client: client.pods.get("a", "default"), True),
    ],
)
async def test_calls_retried_after_a_lost_response(
    server: FakeServer, client: Client, verb: str, request_type: type[Message], write: Write, repeated: bool
) -> None:
    answers = Answers(server, verb, request_type, lose, pod())
    if repeated:
        await write(client)
    else:
        with pytest.raises(errors.OutcomeUnknown):
            await write(client)
    assert len(answers.requests) == (2 if repeated else 1)


async def test_bindings_are_never_retried(server: FakeServer, client: Client) -> None:
    answers = Answers(server, "BindBatch", BindBatchRequest, lose)
    with pytest.raises(errors.OutcomeUnknown):
        await client.pods.bind_batch([Binding()], Fence(election="scheduler", token=7))
    assert [request.fence.token for request in answers.requests] == [7]


async def test_binding_without_an_election_has_no_fence(server: FakeServer, client: Client) -> None:
    answers = Answers(server, "BindBatch", BindBatchRequest, BatchResponse())
    await client.pods.bind_batch([Binding()], None)
    assert not answers.requests[0].HasField("fence")


async def test_batch_has_an_outcome_per_item(server: FakeServer, client: Client) -> None:
    response = BatchResponse()
    response.items.add(name="a", uid="u", resourceVersion="7")
    response.items.add(error=encode(Refusal(Code.ALREADY_EXISTS, "AlreadyExists", "there is one")))
    Answers(server, "CreateBatch", CreatePodBatchRequest, response)
    done, refused = await client.pods.create_batch([pod("a"), pod("b")])
    assert (done.HasField("error"), done.uid) == (False, "u")
    assert isinstance(from_status(refused.error), errors.AlreadyExists)


async def test_delete_collection_follows_all_pages(server: FakeServer, client: Client) -> None:
    pages = [BatchResponse(), BatchResponse()]
    for response, name in zip(pages, "ab", strict=True):
        response.items.add(name=name)
    setattr(pages[0], "continue", "next")
    answers = Answers(server, "DeleteCollection", DeleteCollectionRequest, *pages)
    told = await client.pods.delete_collection("default", labels="app=web", grace=3, dry_run=True)
    assert [item.name for item in told] == ["a", "b"]
    assert [getattr(request.options, "continue") for request in answers.requests] == ["", "next"]
    for request in answers.requests:
        assert (request.namespace, request.options.labelSelector) == ("default", "app=web")
        assert (request.deleteOptions.gracePeriodSeconds, list(request.deleteOptions.dryRun)) == (3, ["All"])


async def test_modify_reads_again_after_a_conflict_and_retries(server: FakeServer, client: Client) -> None:
    Answers(server, "Get", GetRequest, pod(version="7"), pod(version="8"))
    updates = Answers(server, "Update", UpdatePodRequest, CONFLICT, pod(version="9"))

    def change(found: Pod) -> None:
        found.metadata.labels["app"] = "web"

    assert (await client.pods.modify("a", "default", change)).metadata.resourceVersion == "9"
    sent = [request.object.metadata for request in updates.requests]
    assert [(item.resourceVersion, item.labels["app"]) for item in sent] == [("7", "web"), ("8", "web")]


async def test_modify_recognizes_its_update_after_a_lost_response(server: FakeServer, client: Client) -> None:
    """Applying the change again would count it twice."""
    done = turned(1, version="8")
    Answers(server, "Get", GetRequest, pod(version="7"), done)
    updates = Answers(server, "Update", UpdatePodRequest, lose, CONFLICT)
    assert await client.pods.modify("a", "default", turn) == done
    assert len(updates.requests) == 2


async def test_modify_retries_after_a_concurrent_equal_change(server: FakeServer, client: Client) -> None:
    """Both clients read no label, and each adds one.

    The second client must not take the update of the first one for its own.
    """
    Answers(server, "Get", GetRequest, pod(version="7"), turned(1, version="8"))
    updates = Answers(server, "Update", UpdatePodRequest, CONFLICT, turned(2, version="9"))
    assert await client.pods.modify("a", "default", turn) == turned(2, version="9")
    sent = [request.object.metadata for request in updates.requests]
    assert [(item.resourceVersion, item.labels["turns"]) for item in sent] == [("7", "1"), ("8", "2")]


def turned(times: int, *, version: str) -> Pod:
    result = pod(version=version)
    result.metadata.labels["turns"] = str(times)
    return result


def turn(found: Pod) -> None:
    found.metadata.labels["turns"] = str(int(found.metadata.labels["turns"] or 0) + 1)


async def test_modify_gives_up_after_a_number_of_conflicts(server: FakeServer, client: Client) -> None:
    Answers(server, "Get", GetRequest, pod(version="7"))
    updates = Answers(server, "Update", UpdatePodRequest, CONFLICT)
    with pytest.raises(errors.Conflict):
        await client.pods.modify("a", "default", lambda found: found.metadata.labels.update(app="web"))
    assert len(updates.requests) == ATTEMPTS


def test_delete_request_contains_only_given_options() -> None:
    plain = delete_request("a", "default")
    assert not plain.options.HasField("gracePeriodSeconds")
    assert not plain.options.HasField("preconditions")
    full = delete_request("a", "default", grace=0, uid="u", resource_version="7", dry_run=True).options
    assert full.gracePeriodSeconds == 0
    assert full.HasField("gracePeriodSeconds")
    assert (full.preconditions.uid, full.preconditions.resourceVersion, list(full.dryRun)) == ("u", "7", ["All"])


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
async def test_every_resource_has_a_client(server: FakeServer, client: Client, resource: Resource[Any]) -> None:
    async def answer(request: Any, context: Any) -> Any:
        message = resource.list_message()
        message.metadata.resourceVersion = "3"
        return message

    server.on(f"/{resource.service}/List", ListRequest, answer)
    assert (await client.of(resource).list()).resource_version == 3


async def test_cluster_scoped_get_needs_no_namespace(server: FakeServer, client: Client) -> None:
    asked: list[GetRequest] = []

    async def answer(request: GetRequest, context: Any) -> Node:
        asked.append(request)
        return Node()

    server.on(f"/{NODES.service}/Get", GetRequest, answer)
    await client.nodes.get("n1")
    assert asked == [GetRequest(name="n1")]
