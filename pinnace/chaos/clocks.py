"""Wall clocks that can be stepped, for one process each, through libfaketime. Monotonic clocks are left alone.

A process reads its offset from a file, at most once a second. libfaketime leaves shared memory behind for each process that is
killed; `sweep` removes it. (A new process that happened to get the pid of a dead one would otherwise refuse to start.)

Source: https://github.com/wolfcw/libfaketime (README, 4a to 4e).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

LIBRARIES = (
    "usr/lib/*/faketime/libfaketimeMT.so.1",
    "usr/lib*/faketime/libfaketimeMT.so.1",
    "usr/local/lib/faketime/libfaketimeMT.so.1",
)
"""From the root. Where distributions and its own Makefile put it: the one for processes with threads."""
_SHARED = Path("/dev/shm")


def find_library() -> Path | None:
    return next((path for pattern in LIBRARIES for path in sorted(Path("/").glob(pattern))), None)


class Clocks:
    """A context manager. `environment` is what a process must be started with to have a clock in `folder`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library = library
        self._folder = folder
        self._files: dict[str, Path] = {}

    def environment(self, process: str) -> Mapping[str, str]:
        self._files[process] = self._folder / f"{process}.clock"
        self.step(process, 0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._files[process]),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1",  # nobody reads files' times as dates; intercepted, each stat of a handshake takes locks
        }

    def step(self, process: str, seconds: float) -> None:
        """Its wall clock is so many seconds ahead of ours from now on; of nothing that it does the duration changes."""
        draft = self._files[process].with_suffix(".tmp")
        draft.write_text(f"{seconds:+g}\n")
        draft.replace(self._files[process])

    def heal(self) -> None:
        for process in self._files:
            self.step(process, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sweep()

    def sweep(self) -> None:
        """Removes what dead processes have left."""
        for left in _SHARED.glob("*faketime_s?m_*"):
            pid = left.name.rpartition("_")[2]
            if pid.isdigit() and not Path("/proc", pid).exists() and left.stat().st_uid == os.getuid():
                left.unlink(missing_ok=True)
