"""The recorder: writes every change of every key in etcd to a history file (pinnace.history.records).

`python -m pinnace.apiserver.storage.etcd.record --etcd HOST:PORT,... --output FILE` runs until SIGTERM, for a cluster that
starts with an empty etcd. It has its own watch stream of etcd, from revision 1 on, and does not use the code that the history
serves to check.

Guarantees: every revision is written once, complete and in order, despite failures of members, connections and leaders. A
broken stream is resumed at the last revision on another member. The last revision is requested again and dropped, because etcd
may lose the deletes of exactly the compacted revision (etcd#18089, #19179). If a compaction overtakes the recorder, the history
cannot be complete, and the recorder ends with an error.

`FILE.progress` contains the revision up to which FILE is complete. It is replaced within FLUSH_INTERVAL after a change.
The recorder polls for compactions, so their records may be PROBE_INTERVAL late.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any

import click
import grpc
from aetcd.rpc import RangeRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest

from pinnace.apiserver.storage.etcd.codec import RevisionCompacted, classify_error, describe_rpc_error
from pinnace.apiserver.storage.etcd.members import REQUIRE_LEADER, EtcdMember, EtcdMembers, add_tls_options
from pinnace.apiserver.storage.etcd.storage import oldest_revision
from pinnace.history.records import Compaction, Record, StoredChange, decode_facts, digest_of, encode_record
from pinnace.runtime import logs, process
from pinnace.runtime.tls import TlsFiles

log = logging.getLogger(__name__)

ALL_KEYS = b"\0"
"""As key and range_end: all keys."""
ANY_KEY = b"/"
"""The key of a read that etcd is expected to refuse."""
PROBE_INTERVAL = 1.0
"""Seconds without a response after which progress is requested; also the interval of the poll for compactions."""
SILENCE_LIMIT = 4.0
"""Seconds without a response after which a stream is considered dead."""
RETRY = 0.1
"""Seconds before the next member is tried."""
FLUSH_INTERVAL = 0.05
_SIGN_OF_LIFE = WatchRequest(progress_request=WatchProgressRequest())


class RecorderOvertaken(OSError):
    """Missing revisions were compacted. `process.run` expects this error: one line, exit code 1."""


class StreamBroken(Exception):
    """A stream has ended. The recorder resumes it on another member."""


class HistoryRecorder:
    """Records changes. `write` receives each record, in order. `revision`: all changes up to it were written."""

    def __init__(
        self, members: EtcdMembers, write: Callable[[Record], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._members = members
        self._write = write
        self._clock = clock
        self._compacted = 0
        self.revision = 0

    async def run(self) -> None:
        """Record until cancelled. Raises RecorderOvertaken."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_compactions())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            member = self._members.current
            try:
                async with aclosing(_watch_responses(member, max(1, self.revision))) as responses:
                    async for response in responses:
                        self._write_events(response.events)
            except StreamBroken as error:
                log.warning("%s: %s; resuming after revision %d on another member", member.endpoint, error, self.revision)
                self._members.switch_member(member)
                await asyncio.sleep(RETRY)

    def _write_events(self, events: Sequence[Any]) -> None:
        """Write the events of a response. It contains whole revisions, because fragments are not enabled."""
        now = self._clock()
        for event in events:
            if event.kv.mod_revision > self.revision:
                self._write(_stored_event(now, event))
        if events:
            self.revision = max(self.revision, events[-1].kv.mod_revision)

    async def _watch_compactions(self) -> None:
        """Read at the oldest remaining revision, until etcd refuses it, which shows a compaction."""
        while True:
            await asyncio.sleep(PROBE_INTERVAL)
            member, known = self._members.current, max(1, self._compacted)
            request = RangeRequest(key=ANY_KEY, revision=known, count_only=True)
            try:
                if known < self.revision:
                    await member.kv.Range(request, timeout=SILENCE_LIMIT, metadata=REQUIRE_LEADER)
            except grpc.aio.AioRpcError as error:
                if isinstance(classify_error(error), RevisionCompacted):
                    self._write_compaction(await oldest_revision(member, SILENCE_LIMIT))

    def _write_compaction(self, revision: int | None) -> None:
        if revision is not None and revision > self._compacted:
            self._compacted = revision
            self._write(Compaction(self._clock(), revision))


