"""The history file of this process: records go in from the event loop, lines come out of a thread."""

import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pinnace.chaos.errors import ChaosError
from pinnace.check.files import encode
from pinnace.check.history import Record

FLUSH = 0.2
"""Seconds for which lines may stay in memory."""


class Journal:
    """`write` never blocks. On leaving the context all that was written is in the file. When the file cannot be written to
    (disk full) the history is incomplete: `check` and leaving the context say so, and whatever comes after is dropped."""

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
        if error is None:
            self.check()

    def write(self, record: Record) -> None:
        if self._error is None:
            self._records.put(record)

    def check(self) -> None:
        """Raises ChaosError when a record has been lost."""
        if self._error is not None:
            reason = self._error.strerror or self._error
            raise ChaosError(f"the history of the load cannot be written to {self.path}: {reason}") from self._error

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
