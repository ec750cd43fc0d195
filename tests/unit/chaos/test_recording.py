"""Clients and watchers record each call and event, against servers with scripted responses."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod, PodList
from pinnace.api.pods_pb2 import UpdatePodRequest
from pinnace.api.resources import PODS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import ADDED, DELETED, GetRequest, ListRequest, WatchRequest
from pinnace.client.client import Client
from pinnace.client.errors import Conflict, NotFound, OutcomeUnknown, Unavailable
from pinnace.history import records
from pinnace.history.records import CallRecord, WatchMessage
from pinnace.verification.chaos.clients import HistoryJournal, RecordingConnection, RecordingWatcher
from tests.builders import make_pod
from tests.unit.client.fakeserver import FakeServer, WatchScript, events, lose, refuse, unavailable

KEY = "/registry/pods/default/a"
POD = make_pod("a").version(7).build()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    started = await FakeServer().start()
    yield started
    await started.stop()


class Recording:
    """A client of the server, and its recorded calls."""

    def __init__(self, server: FakeServer, path: Path) -> None:
        self.journal = HistoryJournal(path)
        self.connection = RecordingConnection("c", [server.address], self.journal, random.Random(0))
        self.client = Client(self.connection)

    async def calls(self) -> list[CallRecord]:
        await self.connection.close()
        self.journal.__exit__(None, None, None)
        return [record for record in records.read_history(self.journal.path) if isinstance(record, CallRecord)]


@pytest.fixture
def recording(server: FakeServer, tmp_path: Path) -> Recording:
    made = Recording(server, tmp_path / "history.jsonl")
    made.journal.__enter__()
    return made


async def test_found_and_missing_objects_are_recorded(server: FakeServer, recording: Recording) -> None:
    async def answer(request: GetRequest, context: Any) -> Pod:
        if request.name != "a":
            await refuse(context, Refusal(Code.NOT_FOUND, "NotFound", "no such pod"))
        return POD

    server.on("/pinnace.v1.Pods/Get", GetRequest, answer)
    await recording.client.pods.get("a", "default")
    with pytest.raises(NotFound):
        await recording.client.pods.get("b", "default")
    result, missing = await recording.calls()
    assert (result.verb, result.outcome, result.code, result.items[0].revision) == ("get", "ok", "", 7)
    assert (missing.outcome, missing.code, missing.items[0].revision) == ("ok", "NOT_FOUND", 0)
    assert (result.id, missing.id) == (1, 2)
    assert result.server == server.address
    assert result.began <= result.ended <= missing.began


async def test_write_with_a_lost_response_is_unknown_and_not_retried(server: FakeServer, recording: Recording) -> None:
    async def answer(request: UpdatePodRequest, context: Any) -> Pod:
        await lose(context)
        return POD

    server.on("/pinnace.v1.Pods/Update", UpdatePodRequest, answer)
    with pytest.raises(OutcomeUnknown):
        await recording.client.pods.update(POD)  # other clients retry updates with a resourceVersion
    (call,) = await recording.calls()
    assert (call.outcome, call.code, call.items[0].key, call.items[0].expected) == ("unknown", "UNAVAILABLE", KEY, 7)
    assert len(server.calls) == 1


@pytest.mark.parametrize("refusal", [unavailable(), Refusal(Code.ABORTED, "Conflict", "stale")])
async def test_refused_write_is_not_retried(server: FakeServer, recording: Recording, refusal: Refusal) -> None:
    async def answer(request: UpdatePodRequest, context: Any) -> Pod:
        await refuse(context, refusal)
        return POD

    server.on("/pinnace.v1.Pods/Update", UpdatePodRequest, answer)
    with pytest.raises((Conflict, Unavailable)):
        await recording.client.pods.update(POD)
    (call,) = await recording.calls()
    assert (call.outcome, call.code) == ("refused", refusal.code.name)
    assert len(server.calls) == 1


async def test_cancelled_call_is_unknown(server: FakeServer, recording: Recording) -> None:
    async def answer(request: UpdatePodRequest, context: Any) -> Pod:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return POD

    asked = asyncio.Event()
    server.on("/pinnace.v1.Pods/Update", UpdatePodRequest, answer)
    updating = asyncio.create_task(recording.client.pods.update(POD))
    async with asyncio.timeout(5):
        await asked.wait()
    updating.cancel()
    await asyncio.wait((updating,))
    (call,) = await recording.calls()
    assert (call.outcome, call.code, call.items[0].outcome) == ("unknown", "CANCELLED", "unknown")


async def test_pages_of_a_list_are_recorded_as_one_list(server: FakeServer, recording: Recording) -> None:
    async def answer(request: ListRequest, context: Any) -> PodList:
        page = PodList(items=[POD])
        page.metadata.resourceVersion = "9"
        setattr(page.metadata, "continue", "" if getattr(request.options, "continue") else "more")
        return page

    server.on("/pinnace.v1.Pods/List", ListRequest, answer)
    await recording.client.pods.list("default")
    first, second = await recording.calls()
    assert (first.prefix, first.snapshot, first.of, first.more, first.stale) == ("/registry/pods/default/", 9, 1, True, False)
    assert (second.of, second.more, second.stale) == (1, False, True)


async def test_watcher_resumes_and_relists_after_expiry(server: FakeServer, tmp_path: Path) -> None:
    script = WatchScript(
        [events(None, (ADDED, POD)), events(10), unavailable()],
        [events(12, (DELETED, POD)), Refusal(Code.OUT_OF_RANGE, "Expired", "list again")],
        [events(15)],
    )
    server.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, script.answer)
    with HistoryJournal(tmp_path / "history.jsonl") as journal:
        watcher = RecordingWatcher("w", PODS, [server.address], journal, random.Random(0))
        running = asyncio.create_task(watcher.watch_until_cancelled())
        assert await watcher.wait_for_revision(15, timeout=5)
        running.cancel()
        await asyncio.wait((running,))
    words = [record for record in records.read_history(journal.path) if isinstance(record, WatchMessage)]
    assert script.asked == ["", "10", ""]
    assert [(word.kind, word.revision, word.code) for word in words] == [
        ("began", 0, ""), ("added", 7, ""), ("synced", 10, ""), ("ended", 0, "UNAVAILABLE"),
        ("began", 10, ""), ("deleted", 7, ""), ("bookmark", 12, ""), ("ended", 0, "OUT_OF_RANGE"),
        ("began", 0, ""), ("synced", 15, ""), ("ended", 0, "CANCELLED"),
    ]  # fmt: skip
    assert {word.key for word in words if word.kind in ("added", "deleted")} == {KEY}
