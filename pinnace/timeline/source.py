"""Sources of a timeline: a live cluster, or a recording.

A live source lists the keys of the cluster once and then watches them, once for all viewers, while there is at least one. It
uses the Keys service, so revisions and their order are etcd's. Decisions are not stored: they are computed on demand from the
objects at a revision, which etcd keeps until it is compacted.
"""

import asyncio
import json
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from pinnace.api.keys_pb2 import KeyVersion, ListKeysRequest, ListKeysResponse
from pinnace.api.resources import CANDIDATES_PREFIX, ELECTIONS_PREFIX, EVENTS, NODES, PODS, TERMS_PREFIX
from pinnace.client.channel import Caller
from pinnace.client.client import KeysClient
from pinnace.client.errors import ApiError, Expired
from pinnace.history.records import StoredChange, decode_facts
from pinnace.timeline.items import ItemLog, RecordTranslator, TimelineItem

DECISION_TIMEOUT = 20.0
SILENCE_TIMEOUT = 5.0
"""Seconds without a response after which the watch moves to another server."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts to follow the cluster."""
SHOWN = (PODS.prefix, NODES.prefix, ELECTIONS_PREFIX, CANDIDATES_PREFIX, TERMS_PREFIX)
"""Prefixes whose present keys a live timeline begins with. It follows all keys."""
_TURN = 200
"""Records that are translated before other tasks run."""


class DecisionError(Exception):
    """A decision cannot be explained. The message names the reason."""


class TimelineSource(Protocol):
    title: str
    live: bool
    log: ItemLog

    async def wait(self, sequence: int) -> None:
        """Return when the log has items after this sequence number."""
        ...

    async def wait_for_term(self, sequence: int) -> None:
        """Return when the log has a term after this sequence number."""
        ...

    async def explain_decision(self, pod: str, revision: int) -> Mapping[str, Any]:
        """The explanation of "namespace/name" as of a revision (0: now), as JSON. Raises DecisionError."""
        ...

    async def keys(self, prefix: str, after: str) -> Mapping[str, Any]:
        """A page of the keys of the store, as JSON. Raises DecisionError."""
        ...


class KeyReader:
    """Reads the keys of a cluster: its present state, and then every change."""

    def __init__(self, connection: Caller) -> None:
        self._keys = KeysClient(connection)
        self.revision = 0
        """All changes up to this revision were returned. 0: the present state has not been read."""

    async def versions(self) -> AsyncGenerator[Sequence[KeyVersion], None]:
        """The present keys under SHOWN, then changes of all keys, until closed. A later call resumes.

        Raises ApiError: Expired if a change was compacted away before it was read.
        """
        if not self.revision:
            revision = 0
            for prefix in SHOWN:
                async for page in self.pages(prefix, revision):
                    revision = page.revision
                    yield page.items
            self.revision = revision
        async with aclosing(self._keys.watch((), self.revision + 1, SILENCE_TIMEOUT)) as responses:
            async for response in responses:
                yield response.changes
                self.revision = max(self.revision, response.revision)

    def pages(self, prefix: str, revision: int) -> AsyncIterator[ListKeysResponse]:
        """All keys with a prefix at a revision (0: now). Raises ApiError."""
        return self._keys.pages(prefix, revision)

    async def list(self, request: ListKeysRequest) -> ListKeysResponse:
        """Raises ApiError."""
        return await self._keys.list(request)


