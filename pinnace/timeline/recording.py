"""Recordings: a timeline in a file, written from a live cluster or by `pinnace chaos --save`.

A recording is a history (pinnace.history.records), one record a line. A live one also has the values of objects, from which
decisions are computed as of any moment. The order of the files does not matter: items are sorted by time.
"""

import asyncio
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pinnace.api.keys_pb2 import KeyVersion
from pinnace.api.resources import EVENTS
from pinnace.history.records import (
    FaultRecord,
    Record,
    RunInfo,
    StoredChange,
    decode_facts,
    digest_of,
    encode_record,
    read_history,
)
from pinnace.history.verdict import CheckReport
from pinnace.timeline.items import ItemLog, RecordTranslator, TimelineItem, item_time
from pinnace.timeline.source import DecisionError, KeyReader, explain_pod, write_objects_file

HistoryCheck = Callable[[Iterable[Record]], CheckReport]
"""The checkers of histories (pinnace.verification.check)."""

MAX_ITEMS = 400_000
"""Items that a page gets. Older ones are folded into the state with which it begins."""


async def record_cluster(reader: KeyReader, path: Path, what: str) -> AsyncGenerator[int, None]:
    """Record a live cluster until closed. Yield the number of recorded changes now and then. Raises ApiError, OSError."""
    count = 0
    with path.open("x", encoding="utf-8") as file:
        file.write(encode_record(RunInfo(started=time.time(), what=what, at=time.monotonic())))
        async for versions in reader.versions():
            now = time.monotonic()
            for version in versions:
                file.write(encode_record(stored_change(version, now)))
            file.flush()
            count += len(versions)
            yield count


def stored_change(version: KeyVersion, now: float) -> StoredChange:
    """One change as a record with its value."""
    value = None if version.deleted else version.value
    return StoredChange(
        now,
        version.mod_revision,
        version.key,
        digest_of(version.key, value),
        version.create_revision,
        version.lease,
        decode_facts(version.key, value),
        b64encode(version.value).decode(),
    )


class RecordedSource:
    """The timeline of histories in files."""

    live = False

    def __init__(self, paths: Sequence[Path], title: str = "", check: HistoryCheck | None = None) -> None:
        """Read all of them, and check the history of a run with faults. Raise HistoryError, OSError."""
        records = [item for path in paths for item in read_history(path)]
        run = next((item for item in records if isinstance(item, RunInfo)), None)
        self.title = title or (run.what if run else "") or ", ".join(path.name for path in paths)
        self.log = ItemLog(MAX_ITEMS)
        self.log.extend(sorted(_with_final_terms(_translate_records(records, run, check)), key=item_time))
        self._stored = [item for item in records if isinstance(item, StoredChange) and (item.value or not item.create_revision)]
        self.has_values = any(item.value for item in self._stored)

    async def wait(self, sequence: int) -> None:
        await asyncio.Event().wait()

    wait_for_term = wait

    async def explain_decision(self, pod: str, revision: int) -> Mapping[str, Any]:
        if not self.has_values:
            raise DecisionError("this recording has no objects; `pinnace timeline record` keeps them")
        state: dict[str, str] = {}
        for item in self._stored:
            if revision and item.revision > revision:
                break
            if not item.key.startswith(EVENTS.prefix):
                state[item.key] = item.value
        with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
            path = write_objects_file(Path(folder), ((key, b64decode(value)) for key, value in state.items() if value))
            return await explain_pod(pod, path)

    async def keys(self, prefix: str, after: str) -> Mapping[str, Any]:
        raise DecisionError("a recording has no present keys")


def _with_final_terms(items: Iterable[TimelineItem]) -> Iterator[TimelineItem]:
    """The items with two for each term, its begin and its end, by its last version. The ends in earlier versions are the times
    at which the changes were recorded, which can be later than that in the record of the term."""
    terms: dict[tuple[str, int], TimelineItem] = {}
    for item in items:
        if item[0] == "t":
            terms[item[3], item[4]] = item
        else:
            yield item
    for term in terms.values():
        yield [*term[:6], None, "", *term[8:]]
        if term[6] is not None:
            yield term


def _translate_records(records: Iterable[Record], run: RunInfo | None, check: HistoryCheck | None) -> Iterator[TimelineItem]:
    records = list(records)
    first = next((record.at for record in records if isinstance(record, StoredChange)), 0.0)
    translator = RecordTranslator(run.started - (run.at or first) if run else 0.0)
    last = 0.0
    for change in sorted(
        (record for record in records if isinstance(record, StoredChange)), key=lambda change: (change.revision, change.key)
    ):
        for item in translator.translate_record(change):
            last = max(last, item_time(item))
            yield item
    for other in records:
        if not isinstance(other, StoredChange):
            yield from translator.translate_record(other)
    if check and any(isinstance(record, FaultRecord) for record in records):
        yield from translator.translate_verdicts(last, check(records).verdicts)
