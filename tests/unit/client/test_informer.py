"""The informer with servers that fail, expire, are behind, or send the initial state in parts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES, PODS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import Known, WatchEventType, WatchRequest
from pinnace.client.connection import Connection
from pinnace.client.informer import Delta, Informer, OtherHistory, split_batch
from pinnace.client.resource import ResourceClient, WatchBatch
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import End, FakeServer, Step, WatchScript, events, unavailable

ADDED, MODIFIED, DELETED = WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED
PATIENCE = 5.0
EXPIRED = Refusal(Code.OUT_OF_RANGE, "Expired", "list again")
HISTORY_CHANGED = Refusal(Code.FAILED_PRECONDITION, "HistoryChanged", "begin anew")


def pod(name: str, version: int, uid: str = "") -> Pod:
    return make_pod(name).version(version).uid(uid or f"uid-{name}").build()


def script(server: FakeServer, *streams: Sequence[Step]) -> WatchScript:
    watch = WatchScript(*streams)
    server.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, watch.answer)
    return watch


class Log:
    """A handler that records one entry per call and one text per delta."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, deltas: Sequence[Delta[Pod]]) -> None:
        self.calls.append([_describe(delta) for delta in deltas])


def _describe(delta: Delta[Pod]) -> str:
    old = f" (was {delta.old.metadata.resourceVersion})" if delta.old is not None else ""
    return f"{WatchEventType.Name(delta.kind)} {delta.obj.metadata.name} {delta.obj.metadata.resourceVersion}{old}"


@asynccontextmanager
async def informing(connection: Connection) -> AsyncIterator[tuple[Informer[Pod], Log]]:
    informer: Informer[Pod] = Informer(ResourceClient(connection, PODS))
    log = Log()
    informer.add_handler(log)
    running = asyncio.ensure_future(informer.run())
    try:
        yield informer, log
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_initial_state_in_parts_is_delivered_at_once(serve: Serve, connect: Connect) -> None:
    server = await serve()
    watch = script(
        server,
        [
            events(None, (ADDED, pod("a", 1)), (ADDED, pod("b", 2))),
            events(10, (ADDED, pod("c", 3))),
            events(12, (MODIFIED, pod("a", 11)), (ADDED, pod("d", 12))),
            events(13, (DELETED, pod("b", 13))),
        ],
    )
    async with informing(connect(server)) as (informer, log):
        await informer.wait_for(13, PATIENCE)
        assert sorted(informer.store) == ["default/a", "default/c", "default/d"]
    assert watch.asked == [""]
    assert log.calls == [
        ["ADDED a 1", "ADDED b 2", "ADDED c 3"],
        ["MODIFIED a 11 (was 1)", "ADDED d 12"],
        ["DELETED b 13 (was 2)"],
    ]


LARGE_POD = "x" * (300 << 10)


async def test_revisions_of_large_objects_are_delivered_one_by_one(serve: Serve, connect: Connect) -> None:
    """The handlers of the scheduler need 30 ms for a pod with 4,900 containers, and a response can contain seven such pods."""
    server = await serve()
    large = pod("large", 11)
    large.metadata.annotations["large"] = LARGE_POD
    script(
        server, [events(7), events(14, (ADDED, large), (ADDED, pod("a", 12)), (DELETED, pod("b", 12)), (ADDED, pod("c", 13)))]
    )
    async with informing(connect(server)) as (informer, log):
        revisions: list[int] = []
        informer.add_handler(lambda _: revisions.append(informer.revision))
        await informer.wait_for(14, PATIENCE)
    assert log.calls == [["ADDED large 11"], ["ADDED a 12", "DELETED b 12"], ["ADDED c 13"]]
    assert revisions == [11, 12, 14]


def test_batch_with_large_objects_in_another_order_is_one_part() -> None:
    batch = WatchBatch([(ADDED, pod("a", 12)), (ADDED, pod("b", 11))], 12, size=1 << 20)
    assert split_batch(batch) == [(12, batch.events)]


def test_large_batch_of_small_objects_is_one_part() -> None:
    batch = WatchBatch([(ADDED, pod(f"a-{number}", number)) for number in range(1, 501)], 501, size=900 << 10)
    assert split_batch(batch) == [(501, batch.events)]


async def test_late_handler_receives_existing_objects(serve: Serve, connect: Connect) -> None:
    server = await serve()
    script(server, [events(10, (ADDED, pod("a", 1)), (ADDED, pod("b", 2)))])
    async with informing(connect(server)) as (informer, log):
        await informer.wait_synced(PATIENCE)
        later = Log()
        informer.add_handler(later)
        assert later.calls == log.calls == [["ADDED a 1", "ADDED b 2"]]


