"""Watches with the same selection share a stream of an API server. None loses, repeats or reorders an event."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import ADDED, WatchRequest
from pinnace.client.errors import ApiError, Forbidden, Unavailable, from_refusal, unavailable_error
from pinnace.gateway import shared_watches
from pinnace.gateway.backend import RawResponse
from pinnace.gateway.http import Request, User
from pinnace.gateway.shared_watches import SharedWatch, SharedWatches

DEADLINE = 20.0
ALICE, BOB = User("alice", ("system:authenticated",)), User("bob", ("system:authenticated",))


def response(revisions: Iterable[int], version: int | None = None, padding: int = 0) -> bytes:
    """A response with one pod per revision. `version`: by default the last revision; 0 for none."""
    result = list(revisions)
    events = []
    for number, revision in enumerate(result):
        pod = Pod()
        pod.metadata.name = f"{revision}-{number}"
        pod.metadata.annotations["padding"] = "x" * padding
        events.append(wire.watch_event(ADDED, pod.SerializeToString() + wire.encode_resource_version(revision)))
    last = result[-1] if version is None else version
    return wire.watch_response(events, last) if last else b"".join(events)


class FakeStream:
    def __init__(self) -> None:
        self.responses: asyncio.Queue[bytes | ApiError | None] = asyncio.Queue()
        self.cancelled = False
        self.reads = 0

    def send(self, *responses: bytes | ApiError | None) -> None:
        for item in responses:
            self.responses.put_nowait(item)

    async def read(self, silence: float | None = None) -> RawResponse | None:
        self.reads += 1
        result = await self.responses.get()
        if isinstance(result, ApiError):
            raise result
        return None if result is None else RawResponse(result)

    def cancel(self) -> None:
        self.cancelled = True


class FakeBackend:
    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        self.requests: list[WatchRequest] = []
        self.users: list[User] = []

    async def stream(self, request: Request, method: str, message: WatchRequest) -> FakeStream:
        await asyncio.sleep(0)
        copy = WatchRequest()
        copy.CopyFrom(message)
        self.requests.append(copy)
        self.users.append(request.user)
        self.streams.append(FakeStream())
        return self.streams[-1]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    monkeypatch.setattr(shared_watches, "OPENING", 0.0)
    return FakeBackend()


@pytest.fixture
async def shared(backend: FakeBackend) -> AsyncIterator[SharedWatches]:
    result: Any = backend
    yield SharedWatches(result)
    for stream in backend.streams:
        stream.send(None)
    await asyncio.sleep(0.01)


async def watching(shared: SharedWatches, version: str = "10", user: User = ALICE, **options: Any) -> SharedWatch:
    namespace = options.pop("namespace", "default")
    message = WatchRequest(namespace=namespace, options=ListOptions(resourceVersion=version, **options))
    return await shared.watch(Request("GET", "/", {}, {}, user=user), "pinnace.v1.Pods", message)


async def names(watch: SharedWatch, count: int) -> list[str]:
    """The next `count` objects."""
    result: list[str] = []
    async with asyncio.timeout(DEADLINE):
        while len(result) < count:
            taken = await watch.next()
            assert taken, f"the watch ended after {result}"
            for item in taken:
                result += [event.object.metadata.name for event in PodWatchResponse.FromString(item).events]
    return result


async def test_watches_with_the_same_selection_share_a_stream(shared: SharedWatches, backend: FakeBackend) -> None:
    watches = await asyncio.gather(*(watching(shared) for _ in range(5)))
    watches.append(await watching(shared))
    (stream,) = backend.streams
    stream.send(response([11, 11]), response([12]))
    assert [await names(watch, 3) for watch in watches] == [["11-0", "11-1", "12-0"]] * 6
    for watch in watches[1:]:
        watch.close()
        watch.close()
    assert not stream.cancelled
    watches[0].close()
    assert stream.cancelled
    await watching(shared)
    assert len(backend.streams) == 2


async def test_other_users_and_selections_do_not_share_a_stream(shared: SharedWatches, backend: FakeBackend) -> None:
    await watching(shared)
    await watching(shared, user=BOB)
    await watching(shared, user=User("alice", ("system:masters",)))
    await watching(shared, namespace="")
    await watching(shared, labelSelector="a=b")
    await watching(shared, fieldSelector="metadata.name=a")
    await watching(shared, allowWatchBookmarks=True, timeoutSeconds=60)
    assert len(backend.streams) == 6
    assert backend.users[:2] == [ALICE, BOB]
    assert all(not request.options.timeoutSeconds for request in backend.requests)


async def test_watch_can_start_at_each_revision_of_the_window(shared: SharedWatches, backend: FakeBackend) -> None:
    """A watch can also start between two revisions of one response."""
    first = await watching(shared)
    (stream,) = backend.streams
    stream.send(response([11, 12, 12, 14], 15), response([], 20), response([21, 22]))
    everything = await names(first, 6)
    revisions = [11, 12, 12, 14, 21, 22]
    for since in range(10, 23):
        watch = await watching(shared, str(since))
        expected = [name for name, revision in zip(everything, revisions, strict=True) if revision > since]
        assert await names(watch, len(expected)) == expected, since
        revisions.append(23 + since)
        stream.send(response(revisions[-1:]))
        everything += await names(first, 1)
        assert await names(watch, 1) == everything[-1:] == [f"{23 + since}-0"]
        watch.close()
    assert len(backend.streams) == 1


@pytest.mark.parametrize("version", ["9", "13", "", "0", "x", "12345678901234567890123"])
async def test_watch_outside_of_the_window_opens_a_stream(shared: SharedWatches, backend: FakeBackend, version: str) -> None:
    first = await watching(shared)
    backend.streams[0].send(response([11, 12]))
    await names(first, 2)
    await watching(shared, version)
    assert backend.requests[1].options.resourceVersion == version


async def test_watches_of_two_streams_move_to_one(shared: SharedWatches, backend: FakeBackend) -> None:
    """A list is newer than the last event of the kind, so its watch begins after the window."""
    old = await watching(shared)
    new = [await watching(shared, "15") for _ in range(3)]
    first, second = backend.streams
    second.send(response([17, 18, 18]))
    assert await names(new[0], 3) == ["17-0", "18-1", "18-2"]
    first.send(response([17, 18, 18, 19]), response([20]))
    assert await names(old, 5) == ["17-0", "18-1", "18-2", "19-3", "20-0"]
    assert not second.cancelled
    second.send(response([19], 19))  # the other stream already has this revision
    assert await names(new[0], 2) == ["19-0", "20-0"]
    assert second.cancelled and not first.cancelled
    assert await names(new[1], 5) == ["17-0", "18-1", "18-2", "19-0", "20-0"]
    old.close()
    first.send(response([21]))
    assert await names(new[0], 1) == ["21-0"]
    assert await names(new[2], 6) == ["17-0", "18-1", "18-2", "19-0", "20-0", "21-0"]
    for item in new:
        assert not first.cancelled
        item.close()
    assert first.cancelled


async def test_watch_moves_into_the_middle_of_a_response(shared: SharedWatches, backend: FakeBackend) -> None:
    old, new = await watching(shared), await watching(shared, "15")
    first, second = backend.streams
    first.send(response([16, 17, 18, 19]))
    assert len(await names(old, 4)) == 4
    second.send(response([16, 17]))
    assert await names(new, 4) == ["16-0", "17-1", "18-2", "19-3"]
    assert second.cancelled
    first.send(response([20]))
    assert await names(new, 1) == ["20-0"]


async def test_watch_shares_the_stream_after_its_initial_state(shared: SharedWatches, backend: FakeBackend) -> None:
    initial = await watching(shared, "")
    (stream,) = backend.streams
    stream.send(response([5, 3], 0), response([4], 10))
    assert await names(initial, 3) == ["5-0", "3-1", "4-0"]
    second = await watching(shared, "10")
    stream.send(response([11]))
    assert await names(initial, 1) == await names(second, 1) == ["11-0"]
    assert len(backend.streams) == 1
    third = await watching(shared, "0")
    backend.streams[1].send(response([5], 0), response([3], 11))
    assert await names(third, 2) == ["5-0", "3-0"]
    stream.send(response([12]))
    assert await names(third, 1) == ["12-0"] and backend.streams[1].cancelled


async def test_slow_watch_ends_without_affecting_others(
    shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "LIMIT", 100_000)
    monkeypatch.setattr(shared_watches, "KEEP", 10_000)
    slow, fast = await watching(shared), await watching(shared)
    (stream,) = backend.streams
    for number in range(11, 111):
        stream.send(response([number], padding=5_000))
        assert await names(fast, 1) == [f"{number}-0"]
    with pytest.raises(Unavailable, match="too slowly"):
        await slow.next()
    slow.close()
    stream.send(response([111]))
    assert await names(fast, 1) == ["111-0"]
    resumed = await watching(shared, "110")
    assert await names(resumed, 1) == ["111-0"] and len(backend.streams) == 1
    await watching(shared, "50")
    assert len(backend.streams) == 2


async def test_watch_within_the_limit_receives_everything(
    shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "KEEP", 10_000)
    slow, fast = await watching(shared), await watching(shared)
    (stream,) = backend.streams
    for number in range(11, 111):
        stream.send(response([number], padding=5_000))
        await names(fast, 1)
    assert await names(slow, 100) == [f"{number}-0" for number in range(11, 111)]


async def test_stream_is_not_read_while_all_watches_are_slow(shared: SharedWatches, backend: FakeBackend) -> None:
    watch = await watching(shared)
    (stream,) = backend.streams
    for number in range(11, 21):
        stream.send(response([number]))
    await names(watch, 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert stream.reads <= 3


async def test_stream_error_reaches_all_its_watches(shared: SharedWatches, backend: FakeBackend) -> None:
    watches = [await watching(shared) for _ in range(3)]
    other = await watching(shared, user=BOB)
    backend.streams[0].send(response([11]), from_refusal(Refusal(Code.PERMISSION_DENIED, "Forbidden", "no longer permitted")))
    for watch in watches:
        assert await names(watch, 1) == ["11-0"]
        with pytest.raises(Forbidden):
            await watch.next()
    backend.streams[1].send(response([11]), None)
    assert await names(other, 1) == ["11-0"] and await other.next() == ()
    await watching(shared, "11")
    assert len(backend.streams) == 3


async def test_error_at_the_start_reaches_all_watches(
    shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "OPENING", DEADLINE)
    starting = [asyncio.ensure_future(watching(shared)) for _ in range(3)]
    await asyncio.sleep(0.01)
    backend.streams[0].send(unavailable_error("no server"))
    result = await asyncio.gather(*starting, return_exceptions=True)
    assert all(isinstance(item, Unavailable) for item in result) and backend.streams[0].cancelled
    assert len(backend.streams) == 1


async def test_opening_stream_is_cancelled_when_its_last_watch_leaves(
    shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "OPENING", DEADLINE)
    starting = [asyncio.ensure_future(watching(shared)) for _ in range(2)]
    await asyncio.sleep(0.01)
    starting[0].cancel()
    await asyncio.sleep(0.01)
    assert not backend.streams[0].cancelled
    starting[1].cancel()
    await asyncio.gather(*starting, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert backend.streams[0].cancelled


async def test_watch_ends_after_its_timeout(shared: SharedWatches, backend: FakeBackend) -> None:
    short, long = await watching(shared, timeoutSeconds=1), await watching(shared)
    async with asyncio.timeout(DEADLINE):
        assert await short.next() == ()
    backend.streams[0].send(response([11]))
    assert await names(long, 1) == ["11-0"]


async def test_frequent_responses_are_delivered_together(
    shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "PAUSE", 0.2)
    monkeypatch.setattr(shared_watches, "MAX_PAUSE", 0.2)
    watch = await watching(shared)
    (stream,) = backend.streams
    stream.send(response([11]))
    await names(watch, 1)
    for number in range(12, 22):
        stream.send(response([number]))
    async with asyncio.timeout(DEADLINE):
        assert len(await watch.next()) == 10


@pytest.mark.parametrize("seed", range(20))
async def test_random_watches_receive_all_events_in_order(
    backend: FakeBackend, shared: SharedWatches, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The streams split the same history into different responses, and watches start, end and resume at random."""
    monkeypatch.setattr(shared_watches, "KEEP", 2_000)
    monkeypatch.setattr(shared_watches, "TAKE", 500)
    rng = random.Random(seed)
    history = sorted(rng.choices(range(11, 200), k=150))
    positions: dict[int, int] = {}

    def feed() -> None:
        for number, stream in enumerate(backend.streams):
            if stream.cancelled:
                continue
            at = positions.get(number, int(backend.requests[number].options.resourceVersion))
            to = min(199, at + rng.randrange(1, 12))
            positions[number] = to
            stream.send(response([item for item in history if at < item <= to], to))

    async def client() -> None:
        at = rng.randrange(10, 15)
        received: list[int] = []
        began = at
        while at < 199:
            watch = await watching(shared, str(at))
            for _ in range(rng.randrange(1, 12)):
                for data in await watch.next():
                    pod_watch_response = PodWatchResponse.FromString(data)
                    received += [int(event.object.metadata.resourceVersion) for event in pod_watch_response.events]
                    at = int(pod_watch_response.resourceVersion)
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
            watch.close()
        assert received == [item for item in history if item > began]

    async def feeding() -> None:
        while True:
            feed()
            await asyncio.sleep(0.001)

    feeder = asyncio.ensure_future(feeding())
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(client() for _ in range(8)))
    feeder.cancel()
    assert all(item.cancelled for item in backend.streams)


@pytest.mark.parametrize("watches", [1, 3])
async def test_watch_receives_a_first_response_larger_than_the_window(
    watches: int, shared: SharedWatches, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that was there before the watch joined its stream left the window, and the watch ended: its client resumed at
    the same revision, for ever."""

    async def stream(request: Request, method: str, message: WatchRequest) -> FakeStream:
        opened = await FakeBackend.stream(backend, request, method, message)
        opened.send(response([11], padding=shared_watches.KEEP + 1))
        return opened

    monkeypatch.setattr(backend, "stream", stream)
    monkeypatch.setattr(shared_watches, "OPENING", DEADLINE)
    result = await asyncio.gather(*(watching(shared) for _ in range(watches)))
    assert await asyncio.gather(*(names(watch, 1) for watch in result)) == [["11-0"]] * watches
    for watch in result:
        watch.close()
