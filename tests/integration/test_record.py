"""The recorder of etcd's history, as a process beside a real etcd."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import PODS, election_key
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import Committed, StorageError, Write
from pinnace.history.records import Compaction, ElectionFacts, PodFacts, Stored, digest, read
from pinnace.verification.check.check import check
from tests.builders import make_pod
from tests.conftest import EtcdFactory, EtcdServer, dying_with_us

DEADLINE = 20.0


class Recording:
    """The process, and the file that it writes."""

    def __init__(self, folder: Path, *endpoints: str) -> None:
        self._file = folder / "etcd.jsonl"
        command = [sys.executable, "-m", "pinnace.apiserver.storage.etcd.record", "--etcd", ",".join(endpoints)]
        self.process = subprocess.Popen(dying_with_us([*command, "--output", str(self._file)]), stderr=subprocess.PIPE)

    async def reached(self, revision: int) -> None:
        progress = self._file.with_name("etcd.jsonl.progress")
        async with asyncio.timeout(DEADLINE):
            while not progress.exists() or int(progress.read_text()) < revision:
                assert self.process.poll() is None
                await asyncio.sleep(0.02)

    async def noted(self, compaction: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while compaction not in self.compactions():
                assert self.process.poll() is None
                await asyncio.sleep(0.02)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(10)

    def records(self) -> list[Stored]:
        return [record for record in read(self._file) if isinstance(record, Stored)]

    def compactions(self) -> list[int]:
        return [record.revision for record in read(self._file) if isinstance(record, Compaction)]


@pytest.fixture
async def members(start_etcd: EtcdFactory) -> list[EtcdServer]:
    return await start_etcd(3)


@pytest.fixture
async def storage(members: list[EtcdServer]) -> AsyncIterator[EtcdStorage]:
    storage = EtcdStorage([member.endpoint for member in members])
    yield storage
    await storage.close()


@pytest.fixture
def recording(tmp_path: Path, members: list[EtcdServer]) -> Iterator[Recording]:
    recording = Recording(tmp_path, *(member.endpoint for member in members))
    yield recording
    recording.process.kill()
    recording.process.communicate(timeout=10)


async def write(storage: EtcdStorage, *writes: Write) -> int:
    """Keeps trying while etcd is in trouble; keys are new, so trying again can only fail."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                answer = await storage.transact(writes)
            except StorageError:
                await asyncio.sleep(0.05)  # between attempts
            else:
                return answer.revision


async def test_recorder_writes_every_change(storage: EtcdStorage, recording: Recording) -> None:
    pod = make_pod("a").build()
    lease = await storage.grant_lease(60)
    election = Election(name="scheduler", holder="me", session=lease)
    key = PODS.key_of(pod)
    created = await write(storage, Write(key, pod.SerializeToString(), 0), Write("/elsewhere", b"?", 0))
    led = await write(storage, Write(election_key("scheduler"), election.SerializeToString(), 0, lease=lease))
    gone = await write(storage, Write(key, None, created))
    await recording.reached(gone)
    assert recording.stop() == 0

    first, other, leader, deleted = recording.records()
    assert (first.key, first.revision, first.create_revision) == (key, created, created)
    assert first.digest == digest(pod)
    assert isinstance(first.facts, PodFacts)
    assert (other.key, other.facts) == ("/elsewhere", None)
    assert (leader.revision, leader.lease, leader.facts) == (led, lease, ElectionFacts("me", lease))
    assert (deleted.key, deleted.revision, deleted.digest, deleted.facts) == (key, gone, "", None)
    assert [stored.at for stored in (first, other, leader, deleted)] == sorted(s.at for s in recording.records())


async def test_recorder_misses_nothing_while_members_restart(
    storage: EtcdStorage, members: list[EtcdServer], recording: Recording
) -> None:
    """Each is killed in turn, so also the leader and the one that is followed; one that is paused says nothing at all."""
    last = 0
    for turn, member in enumerate(members):
        if turn == 1:
            member.pause()
        else:
            member.kill()
        for number in range(20):
            last = await write(storage, Write(f"/registry/x/{turn}-{number}", b"1", 0))
        await recording.reached(last)
        if turn == 1:
            member.resume()
        else:
            member.start()
        await member.wait_ready()
    assert recording.stop() == 0
    stored = recording.records()
    assert {record.key for record in stored} == {f"/registry/x/{turn}-{number}" for turn in range(3) for number in range(20)}
    (whole,) = [verdict for verdict in check(stored, only={"H"}).verdicts if verdict.name == "H"]
    assert whole.status == "holds"
    assert stored[-1].revision == last


async def test_all_of_etcd_restarts(storage: EtcdStorage, members: list[EtcdServer], recording: Recording) -> None:
    await recording.reached(await write(storage, Write("/registry/x/before", b"1", 0)))
    for member in members:
        member.kill()
    for member in members:
        member.start()
    await recording.reached(await write(storage, Write("/registry/x/after", b"1", 0)))
    assert recording.stop() == 0
    assert [record.key for record in recording.records()] == ["/registry/x/before", "/registry/x/after"]


async def test_compaction_is_noted(storage: EtcdStorage, recording: Recording) -> None:
    first = await write(storage, Write("/registry/x/a", b"1", 0))
    answer = await storage.transact([Write("/registry/x/a", b"2", first)])
    assert isinstance(answer, Committed)
    await recording.reached(answer.revision)
    await storage.compact(answer.revision)
    await recording.noted(answer.revision)
    assert recording.stop() == 0


async def test_recorder_that_was_overtaken_ends_loudly(storage: EtcdStorage, members: list[EtcdServer], tmp_path: Path) -> None:
    """What it needs is gone: here, already when it starts."""
    first = await write(storage, Write("/registry/x/a", b"1", 0))
    answer = await storage.transact([Write("/registry/x/a", b"2", first)])
    await storage.compact(answer.revision)
    recording = Recording(tmp_path, members[0].endpoint)
    _, stderr = await asyncio.to_thread(recording.process.communicate, timeout=10)
    assert recording.process.returncode == 1
    assert b"the history has a gap" in stderr
