"""Observes whether the processes of a cluster run, and records it in a history.

The end of a process is observed at once (pidfd), so that it precedes its effects. Starts, SIGSTOP and SIGCONT are observed at
the next poll.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from pinnace.cluster import processes
from pinnace.cluster.spec import ProcessRecord
from pinnace.history.records import ProcessState, encode_record
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity

POLL = 0.05
"""Seconds between two polls of a recorder."""


class ProcessChange(NamedTuple):
    name: str
    state: str
    """up, down or frozen, as in ProcessState."""


class ProcessObserver:
    """The states of the processes that `records` returns."""

    def __init__(self, records: Callable[[], Iterable[ProcessRecord]]) -> None:
        self._records = records
        self._seen: dict[str, tuple[ProcessIdentity | None, str]] = {}
        self._handles: dict[ProcessIdentity, int] = {}
        self._ended = asyncio.Event()

    def poll_changes(self) -> list[ProcessChange]:
        """Return the states that have changed since the last call; at the first call, all states. A process that was replaced
        is down and then up."""
        self._ended.clear()
        result = []
        for record in self._records():
            process = processes.find_running(record)
            state = _process_state(process)
            before, last = self._seen.get(record.name, (None, ""))
            if before and process and before != process and last != "down":
                result.append(ProcessChange(record.name, "down"))
                last = "down"
            if state != last:
                result.append(ProcessChange(record.name, state))
            self._seen[record.name] = process, state
            if process and process not in self._handles:
                self._watch(process)
        return result

    async def wait(self, seconds: float) -> None:
        """Return when a process has ended since the last call of `poll_changes`, at the latest after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def close(self) -> None:
        for process in list(self._handles):
            self._forget(process)

    def _watch(self, process: ProcessIdentity) -> None:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:  # it has ended, or there are too many open files: the next poll observes its end
            return
        self._handles[process] = handle
        asyncio.get_running_loop().add_reader(handle, self._end, process)

    def _end(self, process: ProcessIdentity) -> None:
        self._forget(process)
        self._ended.set()

    def _forget(self, process: ProcessIdentity) -> None:
        handle = self._handles.pop(process)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


def _process_state(process: ProcessIdentity | None) -> str:
    if process is None:
        return "down"
    return "frozen" if procfs.is_suspended(process) else "up"


class ProcessRecorder:
    """An async context manager that writes the states of processes into a new file of a history."""

    def __init__(self, records: Callable[[], Iterable[ProcessRecord]], output: Path) -> None:
        self._records = records
        self._output = output

    async def __aenter__(self) -> Self:
        self._recording = asyncio.create_task(self._record_processes())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop. The file is incomplete if the disk was full: it is shown, and no verdict depends on it."""
        self._recording.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await self._recording

    async def _record_processes(self) -> None:
        observer = ProcessObserver(self._records)
        try:
            with self._output.open("w", encoding="utf-8") as file:
                while True:
                    now = time.monotonic()
                    for change in observer.poll_changes():
                        file.write(encode_record(ProcessState(now, change.name, change.state)))
                    file.flush()
                    await observer.wait(POLL)
        finally:
            observer.close()
