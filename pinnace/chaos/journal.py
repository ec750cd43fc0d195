"""The history file of this process: records go in from the event loop, lines come out of a thread."""

import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pinnace.check.files import encode
from pinnace.check.history import Record

FLUSH = 0.2
"""Seconds for which lines may stay in memory."""


class Journal:
    """`write` never blocks. On leaving the context all that was written is in the file. A file that cannot be written to (disk
    full) is raised there, as OSError: the history is incomplete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._records.put(None)
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def write(self, record: Record) -> None:
        self._records.put(record)

    def _run(self) -> None:
        try:
            with self.path.open("a") as file:
                while True:
                    try:
                        record = self._records.get(timeout=FLUSH)
                    except queue.Empty:
                        file.flush()
                        continue
                    if record is None:
                        return
                    file.write(encode(record))
        except OSError as error:
            self._error = error