class LiveTimelineSource:
    live = True

    def __init__(self, connection: Caller, title: str, *, now: Callable[[], float] = time.time) -> None:
        self.title = title
        self.log = ItemLog()
        self._reader = KeyReader(connection)
        self.now = now
        self._translator = RecordTranslator()
        self._grown = asyncio.Condition()

    async def run(self) -> None:
        """Follow the cluster until cancelled. Survives the absence of the API servers."""
        while True:
            try:
                async with aclosing(self._reader.versions()) as read:
                    async for versions in read:
                        await self._translate(versions)
            except Expired:  # compacted while no viewer was connected
                self._reader.revision = 0
                self.log = ItemLog(last=self.log.last + 1)
                self._translator = RecordTranslator()
            except ApiError as error:
                await self.add([self._translator.create_mark("connection", self.now(), "gateway", "event", error.message)])
                await asyncio.sleep(RETRY_INTERVAL)

    def translate(self, record: StoredChange) -> Iterator[TimelineItem]:
        return self._translator.translate_record(record)

    async def add(self, items: Iterable[TimelineItem]) -> None:
        self.log.extend(items)
        async with self._grown:
            self._grown.notify_all()

    def leader(self, election: str) -> str:
        """The holder of an election; "" without one."""
        return self._translator.leader(election)

    def mark(self, name: str, lane: str, kind: str, text: str, at: float) -> TimelineItem:
        return self._translator.create_mark(name, at, lane, kind, text)

    async def wait(self, sequence: int) -> None:
        async with self._grown:
            await self._grown.wait_for(lambda: self.log.last > sequence)

    async def wait_for_term(self, sequence: int) -> None:
        async with self._grown:
            await self._grown.wait_for(lambda: self.log.last_term > sequence)

    async def _translate(self, versions: Sequence[KeyVersion]) -> None:
        now = self.now()
        for start in range(0, len(versions), _TURN):
            await self.add(
                item for version in versions[start : start + _TURN] for item in self.translate(_stored_change(version, now))
            )
            await asyncio.sleep(0)

    async def explain_decision(self, pod: str, revision: int) -> Mapping[str, Any]:
        result: list[tuple[str, bytes]] = []
        try:
            async for page in self._reader.pages("/registry/", revision):
                result += [(item.key, item.value) for item in page.items if not item.key.startswith(EVENTS.prefix)]
        except Expired:
            raise DecisionError("etcd has compacted this revision; decisions are shown for the last minutes") from None
        except ApiError as error:
            raise DecisionError(error.message) from None
        with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
            return await explain_pod(pod, write_objects_file(Path(folder), result))

    async def keys(self, prefix: str, after: str) -> Mapping[str, Any]:
        leases = prefix.startswith((ELECTIONS_PREFIX, CANDIDATES_PREFIX))
        request = ListKeysRequest(prefix=prefix, after=after, limit=100, leases=leases, keys_only=True)
        try:
            page = await self._reader.list(request)
        except ApiError as error:
            raise DecisionError(error.message) from None
        return {"revision": page.revision, "more": page.more, "items": [_key_document(item) for item in page.items]}


def _stored_change(version: KeyVersion, now: float) -> StoredChange:
    facts = decode_facts(version.key, version.value)
    return StoredChange(now, version.mod_revision, version.key, "", version.create_revision, version.lease, facts)


def _key_document(version: KeyVersion) -> Mapping[str, Any]:
    age = version.lease_age_seconds if version.HasField("lease_age_seconds") else None
    return {
        "key": version.key,
        "create": version.create_revision,
        "mod": version.mod_revision,
        "version": version.version,
        "lease": f"{version.lease:x}" if version.lease else "",
        "age": age,
        "size": version.size,
    }


def write_objects_file(folder: Path, objects: Iterable[tuple[str, bytes]]) -> Path:
    """A file for `explain_pod`, see scheduler.explaining.read_objects."""
    path = folder / "objects"
    with path.open("wb") as file:
        file.writelines(key.encode() + b" " + b64encode(value) + b"\n" for key, value in objects if value)
    return path


async def explain_pod(pod: str, objects: Path) -> Mapping[str, Any]:
    """The scheduler's explanation of a pod by a file of objects. Raises DecisionError."""
    namespace, _, name = pod.partition("/")
    arguments = ("-m", "pinnace.scheduler.explaining", "--objects", str(objects), "--", namespace, name)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(DECISION_TIMEOUT):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise DecisionError(f"the explanation took more than {DECISION_TIMEOUT:g} s") from None
    try:
        answer: Mapping[str, Any] = json.loads(out)
    except ValueError:
        raise DecisionError((err.decode(errors="replace").strip().splitlines() or ["no answer"])[-1]) from None
    if (unexplained := answer.get("unexplained")) is not None:
        raise DecisionError(str(unexplained.get("error", "")))
    explanation: Mapping[str, Any] = answer["explanation"]
    return explanation
