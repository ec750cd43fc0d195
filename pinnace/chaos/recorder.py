"""The recorder of etcd's history, as a process beside the cluster (`python -m apiserver.storage.etcd.record`)."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pinnace.chaos.errors import ChaosError
from pinnace.cluster.helper import dying_with_us

POLL = 0.05
END_TIMEOUT = 30.0


class Recorder:
    """An async context manager. What it writes to stderr goes to `log`. `etcd`: arguments that say where etcd is, and what it
    is shown."""

    def __init__(self, etcd: Sequence[str], output: Path, log: Path) -> None:
        self.output = output
        self._etcd = etcd
        self._log = log
        self._progress = output.with_name(f"{output.name}.progress")

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "apiserver.storage.etcd.record", *self._etcd]
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_us(command), "--output", self.output,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        """Returns when all that it was told is in the file."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def leave(self, output: Path) -> None:
        """Ends, and gives what was written another name. `again` goes on with another history of etcd, from its beginning."""
        await self.__aexit__()
        self.output.rename(output)
        self._progress.unlink()

    async def again(self) -> None:
        await self.__aenter__()

    @property
    def revision(self) -> int:
        """The history is complete up to here. Raises ChaosError when the recorder has ended: it cannot be any more."""
        if self._process.returncode is not None:
            raise ChaosError(f"the recorder of etcd has ended; the last line of {self._log} says why")
        try:
            return int(self._progress.read_text())
        except FileNotFoundError:
            return 0

    async def reached(self, revision: int, timeout: float) -> None:
        """Returns when it has got so far. Raises ChaosError."""
        deadline = time.monotonic() + timeout
        while self.revision < revision:
            if time.monotonic() > deadline:
                raise ChaosError(f"etcd's history is recorded up to revision {self.revision}, not {revision}")
            await asyncio.sleep(POLL)