async def _watch_responses(member: EtcdMember, start_revision: int) -> AsyncGenerator[Any]:
    """Watch all keys on one member. Raises Broken and RecorderOvertaken."""
    call = member.watch.Watch(metadata=REQUIRE_LEADER)
    request = WatchCreateRequest(key=ALL_KEYS, range_end=ALL_KEYS, start_revision=start_revision)
    try:
        async with asyncio.timeout(SILENCE_LIMIT):
            await call.write(WatchRequest(create_request=request))
        while (response := await _next_response(call)) is not grpc.aio.EOF:
            if response.canceled and response.compact_revision:
                raise RecorderOvertaken(
                    f"etcd was compacted at revision {response.compact_revision}, and the history ends before revision "
                    f"{start_revision}: the history has a gap"
                )
            if response.canceled:
                raise StreamBroken(f"etcd canceled the watch: {response.cancel_reason or 'no reason given'}")
            yield response
        raise StreamBroken("etcd ended the watch")
    except grpc.aio.AioRpcError as error:
        raise StreamBroken(describe_rpc_error(error)) from None
    except TimeoutError:
        raise StreamBroken(f"no response for {SILENCE_LIMIT:g} s") from None
    except asyncio.InvalidStateError:
        raise StreamBroken("the connection is closed") from None
    finally:
        call.cancel()


async def _next_response(call: Any) -> Any:
    """Return the next response. Raises TimeoutError if none arrives although progress was requested."""
    reading = asyncio.ensure_future(call.read())
    try:
        for _ in range(int(SILENCE_LIMIT / PROBE_INTERVAL)):
            await asyncio.wait((reading,), timeout=PROBE_INTERVAL)
            if reading.done():
                return reading.result()
            async with asyncio.timeout(PROBE_INTERVAL):
                await call.write(_SIGN_OF_LIFE)
        raise TimeoutError
    finally:
        reading.cancel()


def _stored_event(at: float, event: Any) -> StoredChange:
    kv = event.kv
    key = kv.key.decode()
    if event.type:  # DELETE
        return StoredChange(at, kv.mod_revision, key)
    return StoredChange(
        at, kv.mod_revision, key, digest_of(key, kv.value), kv.create_revision, kv.lease, decode_facts(key, kv.value)
    )


class HistoryFile:
    """The history file, and the progress file."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._file = file
        self._progress = path.with_name(f"{path.name}.progress")
        self._recorded_progress = -1

    def write(self, record: Record) -> None:
        self._file.write(encode_record(record))

    def flush(self, revision: int) -> None:
        """Flush the file and write the progress. `revision`: all changes up to it were written."""
        self._file.flush()
        if revision != self._recorded_progress:
            self._recorded_progress = revision
            fresh = self._progress.with_suffix(".new")
            fresh.write_text(f"{revision}\n")
            fresh.replace(self._progress)


@click.command(context_settings={"show_default": True})
@click.option("--etcd", required=True, metavar="HOST:PORT,...", help="The members to watch.")
@add_tls_options
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The history file.")
def main(etcd: str, etcd_tls: TlsFiles | None, output: Path) -> None:
    """Record every change in etcd since revision 1, until SIGTERM."""
    logs.configure_logging("recorder", 0)
    sys.exit(process.run_component(lambda stop: record(stop, etcd.split(","), etcd_tls, output)))


async def record(stop: asyncio.Event, endpoints: Sequence[str], tls: TlsFiles | None, path: Path) -> None:
    """Record until `stop` is set. Raises RecorderOvertaken, OSError."""
    members = EtcdMembers(endpoints, tls)
    try:
        with path.open("w") as file:
            output = HistoryFile(path, file)
            recorder = HistoryRecorder(members, output.write)
            recording = asyncio.ensure_future(recorder.run())
            try:
                while not stop.is_set() and not recording.done():
                    await asyncio.wait((recording,), timeout=FLUSH_INTERVAL)
                    output.flush(recorder.revision)
            finally:
                recording.cancel()
                await asyncio.wait((recording,))
                output.flush(recorder.revision)
            if not recording.cancelled() and (error := recording.exception()):
                raise _first_cause(error)
    finally:
        await members.close()


def _first_cause(error: BaseException) -> BaseException:
    """Return the first error of a task group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    main()