async def test_empty_collection_is_synced(serve: Serve, connect: Connect) -> None:
    server = await serve()
    script(server, [events(7)])
    async with informing(connect(server)) as (informer, log):
        await informer.wait_synced(PATIENCE)
        assert (informer.revision, dict(informer.store), log.calls) == (7, {}, [])


async def test_bookmark_advances_the_revision(serve: Serve, connect: Connect) -> None:
    server = await serve()
    script(server, [events(7), events(9)])
    async with informing(connect(server)) as (informer, log):
        await informer.wait_for(9, PATIENCE)
        assert log.calls == []


class Alarm(FakeClock):
    """Records the duration of each sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.slept.put_nowait(seconds)
        await super().sleep(seconds)


async def test_refused_informer_retries_after_the_given_delay(serve: Serve, connect: Connect) -> None:
    """The delay spreads the retries of refused clients, because each refusal costs the server CPU time."""
    server, clock = await serve(), Alarm()
    script(server, [unavailable(retry_after=7.0)], [events(7)])
    informer: Informer[Pod] = Informer(ResourceClient(connect(server), PODS), clock=clock)
    running = asyncio.ensure_future(informer.run())
    async with asyncio.timeout(PATIENCE):
        while (seconds := await clock.slept.get()) != 7.0:
            assert seconds > 7.0, "a shorter sleep before the retry"
    await clock.advance(7.0)
    await informer.wait_synced(PATIENCE)
    running.cancel()
    await asyncio.wait((running,))


async def test_wait_for_a_revision_times_out(serve: Serve, connect: Connect) -> None:
    server = await serve()
    script(server, [events(7)])
    async with informing(connect(server)) as (informer, _):
        with pytest.raises(TimeoutError, match="pods is at revision 7, not at 8"):
            await informer.wait_for(8, 0.1)


async def test_broken_stream_resumes_on_another_server(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    script(one, [events(5, (ADDED, pod("a", 1))), unavailable()])
    watch = script(two, [events(6, (MODIFIED, pod("a", 6)))])
    async with informing(connect(one, two)) as (informer, log):
        await informer.wait_for(6, PATIENCE)
    assert watch.asked == ["5"]
    assert log.calls == [["ADDED a 1"], ["MODIFIED a 6 (was 1)"]]


async def test_stopped_server_is_replaced_and_the_watch_resumes(serve: Serve, connect: Connect) -> None:
    one, two = await serve(), await serve()
    script(one, [events(5, (ADDED, pod("a", 1)))])
    watch = script(two, [events(6)])
    async with informing(connect(one, two)) as (informer, _):
        await informer.wait_synced(PATIENCE)
        await one.stop()
        await informer.wait_for(6, PATIENCE)
    assert watch.asked == ["5"]


async def test_partial_initial_state_is_discarded_when_the_stream_breaks(serve: Serve, connect: Connect) -> None:
    server = await serve()
    watch = script(server, [events(None, (ADDED, pod("a", 1))), unavailable()], [events(8, (ADDED, pod("b", 7)))])
    async with informing(connect(server)) as (informer, log):
        await informer.wait_synced(PATIENCE)
        assert list(informer.store) == ["default/b"]
    assert (watch.asked, log.calls) == (["", ""], [["ADDED b 7"]])


async def test_relist_after_expiry_delivers_only_the_difference(serve: Serve, connect: Connect) -> None:
    server = await serve()
    before = [pod("same", 1), pod("changed", 2), pod("gone", 3), pod("reborn", 4, uid="first")]
    after = [pod("same", 1), pod("changed", 20), pod("reborn", 21, uid="second"), pod("new", 22)]
    watch = script(
        server,
        [events(5, *((ADDED, item) for item in before)), EXPIRED],
        [events(None, *((ADDED, item) for item in after[:2])), events(30, *((ADDED, item) for item in after[2:]))],
    )
    async with informing(connect(server)) as (informer, log):
        await informer.wait_for(30, PATIENCE)
        assert sorted(informer.store) == ["default/changed", "default/new", "default/reborn", "default/same"]
    assert watch.asked == ["", ""]
    assert log.calls[1] == [
        "DELETED gone 3 (was 3)",
        "DELETED reborn 4 (was 4)",
        "MODIFIED changed 20 (was 2)",
        "ADDED reborn 21",
        "ADDED new 22",
    ]


async def test_store_is_unchanged_during_a_relist(serve: Serve, connect: Connect) -> None:
    server = await serve()
    watch = script(server, [events(5, (ADDED, pod("a", 1))), EXPIRED], [events(None, (ADDED, pod("b", 2)))])
    async with informing(connect(server)) as (informer, _):
        await informer.wait_synced(PATIENCE)
        await watch.wait_asked(2)
        assert list(informer.store) == ["default/a"]


async def test_server_that_is_behind_is_left(serve: Serve, connect: Connect) -> None:
    one, two, three = await serve(), await serve(), await serve()
    watch = script(one, [events(50, (ADDED, pod("a", 40))), EXPIRED])
    script(two, [events(45, (ADDED, pod("a", 30)))])
    script(three, [events(51, (ADDED, pod("a", 51)))])
    connection = connect(one, two, three)
    async with informing(connection) as (informer, log):
        await watch.wait_asked(2)
        await one.stop()
        await informer.wait_for(51, PATIENCE)
        assert connection.endpoint == three.address
    assert log.calls == [["ADDED a 40"], ["MODIFIED a 51 (was 40)"]]


async def test_cluster_scoped_objects_are_keyed_by_name(serve: Serve, connect: Connect) -> None:
    server = await serve()
    watch = WatchScript([events(3, (ADDED, make_node("n1").build()))])
    server.on_watch("/pinnace.v1.Nodes/Watch", WatchRequest, watch.answer)
    informer: Informer[Node] = Informer(ResourceClient(connect(server), NODES))
    running = asyncio.ensure_future(informer.run())
    await informer.wait_synced(PATIENCE)
    running.cancel()
    assert list(informer.store) == ["n1"]


async def test_failing_handler_ends_the_informer(serve: Serve, connect: Connect) -> None:
    server = await serve()
    script(server, [events(5, (ADDED, pod("a", 1)))])
    informer: Informer[Pod] = Informer(ResourceClient(connect(server), PODS))

    def broken(deltas: Sequence[Delta[Pod]]) -> None:
        raise RuntimeError("a bug")

    informer.add_handler(broken)
    with pytest.raises(RuntimeError, match="a bug"):
        async with asyncio.timeout(PATIENCE):
            await informer.run()


async def test_informer_sends_its_history_when_resuming(serve: Serve, connect: Connect) -> None:
    server = await serve()
    watch = script(
        server,
        [events(None, (ADDED, pod("a", 1))), events(5, history=b"five"), events(6, history=b"six"), unavailable()],
        [EXPIRED],
        [events(9, history=b"nine")],
    )
    async with informing(connect(server)) as (informer, _):
        await informer.wait_for(9, PATIENCE)
    six = Known(resourceVersion="6", history=b"six")
    assert (watch.asked, watch.known) == (["", "6", ""], [Known(), six, six])


async def test_changed_history_ends_the_informer(serve: Serve, connect: Connect) -> None:
    """Otherwise its handlers would keep outdated state when the revisions of the new history reach the old one."""
    server = await serve()
    script(server, [events(5, (ADDED, pod("a", 1)), history=b"five"), EXPIRED], [HISTORY_CHANGED])
    informer: Informer[Pod] = Informer(ResourceClient(connect(server), PODS))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(OtherHistory, match="informer of pods: begin anew"):
            await informer.run()


async def test_wait_for_a_revision_needs_a_watch(serve: Serve, connect: Connect) -> None:
    """A leader elected after a restore of etcd may have a token below the last revision of the informer."""
    server = await serve()
    script(server, [events(50), unavailable()], [unavailable(retry_after=5.0)])
    async with informing(connect(server)) as (informer, _):
        await informer.wait_for(50, PATIENCE)
        while informer._failing is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError, match="at revision 50 and has no watch: etcd: no answer"):
            await informer.wait_for(40, 0.1)


async def test_wait_for_a_revision_fails_between_two_watches(serve: Serve, connect: Connect) -> None:
    """Streams also end without an error after an hour, and the first message of the next one may be slow."""
    server = await serve()
    watch = script(server, [events(50), End.OVER], [])
    async with informing(connect(server)) as (informer, _):
        await informer.wait_for(50, PATIENCE)
        await watch.wait_asked(2)
        with pytest.raises(TimeoutError, match="at revision 50 and has no watch: the watch ended"):
            await informer.wait_for(40, 0.1)


async def test_partial_initial_state_reaches_no_revision(serve: Serve, connect: Connect) -> None:
    """Its history is not known yet."""
    server = await serve()
    watch = script(server, [events(50), EXPIRED], [events(0, (ADDED, pod("a", 1)))])
    async with informing(connect(server)) as (informer, _):
        await informer.wait_for(50, PATIENCE)
        await watch.wait_asked(2)
        while informer._failing is not None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError, match="at revision 50"):
            await informer.wait_for(40, 0.1)


async def test_expired_watch_resumes_without_a_log_message(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve()
    watch = script(server, [events(10, (ADDED, pod("a", 1))), End.OVER], [events(11, (ADDED, pod("b", 11)))])
    async with informing(connect(server)) as (informer, log):
        await informer.wait_for(11, PATIENCE)
        assert informer.healthy is None
    assert watch.asked == ["", "10"]
    assert log.calls == [["ADDED a 1"], ["ADDED b 11"]]
    assert not caplog.records
